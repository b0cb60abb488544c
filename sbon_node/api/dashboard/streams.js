// Streams by their sources: how fast they go, how far they are, and what was refused.

import { badge, showBadge } from "./badge.js";
import { el, say } from "./dom.js";
import { bytes, count, line, moment, perSecond, plural } from "./format.js";
import { Table } from "./table.js";

export class StreamsView {
  constructor(model, parent, note) {
    Object.assign(this, { model, note });
    const none = (row) => !row.info;
    const of = (row, text) => (none(row) ? "" : text(row.info));
    const columns = [
      { head: "Stream", first: true, text: (row) => row.stream },
      { head: "Source", text: (row) => of(row, ({ source }) => `${this.named(source)} at ${source.node}`) },
      { head: "State", make: badge, update: (element, row) => showBadge(element, none(row) ? "no sources" : line(row.info.state)) },
      { head: "Rate", numeric: true, text: (row) => of(row, ({ rows_s }) => (rows_s === null ? "–" : `${count(rows_s)} rows/s`)) },
      { head: "Bytes", numeric: true, text: (row) => of(row, (info) => perSecond(info.bytes_s)) },
      { head: "Rows", numeric: true, text: (row) => of(row, (info) => count(info.rows)) },
      { head: "Late", numeric: true, text: (row) => of(row, (info) => count(info.late)) },
      { head: "Lost", numeric: true, text: (row) => of(row, (info) => count(info.dropped)) },
      { head: "Dead letters", make: () => el("span"), update: (element, row) => letters(element, row.info) },
      { head: "Watermark", numeric: true, text: (row) => of(row, ({ watermark_ms: at }) => (at === null ? "–" : moment(at))) },
    ];
    this.table = new Table(parent, "Streams", columns, (row) => row.key);
    model.on(["streams", "queries"], () => this.draw());
    this.draw();
  }

  named(source) {
    const query = this.model.queryOf(source);
    return query ? `result of ${query.id}` : source.name;
  }

  draw() {
    const rows = this.model.streams.flatMap(({ entry, sources }) => {
      const stream = entry.declaration.name;
      if (!sources.length) return [{ key: stream, stream, info: null }];
      return sources.map((info) => ({ key: `${stream}/${info.source.name}`, stream, info }));
    });
    const runs = ({ info }) => info && !info.trouble && !/^(failed|unreachable)/.test(info.state);
    this.table.show(rows, "No stream is declared.", (row) => (runs(row) ? "" : "gone"));
    const total = rows.reduce((sum, row) => sum + (row.info?.bytes ?? 0), 0);
    say(this.note, rows.length ? `${plural(this.model.streams.length, "stream")}, ${bytes(total)} so far` : "");
  }
}

function letters(element, info) {
  const number = info ? info.bad + info.too_large : 0;
  say(element, number && info.dead_letters ? `${count(number)} in ${info.dead_letters}` : info ? count(number) : "");
  element.className = number ? "letters" : "";
}
