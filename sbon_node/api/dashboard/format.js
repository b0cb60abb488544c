// Numbers, times and names as people read them.

const DECIMAL = ["", "k", "M", "G", "T", "P"];

/** 12, 3.4k, 560M. */
export function count(value) {
  return value === null || value === undefined ? "–" : scaled(value, "");
}

export function bytes(value) {
  return value === null || value === undefined ? "–" : scaled(value, "B");
}

export function perSecond(value) {
  return value === null || value === undefined ? "–" : `${scaled(value, "B")}/s`;
}

export function rows(value) {
  return value === null || value === undefined ? "–" : `${scaled(value, "")} rows/s`;
}

function scaled(value, unit) {
  let step = 0;
  let left = value;
  while (Math.abs(left) >= 999.5 && step < DECIMAL.length - 1) {
    left /= 1000;
    step += 1;
  }
  const text = digits(left);
  return unit ? `${text} ${DECIMAL[step]}${unit}` : `${text}${DECIMAL[step]}`;
}

function digits(value) {
  const size = Math.abs(value);
  if (Number.isInteger(value) || size >= 9.95) return value.toFixed(0);
  return size >= 0.095 ? value.toFixed(1) : value.toPrecision(1);
}

export function ms(value) {
  if (value === null || value === undefined) return "–";
  return `${value >= 10 ? value.toFixed(0) : value.toFixed(1)} ms`;
}

/** Runnable processes for each core. */
export function load(perCore) {
  return perCore === null || perCore === undefined ? "–" : `${digits(perCore)} a core`;
}

/** Rows out for one row in. */
export function share(selectivity) {
  if (selectivity === null || selectivity === undefined) return "–";
  const percent = 100 * selectivity;
  return `${percent >= 9.95 ? percent.toFixed(0) : percent.toPrecision(2).replace(/\.?0+$/, "")} %`;
}

const UNITS = [["d", 86_400_000], ["h", 3_600_000], ["min", 60_000], ["s", 1000]];

/** The length of a time: 340 ms, 12 s, 3 min, 5 h, 2 d. */
export function span(lengthMs) {
  for (const [unit, size] of UNITS) {
    if (lengthMs >= size) return `${lengthMs >= 10 * size ? Math.round(lengthMs / size) : trimmed(lengthMs / size)} ${unit}`;
  }
  return `${Math.round(lengthMs)} ms`;
}

const trimmed = (value) => value.toFixed(1).replace(/\.0$/, "");

/** A moment of event time, UTC: 2013-01-31 12:00:05. */
export function moment(timeMs) {
  const date = new Date(timeMs);
  return Number.isNaN(date.getTime()) ? `${timeMs} ms` : date.toISOString().slice(0, 19).replace("T", " ");
}

/** The clock on the wall here: 12:00:05. */
export function clock(timeMs) {
  return new Date(timeMs).toLocaleTimeString(undefined, { hourCycle: "h23" });
}

/** An operator without its query's name before it. */
export function partName(id, query) {
  const dot = id.indexOf(".", query?.length);
  // The part's name follows the query's name or its uid, which is the name and six random letters or digits.
  if (query && id.startsWith(query) && /^(-[a-z0-9]{6})?$/.test(id.slice(query.length, dot))) return id.slice(dot + 1);
  return id.startsWith("source/") ? id.slice("source/".length).replace(/@\d+/, "") : id;
}

export function plural(number, word, many = `${word}s`) {
  return `${number} ${Number(number) === 1 ? word : many}`;
}

/** One line, cut where it is long. */
export function line(text, most = 160) {
  const flat = text.replace(/\s+/g, " ").trim();
  return flat.length > most ? `${flat.slice(0, most - 1)}…` : flat;
}

/** A move of an operator to another node: `moves to london: copying, 1.2 MB of 4 MB`. */
export function moveText({ target, step, progress: { copied_bytes, total_bytes, frames_behind } }) {
  const far = step === "copying" && total_bytes ? `, ${bytes(copied_bytes)} of ${bytes(total_bytes)}` : step === "following" ? `, ${plural(frames_behind, "frame")} behind` : "";
  return `moves to ${target}: ${step}${far}`;
}
