// Elements, made and kept. Text is only ever set as text: nothing a peer or a query says is read as markup.

const SVG = "http://www.w3.org/2000/svg";

/** An element; attributes that are null or false are left out, children that are strings become text. */
export function el(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/** The same in a drawing. */
export function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

function filled(element, attributes, children) {
  set(element, attributes);
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** Sets attributes that differ; null, undefined and false remove one. */
export function set(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) element.removeAttribute(name);
    else if (element.getAttribute(name) !== String(value)) element.setAttribute(name, value === true ? "" : value);
  }
  return element;
}

/** Sets the text, unless it is that already: what is unchanged is neither drawn nor read out again. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
  return element;
}

/**
 * Makes `parent` hold one element for each item, in order. An element is made once for a key and updated from then on, so that
 * focus, selection and scrolling survive news.
 */
export function keep(parent, items, keyOf, make, update) {
  const known = (parent.kept ??= new Map());
  const kept = new Map();
  for (const item of items) {
    const key = keyOf(item);
    const element = known.get(key) ?? make(item);
    update(element, item);
    kept.set(key, element);
  }
  for (const [key, element] of known) if (!kept.has(key)) element.remove();
  let at = null;
  for (const element of [...kept.values()].reverse()) {
    if (element.parentNode !== parent || element.nextSibling !== at) parent.insertBefore(element, at);
    at = element;
  }
  parent.kept = kept;
}

export const byId = (id) => document.getElementById(id);
