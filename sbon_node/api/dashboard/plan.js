// The plan of the chosen query as it runs: sources, operators and sink, with what flows and how far each is in event time.

import { badge, showBadge } from "./badge.js";
import { el, keep, say, set, svg } from "./dom.js";
import { count, moveText, ms, partName, perSecond, plural, rows, share, span } from "./format.js";
import { KINDS, glyph } from "./glyphs.js";
import { lag } from "./lag.js";
import { thickness } from "./map_links.js";
import { isOver, rateOf } from "./model.js";
import { PartView } from "./part.js";
import { CARD, corner, depths, layered, sizeOf } from "./plan_layout.js";

export class PlanView {
  constructor(model, parent, detail) {
    Object.assign(this, { model, parent, part: "" });
    this.note = el("p", { class: "quiet" });
    this.edges = svg("svg", { class: "edges", "aria-hidden": "true" });
    this.cards = el("ol", { class: "cards", "aria-label": "Parts of the plan, the sink first" });
    this.graph = el("div", { class: "graph" }, this.edges, this.cards);
    parent.append(this.note, this.graph);
    this.detail = new PartView(detail);
    this.cards.addEventListener("keydown", (event) => this.key(event));
    this.frame = parent.parentElement.parentElement;
    new ResizeObserver(() => this.draw()).observe(this.frame);
    model.on(["flows", "refused"], () => this.draw());
    model.on(["chosen"], () => this.choose(""));
    this.draw();
  }

  draw() {
    const explanation = this.model.explanations.get(this.model.query);
    const refused = this.model.refusals.get("plan");
    say(this.note, refused ?? (explanation ? "" : this.model.query ? "Asking for the plan." : "Choose a query to see its plan."));
    this.note.hidden = this.note.textContent === "";
    this.graph.hidden = !explanation;
    if (!explanation) return this.detail.show(null);
    const placed = layered(explanation.components);
    const size = sizeOf(placed);
    const wide = this.frame.clientWidth >= size.width;
    this.parent.parentElement.style.flexBasis = wide ? `${size.width}px` : "";
    this.graph.className = wide ? "graph" : "graph list";
    set(this.edges, wide ? { width: size.width, height: size.height, viewBox: `0 0 ${size.width} ${size.height}` } : {});
    Object.assign(this.graph.style, wide ? { width: `${size.width}px`, height: `${size.height}px` } : { width: "", height: "" });
    this.byId = new Map(explanation.components.map((part) => [part.id, part]));
    const at = new Map(placed.map((one) => [one.part.id, one]));
    const deep = depths(explanation.components);
    keep(this.cards, explanation.components, (part) => `${explanation.query} ${part.id}`, (part) => this.card(part), (item, part) => {
      const [x, y] = corner(at.get(part.id));
      const place = wide ? { left: `${x}px`, top: `${y}px`, marginLeft: "" } : { left: "", top: "", marginLeft: `${Math.min(deep.get(part.id) ?? 0, 6) * 14}px` };
      Object.assign(item.style, place);
      this.update(item.firstElementChild, part, explanation);
    });
    this.lines(wide ? explanation.links.filter((link) => at.has(link.stream) && at.has(link.target)) : [], at);
    const operators = this.model.infos.get(this.model.query)?.operators ?? [];
    this.detail.show(this.byId.get(this.part) ?? null, explanation, operators.find((one) => one.id === this.part));
  }

  card(part) {
    const line = (name) => el("span", { class: name });
    const head = el("span", { class: "card-head" }, glyph(KINDS[part.kind], part.kind), el("b"));
    const lines = ["at", "flow", "passes", "time", "doing"].map(line);
    const button = el("button", { type: "button", class: `card ${part.kind}`, "data-part": part.id }, head, ...lines, badge());
    button.addEventListener("click", () => this.choose(this.part === part.id ? "" : part.id));
    return el("li", {}, button);
  }

  update(button, part, { query }) {
    const [head, at, flow, passes, time, doing, state] = button.children;
    const [title, where] = named(part, query);
    say(head.children[1], title);
    say(at, where);
    say(flow, flowOf(part));
    say(passes, passesOf(part));
    say(time, lag(part, this.byId, Date.now()).text);
    say(doing, doingOf(part));
    set(doing, { title: part.reason || null, class: part.reason && !part.move ? "doing waits" : "doing" });
    showBadge(state, part.state);
    const normal = ["running", "ended", "over", "finished"].includes(part.state);
    set(button, { "aria-expanded": String(this.part === part.id), class: `card ${part.kind}${normal ? "" : " odd"}` });
  }

  lines(links, at) {
    keep(this.edges, links, (link) => `${link.stream} ${link.target}`, () => svg("g", {}, svg("path"), svg("text")), (group, link) => {
      const [path, text] = group.children;
      const [sx, sy] = corner(at.get(link.stream));
      const [tx, ty] = corner(at.get(link.target));
      const [x1, y1, x2, y2] = [sx + CARD.width, sy + CARD.height / 2, tx, ty + CARD.height / 2];
      const bend = Math.max(24, (x2 - x1) / 2);
      const { bytesS, measured } = rateOf(link, this.byId.get(link.stream));
      const near = link.source_node === link.target_node;
      set(group, { class: `edge${near ? " near" : ""}${measured ? "" : " planned"}` });
      set(path, { d: `M${x1},${y1} C${x1 + bend},${y1} ${x2 - bend},${y2} ${x2},${y2}`, "stroke-width": thickness(near ? 0 : bytesS).toFixed(1) });
      set(text, { x: x1 + 4, y: y1 - 6 });
      say(text, near ? "" : ms(link.latency_ms));
    });
  }

  choose(id) {
    this.part = id;
    this.draw();
  }

  /** Arrows go from card to card in the order of the plan. */
  key(event) {
    const step = { ArrowUp: -1, ArrowLeft: -1, ArrowDown: 1, ArrowRight: 1 }[event.key];
    const buttons = [...this.cards.querySelectorAll("button")];
    const to = step && buttons[buttons.indexOf(document.activeElement) + step];
    if (event.key === "Escape") this.choose("");
    if (!to) return;
    event.preventDefault();
    to.focus();
  }
}

/** A source bears its own name, and that of its stream below. */
function named(part, query) {
  const at = `at ${part.node || "no node"}`;
  if (part.kind !== "source") return [part.kind === "sink" ? "sink" : partName(part.id, query), at];
  const [stream, ...source] = partName(part.id, query).split("/");
  return [source.join("/"), `${stream} ${at}`];
}

function flowOf(part) {
  if (part.kind === "sink") return `${count(part.rows)} rows taken`;
  if (isOver(part)) return `${count(part.rows)} rows, ended`;
  if (part.state === "failed") return `${count(part.rows)} rows, failed`;
  const { measured, estimated } = part;
  const known = measured.rows_s !== null;
  const { rows_s, bytes_s } = known ? measured : estimated;
  return `${rows(rows_s)}, ${perSecond(bytes_s)}${known ? "" : " planned"}`;
}

function passesOf(part) {
  if (part.kind === "source") return part.rows === null ? "" : `${count(part.rows)} rows${part.late ? `, ${count(part.late)} late` : ""}`;
  if (part.kind === "sink") return "";
  const known = part.measured.selectivity !== null;
  if (!known && (isOver(part) || part.state === "failed")) return "";
  return `${share(known ? part.measured.selectivity : part.estimated.selectivity)} of rows pass${known ? "" : ", planned"}`;
}

/** How its move goes on, why it waits, or how large the batch is that it works on. */
function doingOf(part) {
  if (part.move) return moveText(part.move);
  if (part.reason) return part.reason;
  if (part.kind !== "operator" || part.under_way_s === null || part.under_way_s < 1 || isOver(part)) return "";
  return `batch of ${plural(count(part.under_way_rows), "row")}, ${span(1000 * part.under_way_s)}`;
}
