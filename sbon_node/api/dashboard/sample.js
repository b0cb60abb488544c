// The newest rows of the chosen query, as its sink has them.

import { el, keep, say } from "./dom.js";

export class SampleView {
  constructor(model, parent) {
    this.model = model;
    this.title = el("h3", {}, "Newest rows");
    this.head = el("tr");
    this.body = el("tbody");
    this.table = el("table", { class: "sample", "aria-label": "Newest rows" }, el("thead", {}, this.head), this.body);
    this.box = el("div", { class: "sample-box", hidden: true }, this.title, el("div", { class: "scrolled", tabindex: 0 }, this.table));
    parent.append(this.box);
    model.on(["infos", "chosen"], () => this.draw());
  }

  draw() {
    const sample = this.model.infos.get(this.model.query)?.sample;
    this.box.hidden = !sample?.rows.length;
    if (this.box.hidden) return;
    const cells = (parent, texts, tag) => keep(parent, [...texts.entries()], ([i]) => i, () => el(tag), (cell, [, text]) => say(cell, text ?? "NULL"));
    cells(this.head, sample.columns, "th");
    keep(this.body, [...sample.rows.entries()], ([i]) => i, () => el("tr"), (line, [, row]) => cells(line, row, "td"));
  }
}
