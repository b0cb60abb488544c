// A small chart with its title, what each line means, and the value the cursor is at, or the newest.

import { Chart } from "./chart.js";
import { el, say, svg } from "./dom.js";
import { clock } from "./format.js";

const HEIGHT = 108;

export class SmallChart {
  /** `lines` maps fields of the points to words, an empty word for a line that needs none; `inWords` formats a value, `tick` a value of the axis. */
  constructor(parent, title, lines, inWords, { tick = inWords, least } = {}) {
    Object.assign(this, { lines, inWords });
    const names = Object.keys(lines);
    this.values = Object.fromEntries(names.map((name) => [name, el("b")]));
    this.when = el("span", { class: "quiet" });
    const keys = names.map((name) => el("span", { class: "key" }, names.length > 1 ? sample(name) : null, `${lines[name]} `, this.values[name]));
    this.keys = el("p", { class: "keys" }, ...keys, this.when);
    this.box = el("div", { class: "chart-box" });
    this.none = el("p", { class: "quiet none" });
    parent.append(el("div", { class: "small-chart" }, el("h3", {}, title), this.keys, this.box, this.none));
    const draw = (chosen, point) => this.read(chosen, point);
    this.chart = new Chart(this.box, names, `${title} over time`, draw, { height: HEIGHT, tick, least });
  }

  /** `none` is said where there are fewer than two points. */
  show(points, none) {
    const drawn = points.length > 1;
    this.box.hidden = this.keys.hidden = !drawn;
    this.none.hidden = drawn;
    say(this.none, drawn ? "" : none);
    if (drawn) this.chart.show(points);
  }

  read(chosen, point) {
    for (const name of Object.keys(this.lines)) say(this.values[name], this.word(point[name]));
    say(this.when, chosen ? `at ${clock(point.at)}` : "");
    return `${clock(point.at)}: ${Object.entries(this.lines).map(([name, word]) => `${word} ${this.word(point[name])}`.trim()).join(", ")}`;
  }

  word(value) {
    return value === null || value === undefined ? "–" : this.inWords(value);
  }
}

const sample = (name) => svg("svg", { viewBox: "0 0 22 8", width: 22, height: 8, "aria-hidden": "true" }, svg("path", { class: `line ${name}`, d: "M1,4 H21" }));
