// Small drawings that distinguish states and kinds by shape, not by colour alone.

import { svg } from "./dom.js";

/** Shapes within 10 x 10 pixels about the origin. */
export const KINDS = {
  source: "M-4,-5 L5,0 L-4,5 Z",
  operator: "M-4.5,-4.5 H4.5 V4.5 H-4.5 Z",
  sink: "M-5,-4 H5 M-5,-4 V4.5 H5 V-4",
};

export const STATES = {
  alive: { path: "M-5,0 A5,5 0 1 1 5,0 A5,5 0 1 1 -5,0 Z", word: "alive" },
  suspect: { path: "M0,-6 L6,0 L0,6 L-6,0 Z", word: "suspect" },
  away: { path: "M-3,-5 V5 M3,-5 V5", word: "away" },
  dead: { path: "M-5,-5 L5,5 M5,-5 L-5,5", word: "dead" },
  left: { path: "M-5,0 H5", word: "left" },
};

const TONES = {
  alive: "good", running: "good", finished: "done", ended: "done", idle: "done", stopped: "done",
  suspect: "warn", placing: "warn", starting: "warn", paused: "warn", away: "warn", planned: "done",
  dead: "bad", failed: "bad", unreachable: "bad", lost: "bad", quarantined: "bad", left: "done",
};

/** The class of a state by its first word: good, warn, bad or done. */
export function tone(state) {
  return TONES[state.split(":")[0]] ?? "done";
}

/** A glyph as a picture of its own, for text. */
export function glyph(path, className) {
  return svg("svg", { class: `glyph ${className}`, viewBox: "-6.5 -6.5 13 13", "aria-hidden": "true" }, svg("path", { d: path }));
}
