// A state: a shape, a word and a colour, in this order of importance.

import { el, say, set } from "./dom.js";
import { STATES, glyph, tone } from "./glyphs.js";

const SHAPES = { good: STATES.alive.path, warn: STATES.suspect.path, bad: STATES.dead.path, done: STATES.left.path };

export function badge() {
  return el("span", { class: "badge" }, glyph("", "mark"), el("span"));
}

export function showBadge(element, state, path = SHAPES[tone(state)]) {
  set(element, { class: `badge ${tone(state)}` });
  set(element.firstElementChild.firstElementChild, { d: path });
  say(element.lastElementChild, state);
}
