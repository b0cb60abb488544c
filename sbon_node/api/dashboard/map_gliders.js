// Operators that change their node: a shape for each glides on the map from the old node to the new one.

import { svg } from "./dom.js";
import { KINDS } from "./glyphs.js";

/** A transition that is interrupted, as by a hidden page, has no end: the shape goes after this time at the latest. */
const MOST_MS = 3000;

export class Gliders {
  constructor(layer) {
    Object.assign(this, { layer, at: new Map() });
  }

  /** Takes all shown operators, `{id, node}`, and the positions of nodes by name; lets those glide whose node has changed. */
  show(operators, places) {
    for (const { id, node } of operators) {
      const before = this.at.get(id);
      if (before !== undefined && before !== node && places.has(before) && places.has(node)) {
        this.glide(id, places.get(before), places.get(node));
      }
    }
    this.at = new Map(operators.map(({ id, node }) => [id, node]));
  }

  glide(id, from, to) {
    if (matchMedia("(prefers-reduced-motion: reduce)").matches) return;
    const shape = svg("path", { class: "glider", d: KINDS.operator, "data-operator": id });
    shape.style.transform = placed(from);
    this.layer.append(shape);
    shape.getBoundingClientRect(); // It is laid out there, so that the transition begins there.
    shape.style.transform = placed(to);
    shape.addEventListener("transitionend", () => shape.remove());
    setTimeout(() => shape.remove(), MOST_MS);
  }
}

const placed = ([x, y]) => `translate(${x.toFixed(1)}px, ${y.toFixed(1)}px)`;
