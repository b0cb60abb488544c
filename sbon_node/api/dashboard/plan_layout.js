// Layers of a plan's components, sources first, each above or beside its readers; without any drawing.

export const CARD = { width: 188, height: 112, gapX: 54, gapY: 14 };

/**
 * Components of an Explanation with their position: `{part, layer, row}`. A component is one layer beyond the farthest it reads;
 * sources are right before their first reader, and within a layer components are near those they read.
 */
export function layered(parts) {
  const byId = new Map(parts.map((part) => [part.id, part]));
  const readers = new Map(parts.map((part) => [part.id, []]));
  for (const part of parts) for (const read of part.reads) readers.get(read)?.push(part.id);
  const depth = new Map();
  const deep = (id) => {
    if (!depth.has(id)) {
      depth.set(id, 0);
      const reads = (byId.get(id)?.reads ?? []).filter((read) => byId.has(read));
      depth.set(id, reads.length ? 1 + Math.max(...reads.map(deep)) : 0);
    }
    return depth.get(id);
  };
  parts.forEach((part) => deep(part.id));
  for (const part of parts) {
    const after = readers.get(part.id).map((id) => depth.get(id));
    if (part.kind === "source" && after.length) depth.set(part.id, Math.min(...after) - 1);
  }
  const layers = [];
  for (const part of parts) (layers[depth.get(part.id)] ??= []).push(part);
  const full = layers.filter(Boolean);
  order(full);
  const most = Math.max(...full.map((layer) => layer.length));
  return full.flatMap((layer, i) => layer.map((part, j) => ({ part, layer: i, row: j + (most - layer.length) / 2 })));
}

/** Sweep up and down; move each component to the mean position of its neighbours in the layer before. */
function order(layers) {
  const reads = (part, other) => part.reads.includes(other.id);
  for (let sweep = 0; sweep < 4; sweep++) {
    const down = sweep % 2 === 0;
    const indices = [...layers.keys()].slice(1);
    for (const i of down ? indices : indices.map((at) => layers.length - 1 - at)) {
      const before = layers[down ? i - 1 : i + 1];
      const mean = (part) => {
        const places = [...before.keys()].filter((j) => (down ? reads(part, before[j]) : reads(before[j], part)));
        return places.length ? places.reduce((a, b) => a + b, 0) / places.length : layers[i].indexOf(part);
      };
      const means = new Map(layers[i].map((part) => [part, mean(part)]));
      layers[i].sort((a, b) => means.get(a) - means.get(b));
    }
  }
}

/** The pixels such a plan takes side by side. */
export function sizeOf(placed) {
  const layers = 1 + Math.max(...placed.map(({ layer }) => layer));
  const rows = 1 + Math.max(...placed.map(({ row }) => row));
  return {
    width: layers * CARD.width + (layers - 1) * CARD.gapX,
    height: rows * CARD.height + (rows - 1) * CARD.gapY,
  };
}

/** The upper left corner of a card. */
export function corner({ layer, row }) {
  return [layer * (CARD.width + CARD.gapX), row * (CARD.height + CARD.gapY)];
}

/** Depth of each component below the sink, by the shortest path, for a plan shown as a list. */
export function depths(parts) {
  const byId = new Map(parts.map((part) => [part.id, part]));
  const found = new Map(parts.length ? [[parts[0].id, 0]] : []);
  for (const id of found.keys()) {
    for (const read of byId.get(id)?.reads ?? []) if (!found.has(read) && byId.has(read)) found.set(read, found.get(id) + 1);
  }
  return found;
}
