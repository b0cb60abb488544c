// A list of named facts.

import { el, keep, say } from "./dom.js";

/** `facts` are [name, text], or [name, text, true] for a line of its own; those without a text are left out. */
export function showFacts(list, facts) {
  const known = facts.filter(([, text]) => text !== null && text !== undefined && text !== "");
  keep(list, known, ([name]) => name, ([name, , wide]) => el("div", { class: wide && "wide" }, el("dt", {}, name), el("dd")), (pair, [, text]) => say(pair.lastElementChild, text));
}

export const factList = () => el("dl", { class: "facts" });
