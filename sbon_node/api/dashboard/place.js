// Details of one node: the node under the pointer on the map, or else the chosen node.

import { badge, showBadge } from "./badge.js";
import { el, keep, say } from "./dom.js";
import { factList, showFacts } from "./facts.js";
import { bytes, load, ms, partName, perSecond } from "./format.js";
import { KINDS, STATES, glyph } from "./glyphs.js";

export class PlaceView {
  constructor(model, parent, title) {
    Object.assign(this, { model, title });
    this.state = badge();
    this.facts = factList();
    this.parts = el("ul", { class: "parts" });
    this.links = el("ul", { class: "links" });
    this.partsTitle = el("h3", {}, "Runs here");
    this.linksTitle = el("h3", {}, "Traffic");
    title.after(this.state);
    parent.append(this.facts, this.partsTitle, this.parts, this.linksTitle, this.links);
    model.on(["members", "streams", "flows", "status", "node", "preview"], () => this.draw());
    this.draw();
  }

  draw() {
    const { model } = this;
    const member = model.member(model.preview) ?? model.member(model.node);
    say(this.title, member ? member.name : "Node");
    this.state.hidden = !member;
    showFacts(this.facts, member ? factsOf(member, model.status) : []);
    if (member) showBadge(this.state, member.state, STATES[member.state]?.path);
    const here = member ? model.parts().get(member.name) : null;
    const parts = here ? Object.entries(here).flatMap(([kind, found]) => found.map((part) => ({ ...part, kind }))) : [];
    keep(this.parts, parts.slice(0, 40), (part) => `${part.kind} ${part.query || part.resultOf} ${part.id}`, (part) => this.part(part), (item, part) => {
      say(item.querySelector(".text"), describe(part));
    });
    const links = member ? model.traffic().filter((link) => link.source === member.name || link.target === member.name) : [];
    keep(this.links, links.slice(0, 40), (link) => link.key, () => el("li"), (item, link) => {
      const from = link.source === member.name;
      const rate = `${perSecond(link.bytesS)}${link.measured ? "" : " as planned"}`;
      say(item, `${from ? `to ${link.target}` : `from ${link.source}`}: ${rate}, ${ms(link.latencyMs)} latency`);
    });
    this.partsTitle.hidden = !parts.length;
    this.linksTitle.hidden = !links.length;
  }

  part(part) {
    const words = el("span", { class: "text" });
    const query = part.query || part.resultOf;
    if (!query) return el("li", {}, glyph(KINDS[part.kind], part.kind), words);
    const button = el("button", { type: "button", class: "link" }, words);
    button.addEventListener("click", () => this.model.chooseQuery(query));
    return el("li", {}, glyph(KINDS[part.kind], part.kind), button);
  }
}

function describe({ kind, id, query, state, resultOf }) {
  const source = resultOf ? `stream ${id.split("/")[0]}, the result of ${resultOf}` : `source ${id}`;
  const name = kind === "sink" ? `sink of ${query}` : query ? `${query}: ${partName(id, query)}` : source;
  return `${name}, ${state}`;
}

function factsOf(member, status) {
  const own = status?.name === member.name;
  const rtt = member.rtt_ms === null ? "not known" : `${ms(member.rtt_ms)}, ${member.measured ? "measured" : "by coordinates"}`;
  return [
    ["Round trip", own ? "this node" : rtt],
    ["Load", load(member.load_per_core)],
    ["Height", ms(member.height_ms)],
    ["Coordinate error", own ? `${Math.round(100 * status.error)} %` : null],
    ["Engine", own ? status.engine : null],
    ["Cores", member.cores ? String(member.cores) : null],
    ["Memory", member.memory_mb ? bytes(member.memory_mb * 1e6) : null],
    ["Version", member.version || "not known"],
    ["Address", `${member.address}, API ${member.api}`, true],
    ["Tags", Object.entries(member.tags).map(([name, value]) => `${name}=${value}`).join(", "), true],
  ];
}
