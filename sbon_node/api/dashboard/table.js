// Tables that become cards where the page is narrow. Roles are spelt out, since a table laid out as blocks would lose them.

import { el, keep, say, set } from "./dom.js";

const AT_FIRST = 100;

/**
 * `columns` are `{head, text(row)}`, or `{head, make(row), update(element, row)}` for a cell with an element of its own; `numeric`
 * ones are set to the right, `first` names the row, `wide` takes a line of its own on a card.
 */
export class Table {
  constructor(parent, label, columns, keyOf) {
    Object.assign(this, { columns, keyOf, rows: [], all: false });
    const heads = columns.map(({ head, numeric }) => el("th", { role: "columnheader", scope: "col", class: numeric && "numeric" }, head));
    this.body = el("tbody", { role: "rowgroup" });
    this.table = el(
      "table",
      { role: "table", "aria-label": label },
      el("thead", { role: "rowgroup" }, el("tr", { role: "row" }, ...heads)),
      this.body,
    );
    this.more = el("button", { type: "button", class: "more", hidden: true });
    this.more.addEventListener("click", () => {
      this.all = !this.all;
      this.show(this.rows);
    });
    this.none = el("p", { class: "quiet" });
    parent.append(this.table, this.more, this.none);
  }

  /** `none` is said where there are no rows. */
  show(rows, none = "", classOf = () => "") {
    this.rows = rows;
    const shown = this.all ? rows : rows.slice(0, AT_FIRST);
    keep(this.body, shown, this.keyOf, (row) => this.row(row), (line, row) => {
      set(line, { class: classOf(row) || null });
      this.columns.forEach((column, i) => this.cell(line.children[i], column, row));
    });
    this.table.hidden = rows.length === 0;
    this.more.hidden = rows.length <= AT_FIRST;
    say(this.more, this.all ? `Show the first ${AT_FIRST} only` : `Show all ${rows.length}`);
    say(this.none, rows.length ? "" : none);
  }

  row(row) {
    const cells = this.columns.map(({ head, numeric, first, wide, make }) => {
      const names = [numeric && "numeric", first && "first", wide && "wide"].filter(Boolean).join(" ");
      const attributes = { class: names || null, "data-head": head, role: first ? "rowheader" : "cell", scope: first ? "row" : null };
      return el(first ? "th" : "td", attributes, make ? make(row) : null);
    });
    return el("tr", { role: "row" }, ...cells);
  }

  cell(cell, { text, update }, row) {
    if (update) update(cell.firstElementChild, row);
    else say(cell, text(row));
  }
}
