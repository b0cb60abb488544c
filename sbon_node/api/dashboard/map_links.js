// Links on the map: bent to the right of their direction, so that both directions between two nodes are visible, and as thick as their rate.

const CLEAR = 13;
const STEP = 8;
/** Positions along a link for its label, the best first. */
const ALONG = [0.5, 0.38, 0.62, 0.27, 0.73];

/** Pixels for bytes a second: every tenfold adds as much, from a hundred bytes on. */
export function thickness(bytesS) {
  return 1 + 1.5 * Math.log10(1 + Math.max(0, bytesS) / 100);
}

/**
 * The path of a link between two points, a triangle amid it that points along, `boxes` that cover it, and places for the middle of
 * a label, the best first.
 */
export function linkShape([x1, y1], [x2, y2], width) {
  const length = Math.hypot(x2 - x1, y2 - y1);
  if (length < 2 * CLEAR) return null;
  const [ux, uy] = [(x2 - x1) / length, (y2 - y1) / length];
  const bend = Math.min(0.16 * length, 36);
  const [cx, cy] = [(x1 + x2) / 2 - uy * bend, (y1 + y2) / 2 + ux * bend];
  const [ax, ay] = toward([x1, y1], [cx, cy], CLEAR);
  const [bx, by] = toward([x2, y2], [cx, cy], CLEAR);
  const along = (t) => [0, 1].map((i) => (1 - t) ** 2 * [ax, ay][i] + 2 * t * (1 - t) * [cx, cy][i] + t ** 2 * [bx, by][i]);
  const [mx, my] = [(ax + 2 * cx + bx) / 4, (ay + 2 * cy + by) / 4];
  const size = 4 + width;
  const tip = [mx + ux * size, my + uy * size];
  const foot = [mx - ux * size * 0.6, my - uy * size * 0.6];
  const corners = [tip, [foot[0] - uy * size * 0.75, foot[1] + ux * size * 0.75], [foot[0] + uy * size * 0.75, foot[1] - ux * size * 0.75]];
  return {
    path: `M${at([ax, ay])} Q${at([cx, cy])} ${at([bx, by])}`,
    arrow: `M${corners.map(at).join(" L")} Z`,
    boxes: Array.from({ length: 1 + Math.ceil(length / STEP) }, (_, i) => along(i / Math.ceil(length / STEP))).map(([x, y]) => (
      { left: x - STEP / 2, right: x + STEP / 2, top: y - STEP / 2, bottom: y + STEP / 2 }
    )),
    labels: ALONG.flatMap((t) => {
      const [x, y] = along(t);
      return [1, -1].map((side) => [x - side * uy * (size + 9), y + side * ux * (size + 9)]);
    }),
  };
}

function toward([x, y], [tx, ty], by) {
  const length = Math.hypot(tx - x, ty - y) || 1;
  return [x + ((tx - x) / length) * by, y + ((ty - y) / length) * by];
}

const at = ([x, y]) => `${x.toFixed(1)},${y.toFixed(1)}`;
