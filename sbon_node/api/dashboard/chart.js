// Lines over time, drawn to be read: a few round ticks, a cursor for mouse and keyboard, and words for who cannot see it.

import { keep, say, set, svg } from "./dom.js";
import { bytes, clock } from "./format.js";

const HEIGHT = 190;
const SPARE_MS = 1000;
const EDGE = { left: 52, right: 12, top: 10, bottom: 24 };
/** Room that 12:00:05 and 12:00 take along the axis, in pixels, with some between them. */
const WORD = 68;
const SHORT_WORD = 48;
/** Nearer to the right end a time is moved left, by at most `SHIFT`. */
const NEAR_END = 34;
const SHIFT = 22;
const STEPS_S = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 43_200, 86_400];

export class Chart {
  /**
   * `lines` are names of the points' fields, null where there is nothing to draw; `read(point)` gets the point at the cursor, null
   * for the newest. `tick` puts a value of the axis into few characters, `least` is the least that the axis reaches to.
   */
  constructor(parent, lines, label, read, { height = HEIGHT, tick = bytes, least = 1 } = {}) {
    Object.assign(this, { parent, lines, read, height, tick, least, points: [], cursorAt: null });
    this.axes = svg("g", { class: "axes" });
    this.paths = lines.map((name) => svg("path", { class: `line ${name}` }));
    this.rule = svg("line", { class: "cursor", y1: EDGE.top, y2: height - EDGE.bottom });
    this.dots = lines.map((name) => svg("circle", { class: `dot ${name}`, r: 3.5 }));
    const slider = { role: "slider", tabindex: 0, "aria-label": label, "aria-valuemin": 0, "aria-orientation": "horizontal" };
    this.drawing = svg("svg", { ...slider, class: "chart", height });
    this.drawing.append(this.axes, ...this.paths, this.rule, ...this.dots);
    parent.append(this.drawing);
    new ResizeObserver(() => this.draw()).observe(parent);
    this.drawing.addEventListener("pointermove", (event) => this.point(event));
    this.drawing.addEventListener("pointerleave", () => this.move(null));
    this.drawing.addEventListener("blur", () => this.move(null));
    this.drawing.addEventListener("keydown", (event) => this.key(event));
  }

  show(points) {
    this.points = points;
    this.draw();
  }

  draw() {
    const width = Math.round(this.parent.clientWidth);
    const { points } = this;
    if (!width || points.length < 2) return;
    const [from, to] = [points[0].at, points.at(-1).at];
    const scale = scaleOf(this.lines.map((name) => points.map((point) => point[name]).filter(known)), this.least, this.height < HEIGHT ? 2 : 4);
    this.x = (at) => EDGE.left + ((at - from) / Math.max(SPARE_MS, to - from)) * (width - EDGE.left - EDGE.right);
    this.y = (value) => this.height - EDGE.bottom - scale.share(value) * (this.height - EDGE.top - EDGE.bottom);
    set(this.drawing, { width, viewBox: `0 0 ${width} ${this.height}`, "aria-valuemax": points.length - 1 });
    this.ticks(from, to, scale.ticks, width);
    this.lines.forEach((name, i) => {
      set(this.paths[i], { d: this.path(name) });
    });
    this.mark();
  }

  /** A line with gaps where nothing is known. */
  path(name) {
    let drawing = false;
    const steps = this.points.map((point) => {
      if (!known(point[name])) return (drawing = false) || "";
      const step = `${drawing ? "L" : "M"}${this.x(point.at).toFixed(1)},${this.y(point[name]).toFixed(1)}`;
      drawing = true;
      return step;
    });
    return steps.join(" ").trim() || null;
  }

  ticks(from, to, levels, width) {
    const up = levels.map((value, i) => ({ key: `y${i}`, value }));
    const inner = width - EDGE.left - EDGE.right;
    const spacing = (s) => inner * ((1000 * s) / Math.max(SPARE_MS, to - from));
    const word = (s) => (s < 60 ? WORD : SHORT_WORD);
    const apart = STEPS_S.find((s) => spacing(s) >= word(s)) ?? STEPS_S.at(-1);
    // A time at the right end is moved left, into the drawing: it is left out where it would meet the one before.
    const furthest = spacing(apart) >= word(apart) + SHIFT ? width : width - NEAR_END;
    const along = [];
    const offset = new Date(from).getTimezoneOffset() * 60_000;
    for (let at = Math.ceil((from - offset) / (apart * 1000)) * apart * 1000 + offset; at <= to && this.x(at) <= furthest; at += apart * 1000) along.push({ key: `x${along.length}`, at });
    keep(this.axes, [...up, ...along], (tick) => tick.key, () => svg("g", {}, svg("line"), svg("text")), (group, tick) => {
      const [line, text] = group.children;
      const level = tick.value !== undefined;
      const place = level ? this.y(tick.value) : this.x(tick.at);
      set(line, level ? { x1: EDGE.left, x2: width - EDGE.right, y1: place, y2: place } : { x1: place, x2: place, y1: this.height - EDGE.bottom, y2: this.height - EDGE.bottom + 4 });
      const end = !level && place > width - NEAR_END ? "end" : "middle";
      set(text, level ? { x: EDGE.left - 6, y: place + 4, "text-anchor": "end" } : { x: end === "end" ? width - 2 : place, y: this.height - 6, "text-anchor": end });
      say(text, level ? this.tick(tick.value) : clock(tick.at).slice(0, apart < 60 ? 8 : 5));
    });
  }

  point(event) {
    const left = event.clientX - this.drawing.getBoundingClientRect().left;
    let best = null;
    this.points.forEach((point, i) => {
      const away = Math.abs(this.x(point.at) - left);
      if (best === null || away < best.away) best = { i, away };
    });
    this.move(best?.i ?? null);
  }

  key(event) {
    const last = this.points.length - 1;
    const at = this.index() ?? last;
    const to = { ArrowLeft: at - 1, ArrowDown: at - 1, ArrowRight: at + 1, ArrowUp: at + 1, PageUp: at - 10, PageDown: at + 10, Home: 0, End: last }[event.key];
    if (event.key === "Escape") this.move(null);
    if (to === undefined) return;
    event.preventDefault();
    this.move(Math.max(0, Math.min(last, to)));
  }

  move(index) {
    this.cursorAt = this.points[index]?.at ?? null;
    this.mark();
  }

  /** Where the cursor is; null where there is none. It stays at its moment while points come and go. */
  index() {
    const i = this.cursorAt === null ? -1 : this.points.findIndex((point) => point.at >= this.cursorAt);
    return i < 0 ? null : i;
  }

  mark() {
    const i = this.index();
    const point = i === null ? this.points.at(-1) : this.points[i];
    if (!point || !this.x) return;
    set(this.rule, { x1: this.x(point.at), x2: this.x(point.at), class: i === null ? "cursor off" : "cursor" });
    this.lines.forEach((name, n) => {
      const there = known(point[name]);
      this.dots[n].toggleAttribute("hidden", !there);
      if (there) set(this.dots[n], { cx: this.x(point.at), cy: this.y(point[name]) });
    });
    const words = this.read(i === null ? null : point, point);
    set(this.drawing, { "aria-valuenow": i ?? this.points.length - 1, "aria-valuetext": words });
  }
}

const known = (value) => value !== null && value !== undefined;

const APART = 20;

/**
 * How high values stand, as a share of the height, and the round values that are marked. Where one line mostly lies far below the
 * other, each mark is tenfold the one below: both are to be read.
 */
export function scaleOf(lines, floor = 1, marks = 4) {
  const most = Math.max(floor, ...lines.flat());
  const middles = lines.filter((values) => values.length).map((values) => [...values].sort((a, b) => a - b)[values.length >> 1]);
  const least = Math.min(...middles);
  if (marks < 4 || most <= APART * least || least <= 0) {
    const rough = most / marks;
    const size = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 2.5, 5, 10].map((times) => times * size).find((value) => value >= rough);
    const steps = Math.ceil(most / step);
    return { share: (value) => value / (steps * step), ticks: Array.from({ length: steps + 1 }, (_, i) => i * step) };
  }
  const low = Math.floor(Math.log10(least)) - 1;
  const high = Math.ceil(Math.log10(most));
  const share = (value) => Math.max(0, (Math.log10(Math.max(value, Number.MIN_VALUE)) - low) / (high - low));
  return { share, ticks: Array.from({ length: high - low + 1 }, (_, i) => 10 ** (low + i)) };
}
