// A list of named facts.

import { el, keep, say } from "./dom.js";

/** `facts` are [name, text] pairs; those without a text are left out. */
export function showFacts(list, facts) {
  const told = facts.filter(([, text]) => text !== null && text !== undefined && text !== "");
  keep(list, told, ([name]) => name, ([name]) => el("div", {}, el("dt", {}, name), el("dd")), (pair, [, text]) => say(pair.lastElementChild, text));
}

export const factList = () => el("dl", { class: "facts" });
