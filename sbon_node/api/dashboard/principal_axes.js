// The latency dimensions of the cost space on a plane: their first two principal axes, as in sbon_node/overlay/space/projection.py.

/** `points`, lists of equal length, as [x, y] about their mean; and the share of their variance that these two show. */
export function principalAxes(points) {
  const dimensions = Math.max(...points.map((point) => point.length));
  const placed = points.map((point) => Array.from({ length: dimensions }, (_, i) => point[i] ?? 0));
  const mean = Array.from({ length: dimensions }, (_, i) => sum(placed.map((point) => point[i])) / placed.length);
  const centred = placed.map((point) => point.map((x, i) => x - mean[i]));
  const covariance = mean.map((_, i) => mean.map((__, j) => sum(centred.map((point) => point[i] * point[j]))));
  const { values, axes } = eigen(covariance);
  const order = values.map((_, i) => i).sort((a, b) => values[b] - values[a]);
  const shown = centred.map((point) => [0, 1].map((k) => (k < dimensions ? dot(point, axes[order[k]]) : 0)));
  for (const k of [0, 1]) {
    const farthest = shown.reduce((most, point) => (Math.abs(point[k]) > Math.abs(most) ? point[k] : most), 0);
    if (farthest < 0) for (const point of shown) point[k] = -point[k];
  }
  const total = sum(values);
  return { points: shown, share: total > 0 ? (values[order[0]] + (values[order[1]] ?? 0)) / total : 1 };
}

/** Eigenvalues and eigenvectors of a small symmetric matrix, by Jacobi's rotations. */
function eigen(matrix) {
  const n = matrix.length;
  const a = matrix.map((row) => [...row]);
  const axes = a.map((_, i) => a.map((__, j) => (i === j ? 1 : 0)));
  const scale = Math.max(...a.flat().map(Math.abs));
  for (let sweep = 0; sweep < 50; sweep++) {
    let off = 0;
    for (let p = 0; p < n; p++) {
      for (let q = p + 1; q < n; q++) {
        if (Math.abs(a[p][q]) <= 1e-14 * scale) continue;
        off = Math.max(off, Math.abs(a[p][q]));
        rotate(a, axes, p, q);
      }
    }
    if (off === 0) break;
  }
  return { values: a.map((row, i) => Math.max(0, row[i])), axes };
}

function rotate(a, axes, p, q) {
  const theta = (a[q][q] - a[p][p]) / (2 * a[p][q]);
  const t = (theta < 0 ? -1 : 1) / (Math.abs(theta) + Math.hypot(theta, 1));
  const cosine = 1 / Math.hypot(t, 1);
  const sine = t * cosine;
  for (let k = 0; k < a.length; k++) [a[k][p], a[k][q]] = [cosine * a[k][p] - sine * a[k][q], sine * a[k][p] + cosine * a[k][q]];
  for (let k = 0; k < a.length; k++) [a[p][k], a[q][k]] = [cosine * a[p][k] - sine * a[q][k], sine * a[p][k] + cosine * a[q][k]];
  const [first, second] = [axes[p], axes[q]];
  axes[p] = first.map((x, k) => cosine * x - sine * second[k]);
  axes[q] = first.map((x, k) => sine * x + cosine * second[k]);
}

/**
 * Turns the map `now` (name to [x, y]) so that it lies on `before` as well as a turn, a reflection and a shift can: coordinates
 * drift all the time, and principal axes may swap or flip; the picture should not follow that.
 */
export function aligned(now, before) {
  const common = [...now.keys()].filter((name) => before.has(name));
  if (common.length < 2) return now;
  const from = centre(common.map((name) => now.get(name)));
  const to = centre(common.map((name) => before.get(name)));
  let best = null;
  for (const flip of [1, -1]) {
    let cosine = 0;
    let sine = 0;
    for (const name of common) {
      const [ax, ay] = [now.get(name)[0] - from[0], flip * (now.get(name)[1] - from[1])];
      const [bx, by] = [before.get(name)[0] - to[0], before.get(name)[1] - to[1]];
      cosine += ax * bx + ay * by;
      sine += ax * by - ay * bx;
    }
    const size = Math.hypot(cosine, sine);
    if (best === null || size > best.size * (1 + 1e-9)) best = { flip, cosine, sine, size };
  }
  if (best.size === 0) return now;
  const [c, s] = [best.cosine / best.size, best.sine / best.size];
  const turned = ([x, y]) => {
    const [dx, dy] = [x - from[0], best.flip * (y - from[1])];
    return [to[0] + c * dx - s * dy, to[1] + s * dx + c * dy];
  };
  return new Map([...now].map(([name, point]) => [name, turned(point)]));
}

const sum = (values) => values.reduce((total, value) => total + value, 0);
const dot = (a, b) => sum(a.map((x, i) => x * b[i]));
const centre = (points) => [0, 1].map((k) => sum(points.map((point) => point[k])) / points.length);
