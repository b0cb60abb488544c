// Use of the machine by the page's own node: processor and memory of its process and of its engine.

import { el, say } from "./dom.js";
import { bytes } from "./format.js";
import { SmallChart } from "./small_chart.js";

const SHOWN_MS = 30 * 60_000;
const NONE = "The first figures take some seconds.";

export class MachineView {
  constructor(model, parent, title) {
    Object.assign(this, { model, title });
    const charts = el("div", { class: "charts" });
    parent.append(charts);
    const lines = { own: "node", engine: "engine" };
    this.cores = new SmallChart(charts, "Processor", lines, cores, { tick: (value) => String(value), least: 0.1 });
    this.memory = new SmallChart(charts, "Memory", lines, bytes, { least: 1e6 });
    model.on(["usage", "status"], () => this.draw());
    this.draw();
  }

  draw() {
    const { usage, status } = this.model;
    say(this.title, status ? `Machine of ${status.name}` : "Machine");
    const recent = usage.filter((point) => point.at_ms >= usage.at(-1).at_ms - SHOWN_MS);
    this.cores.show(recent.map((point) => ({ at: point.at_ms, own: point.cores, engine: point.engine_cores })), NONE);
    this.memory.show(recent.map((point) => ({ at: point.at_ms, own: point.memory_bytes, engine: point.engine_memory_bytes })), NONE);
  }
}

const cores = (value) => `${value >= 9.95 ? value.toFixed(0) : value.toFixed(value >= 0.095 || value === 0 ? 1 : 2)} cores`;
