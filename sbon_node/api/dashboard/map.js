// The cost space as a live map: nodes where their coordinates put them, what is on them, and what flows between.

import { el, keep, say, set, svg } from "./dom.js";
import { load, ms, perSecond, plural } from "./format.js";
import { KINDS, STATES } from "./glyphs.js";
import { Gliders } from "./map_gliders.js";
import { linkShape, thickness } from "./map_links.js";
import { framed, freePlace, gridLines, labelled, neighbour, pixels, placesOf, roundLength, standing, takenBy } from "./map_layout.js";

/** One runnable process for each core is half an arc; it never closes. */
const arc = (load) => (100 * load) / (load + 1);

const CROWD = 120;
const REACH_PX = 20;
const LABELLED_LINKS = 14;
const LABELLED_FROM_PX = 520;
const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

export class MapView {
  constructor(model, parent, note) {
    Object.assign(this, { model, parent, note, places: new Map(), frame: null, nodes: [], at: "" });
    this.layers = Object.fromEntries(["grid", "rings", "links", "nodes", "gliders"].map((name) => [name, svg("g", { class: name })]));
    this.drawing = svg("svg", { role: "group", "aria-labelledby": "map-title", "aria-describedby": "map-keys" });
    this.drawing.append(...Object.values(this.layers));
    this.gliders = new Gliders(this.layers.gliders);
    this.empty = el("p", { class: "quiet", hidden: true });
    parent.append(this.drawing, this.empty);
    new ResizeObserver(() => this.draw()).observe(parent);
    this.drawing.addEventListener("keydown", (event) => this.key(event));
    this.drawing.addEventListener("pointermove", (event) => this.look(this.under(event)));
    this.drawing.addEventListener("pointerleave", () => this.look(""));
    this.drawing.addEventListener("click", (event) => this.under(event) && this.choose(this.under(event)));
    model.on(["members", "streams", "flows", "status", "node"], () => this.draw());
  }

  draw() {
    const width = Math.round(this.parent.clientWidth);
    const members = this.model.members.filter((member) => member.state !== "left" && member.coordinate);
    this.empty.hidden = members.length > 0;
    this.drawing.toggleAttribute("hidden", !members.length);
    if (!members.length) {
      say(this.empty, this.model.members.length ? "No node has a coordinate yet." : "Waiting for the members.");
      return;
    }
    const height = Math.round(this.parent.clientHeight);
    if (width < 150 || height < 150) return; // not laid out yet
    const { places, share } = placesOf(members, this.places);
    this.places = places;
    this.frame = framed(places, width, height, this.frame);
    set(this.drawing, { width, height, viewBox: `0 0 ${width} ${height}` });
    const unplaced = this.model.members.filter((member) => member.state !== "left").length - members.length;
    say(this.note, `two axes show ${Math.round(100 * share)} % of the spread${unplaced ? `; ${unplaced} not placed yet` : ""}`);
    this.drawing.classList.toggle("crowd", members.length > CROWD);
    this.grid();
    this.place(members);
    this.links();
    this.gliders.show(this.model.operators(), new Map(this.nodes.map(({ name, x, y }) => [name, [x, y]])));
  }

  grid() {
    const length = roundLength(this.frame.scale);
    const lines = gridLines(this.frame, length);
    keep(this.layers.grid, [...lines.keys(), "scale"], String, (item) => (item === "scale" ? scaleBar() : svg("line")), (element, item) => {
      if (item === "scale") drawScale(element, this.frame, length);
      else set(element, Object.fromEntries(["x1", "y1", "x2", "y2"].map((name, i) => [name, lines[item][i].toFixed(1)])));
    });
  }

  place(members) {
    const parts = this.model.parts();
    const own = this.model.status?.name;
    this.nodes = members.map((member) => {
      const [x, y] = pixels(this.frame, this.places.get(member.name));
      const here = parts.get(member.name) ?? { source: [], operator: [], sink: [] };
      const has = Object.keys(KINDS).filter((kind) => here[kind].length);
      const text = member.state === "alive" ? member.name : `${member.name} (${member.state})`;
      const label = member.name === own ? `${text}, this node` : text;
      const width = Math.max(6.8 * label.length, 26 * has.length);
      return { name: member.name, member, x, y, here, has, label, width, below: has.length ? 14 : 0 };
    });
    const important = ({ name, has }) => (name === this.model.node ? 0 : name === own ? 1 : has.length ? 2 : 3);
    const ranked = [...this.nodes].sort((a, b) => important(a) - important(b));
    const spots = labelled(ranked, this.frame.width, this.frame.height, this.lines());
    this.taken = takenBy(this.nodes, spots);
    if (!this.nodes.some((node) => node.name === this.at)) this.at = ranked[0].name;
    const name = (node) => node.name;
    keep(this.layers.rings, this.nodes, name, () => svg("circle", { class: "ring" }), (ring, node) => this.ring(ring, node));
    keep(this.layers.nodes, this.nodes, name, (node) => this.node(node), (group, node) => this.update(group, node, spots.get(node.name)));
  }

  ring(ring, { member, x, y }) {
    const radius = Math.max(0, member.height_ms ?? 0) * this.frame.scale;
    set(ring, { cx: x.toFixed(1), cy: y.toFixed(1), r: Math.min(radius, 400).toFixed(1) });
  }

  node({ name }) {
    const group = svg(
      "g",
      { class: "node", role: "button" },
      svg("circle", { class: "hit", r: 15 }),
      svg("circle", { class: "gauge", r: 9.5 }),
      svg("circle", { class: "load", r: 9.5, pathLength: 100, transform: "rotate(-90)" }),
      svg("path", { class: "state" }),
      svg("text", { class: "name" }),
      svg("g", { class: "kinds" }),
    );
    group.addEventListener("focus", () => this.look(name));
    group.addEventListener("blur", () => this.look(""));
    return group;
  }

  update(group, node, spot) {
    const { member, x, y } = node;
    const state = STATES[member.state] ?? STATES.dead;
    const chosen = node.name === this.model.node;
    set(group, {
      transform: `translate(${x.toFixed(1)},${y.toFixed(1)})`,
      class: `node ${member.state}${chosen ? " chosen" : ""}${node.name === this.model.preview ? " pointed" : ""}`,
      tabindex: node.name === this.at ? 0 : -1,
      "aria-pressed": String(chosen),
      "aria-label": this.description(node),
      "data-node": node.name,
    });
    const [, , gauge, mark, text, kinds] = group.children;
    set(gauge, { "stroke-dasharray": `${arc(member.load_per_core ?? 0).toFixed(0)} 100` });
    set(mark, { d: state.path });
    const { anchor, dx, dy } = standing(spot ?? { anchor: "middle", dx: 0, dy: 10 }, spot ? node.below : 0);
    say(text, node.label);
    set(text, { x: dx, y: dy, "text-anchor": anchor, class: spot ? "name" : "name crowded" });
    const start = { start: dx + 5, middle: dx - 12 * node.has.length + 7, end: dx - 24 * node.has.length + 5 }[anchor];
    set(kinds, { transform: `translate(${start},${dy + 12})` });
    keep(kinds, node.has, String, (kind) => svg("g", { class: kind }, svg("path", { d: KINDS[kind] }), svg("text", { x: 8, y: 4 })), (item, kind) => {
      set(item, { transform: `translate(${24 * node.has.indexOf(kind)},0)` });
      say(item.lastChild, node.here[kind].length > 1 ? String(node.here[kind].length) : "");
    });
  }

  description({ label, member, here, has }) {
    const rtt = member.rtt_ms === null ? "" : `, ${ms(member.rtt_ms)} away`;
    const busy = member.load_per_core === null ? "" : `, load ${load(member.load_per_core)}`;
    return `${label}, ${member.state}${rtt}${busy}${has.map((kind) => `, ${plural(here[kind].length, kind)}`).join("")}`;
  }

  /** The shown links, each with its shape. */
  traffic() {
    const places = new Map(this.nodes.map((node) => [node.name, [node.x, node.y]]));
    return this.model
      .traffic()
      .filter((link) => places.has(link.source) && places.has(link.target))
      .map((link) => ({ ...link, shape: linkShape(places.get(link.source), places.get(link.target), thickness(link.bytesS)) }))
      .filter((link) => link.shape);
  }

  /** Boxes around the links of the chosen query, which names avoid if they can. */
  lines() {
    return this.traffic().filter(({ chosen }) => chosen !== null).flatMap(({ shape }) => shape.boxes);
  }

  links() {
    const shown = this.traffic()
      .sort((a, b) => (a.chosen === null ? 0 : 1) - (b.chosen === null ? 0 : 1) || b.bytesS - a.bytesS);
    const most = this.frame.width < LABELLED_FROM_PX ? 0 : LABELLED_LINKS;
    const labels = new Map();
    for (const link of shown.filter(({ chosen, bytesS }) => chosen !== null && bytesS > 0).slice(0, most)) {
      const place = freePlace(link.shape.labels, 6.8 * perSecond(link.bytesS).length, this.taken, this.frame.width, this.frame.height);
      if (place) labels.set(link.key, place);
    }
    const make = () => svg("g", {}, svg("title"), svg("path", { class: "reach" }), svg("path", { class: "traffic" }), svg("path", { class: "arrow" }), svg("text"));
    keep(this.layers.links, shown, (link) => link.key, make, (group, link) => {
      const [title, reach, line, arrow, text] = group.children;
      const { path, arrow: head } = link.shape;
      const label = labels.get(link.key);
      set(group, { class: `link${link.chosen !== null ? " chosen" : ""}${link.measured ? "" : " planned"}`, "data-link": `${link.source} ${link.target}` });
      say(title, `${link.source} to ${link.target}: ${perSecond(link.bytesS)}${link.measured ? "" : " as planned"}, ${ms(link.latencyMs)} latency`);
      set(reach, { d: path });
      set(line, { d: path, "stroke-width": thickness(link.bytesS).toFixed(1) });
      set(arrow, { d: head });
      set(text, label ? { x: label[0].toFixed(1), y: (label[1] + 4).toFixed(1), "text-anchor": "middle" } : {});
      say(text, label ? perSecond(link.bytesS) : "");
    });
  }

  /** The node that is nearest to the pointer, and near it: where nodes lie close together, none covers another. */
  under(event) {
    const box = this.drawing.getBoundingClientRect();
    const away = (node) => Math.hypot(node.x - (event.clientX - box.left), node.y - (event.clientY - box.top));
    const nearest = this.nodes.reduce((best, node) => (best && away(best) <= away(node) ? best : node), null);
    return nearest && away(nearest) <= REACH_PX ? nearest.name : "";
  }

  look(name) {
    if (name === this.model.preview) return;
    this.model.preview = name;
    for (const [key, group] of this.layers.nodes.kept) group.classList.toggle("pointed", key === name);
    this.drawing.classList.toggle("points", name !== "");
    this.model.changed("preview");
  }

  choose(name) {
    this.at = name;
    this.model.chooseNode(name);
  }

  key(event) {
    const from = this.nodes.find((node) => node.name === this.at);
    const turn = ARROWS[event.key];
    if (!from || event.altKey || event.ctrlKey || event.metaKey) return;
    let to = null;
    if (turn) to = neighbour(this.nodes, from, ...turn);
    else if (event.key === "PageDown") to = this.nodes[this.nodes.indexOf(from) + 1];
    else if (event.key === "PageUp") to = this.nodes[this.nodes.indexOf(from) - 1];
    else if (event.key === "Home") to = this.nodes.at(0);
    else if (event.key === "End") to = this.nodes.at(-1);
    else if (event.key === "Enter" || event.key === " ") this.choose(from.name);
    else if (event.key === "Escape") this.choose(this.model.status?.name ?? "");
    else return;
    event.preventDefault();
    if (to) this.focus(to.name);
  }

  focus(name) {
    this.at = name;
    for (const [key, group] of this.layers.nodes.kept) set(group, { tabindex: key === name ? 0 : -1 });
    this.layers.nodes.kept.get(name)?.focus();
  }
}

function scaleBar() {
  return svg("g", { class: "scale" }, svg("path"), svg("text", { y: -6 }));
}

function drawScale(group, frame, length) {
  const [bar, text] = group.children;
  set(group, { transform: `translate(14,${frame.height - 12})` });
  set(bar, { d: `M0,-4 V0 H${(length * frame.scale).toFixed(1)} V-4` });
  say(text, `${length} ms`);
  set(text, { x: 4 });
}

/** The legend of the shapes. */
export function legend(parent) {
  const sample = (text, ...shapes) => el("span", {}, svg("svg", { viewBox: "0 0 34 16", width: 34, height: 16, "aria-hidden": "true" }, ...shapes), text);
  const line = (bytesS) => svg("path", { class: "traffic", d: "M2,8 H32", "stroke-width": thickness(bytesS) });
  const shape = (kind) => svg("path", { class: kind, d: KINDS[kind], transform: "translate(17,8)" });
  const circle = (name, r, more = {}) => svg("circle", { class: name, cx: 17, cy: 8, r, ...more });
  parent.append(
    sample("source", shape("source")),
    sample("operator", shape("operator")),
    sample("sink", shape("sink")),
    sample("height", circle("ring", 7.5)),
    sample("load, half at 1 process a core", circle("gauge", 6), circle("load", 6, { pathLength: 100, "stroke-dasharray": "35 100" })),
    sample("1 kB/s", line(1e3)),
    sample("1 MB/s", line(1e6)),
  );
}
