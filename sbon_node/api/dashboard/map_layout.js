// Where nodes and their names go on the map: milliseconds to pixels, and labels that do not cover each other.

import { aligned, principalAxes } from "./principal_axes.js";

const LEAST_SPAN_MS = 4;

/** Places in milliseconds, name to [x, y], turned as they were `before`; and the share of the spread that is shown. */
export function placesOf(members, before) {
  const placed = members.filter((member) => member.coordinate?.length);
  if (!placed.length) return { places: new Map(), share: 1 };
  const { points, share } = principalAxes(placed.map((member) => member.coordinate));
  return { places: aligned(new Map(placed.map((member, i) => [member.name, points[i]])), before), share };
}

/** The view of a drawing of `width` x `height` pixels; the old one while it still fits, so that the map rests. */
export function framed(places, width, height, old) {
  const xs = [...places.values()].map(([x]) => x);
  const ys = [...places.values()].map(([, y]) => y);
  const [left, right, low, high] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
  const across = Math.max(right - left, LEAST_SPAN_MS);
  const up = Math.max(high - low, LEAST_SPAN_MS);
  const margin = Math.max(26, Math.min(0.06 * width, 44));
  const scale = Math.min((width - 3 * margin) / across, (height - 2 * margin) / up);
  const best = { width, height, scale, x: (left + right) / 2, y: (low + high) / 2 };
  const fits = old && old.width === width && old.height === height && scale < 1.35 * old.scale;
  const inside = ([x, y]) => x > 12 && x < width - 12 && y > 12 && y < height - 12;
  return fits && [...places.values()].every((place) => inside(pixels(old, place))) ? old : best;
}

export function pixels(frame, [x, y]) {
  return [frame.width / 2 + (x - frame.x) * frame.scale, frame.height / 2 - (y - frame.y) * frame.scale];
}

/** A round length in milliseconds that is some 60 to 150 pixels long. */
export function roundLength(scale) {
  const least = 60 / scale;
  const step = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].map((times) => times * step).find((length) => length >= least);
}

/** Straight lines every `length` milliseconds within the frame: [x1, y1, x2, y2] in pixels. */
export function gridLines(frame, length) {
  const gap = length * frame.scale;
  const lines = [];
  for (let x = (frame.width / 2) % gap; x < frame.width; x += gap) lines.push([x, 0, x, frame.height]);
  for (let y = (frame.height / 2) % gap; y < frame.height; y += gap) lines.push([0, y, frame.width, y]);
  return lines;
}

const SPOTS = [
  { anchor: "start", dx: 14, dy: 4 },
  { anchor: "end", dx: -14, dy: 4 },
  { anchor: "middle", dx: 0, dy: -15 },
  { anchor: "middle", dx: 0, dy: 24 },
];

/**
 * Positions of the names of `nodes` ({name, x, y, width, below}: pixels taken below a name; the most important first): name to a spot, or to null where there is no
 * space, so that no name covers another. Spots that do not cover `lines` (boxes) are taken first.
 */
export function labelled(nodes, width, height, lines = []) {
  const taken = nodes.map(markOf);
  const spots = new Map();
  for (const node of nodes) {
    const free = SPOTS.filter((spot) => {
      const box = boxOf(node, spot);
      const inside = box.left > 2 && box.right < width - 2 && box.top > 2 && box.bottom < height - 2;
      return inside && !taken.some((other) => overlap(box, other));
    });
    const found = free.find((spot) => !lines.some((line) => overlap(boxOf(node, spot), line))) ?? free[0];
    if (found) taken.push(boxOf(node, found));
    spots.set(node.name, found ?? null);
  }
  return spots;
}

const markOf = ({ x, y }) => ({ left: x - 9, right: x + 9, top: y - 9, bottom: y + 9 });

/** The boxes of all nodes' marks, and of the names that `labelled` has placed. */
export function takenBy(nodes, spots) {
  return [...nodes.map(markOf), ...nodes.filter(({ name }) => spots.get(name)).map((node) => boxOf(node, spots.get(node.name)))];
}

/**
 * The first of `places` ([x, y] of the middle) where a text `wide` pixels wide covers nothing of `taken`, to which it is added; null
 * where there is none within the frame.
 */
export function freePlace(places, wide, taken, width, height) {
  for (const [x, y] of places) {
    const box = { left: x - wide / 2 - 2, right: x + wide / 2 + 2, top: y - 9, bottom: y + 7 };
    const inside = box.left > 2 && box.right < width - 2 && box.top > 2 && box.bottom < height - 2;
    if (!inside || taken.some((other) => overlap(box, other))) continue;
    taken.push(box);
    return [x, y];
  }
  return null;
}

function boxOf(node, spot) {
  const { anchor, dx, dy } = standing(spot, node.below);
  const left = node.x + dx - { start: 0, middle: node.width / 2, end: node.width }[anchor];
  return { left, right: left + node.width, top: node.y + dy - 11, bottom: node.y + dy + 4 + node.below };
}

/** A spot for a name that has so much below it. */
export function standing(spot, below) {
  return spot.dy < 0 ? { ...spot, dy: spot.dy - below } : spot;
}

const overlap = (a, b) => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;

/** The node that lies nearest in a direction (`dx`, `dy` in pixels, one of them 0); null where none does. */
export function neighbour(nodes, from, dx, dy) {
  let best = null;
  for (const node of nodes) {
    const [x, y] = [node.x - from.x, node.y - from.y];
    const along = x * dx + y * dy;
    const aside = Math.abs(x * dy) + Math.abs(y * dx);
    if (node === from || along <= 0 || aside > 2 * along) continue;
    const cost = along + 1.5 * aside;
    if (best === null || cost < best.cost) best = { node, cost };
  }
  return best?.node ?? null;
}
