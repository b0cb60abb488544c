// Event-time progress of each component of a plan: its watermark, and its lag behind the sources below it.

import { moment, span } from "./format.js";

const OVER = new Set(["over", "failed"]);
const NOW_MS = 86_400_000;
const BEGINNING_MS = 1; // The greatest watermark of an operator whose engine has none yet: Spark may begin at 1970.

/** The newest watermark among the sources below a component; null if none has one. */
export function reached(part, byId, seen = new Set()) {
  if (seen.has(part.id)) return null;
  seen.add(part.id);
  if (part.kind === "source") return part.watermark_ms;
  const below = part.reads.map((id) => (byId.has(id) ? reached(byId.get(id), byId, seen) : null)).filter((at) => at !== null);
  return below.length ? Math.max(...below) : null;
}

/** `{text, behindMs}` of a source or operator; `behindMs` is null where nothing can be said, 0 where all is through. */
export function lag(part, byId, nowMs) {
  if (part.kind === "sink") return { text: "", behindMs: null };
  if (part.ended && part.watermark_ms === null) return { text: "all rows are through", behindMs: 0 };
  const newest = part.kind === "source" ? null : reached(part, byId);
  if (part.watermark_ms === null || part.watermark_ms === undefined || (part.watermark_ms <= BEGINNING_MS && newest > BEGINNING_MS)) {
    return { text: OVER.has(part.state) ? "" : "no watermark yet", behindMs: null };
  }
  const at = moment(part.watermark_ms);
  if (part.kind === "source") {
    const ago = nowMs - part.watermark_ms;
    const text = Math.abs(ago) < NOW_MS && !part.ended ? `${at.slice(11)}, ${span(Math.max(0, ago))} ago` : at;
    return { text, behindMs: null };
  }
  const behindMs = newest === null ? null : Math.max(0, newest - part.watermark_ms);
  return { text: behindMs ? `${span(behindMs)} behind` : at, behindMs };
}
