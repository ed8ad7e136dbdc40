// The two kinds of chart: lines with bands, and dots with intervals.
/** Lines with bands; at the right, published scores. */
const lineChart = (width, chart) => {
  const { label, lines, scores = [], reference = null, xStart = 0, xEnd, yRange, xText, yText, tipTitle, kind } = chart;
  const height = 168, left = 36, bottom = 22, top = 6;
  const own = scores.filter((score) => score.s.style >= 0), rest = scores.filter((score) => score.s.style < 0);
  const right = scores.length ? 12 + 10 * own.length + (rest.length ? 12 : 0) : 8;
  const root = plotRoot(width, height, label);
  const triples = [...lines.flatMap((l) => l.values), ...scores.map((score) => score.triple)];
  const ends = triples.flat().filter((x) => x !== null);
  let [low, high] = yRange ?? [Math.min(...ends), Math.max(...ends)];
  if (!yRange) {
    const room = (high - low || Math.abs(high) || 1) * 0.06;
    low = low >= 0 && low < 0.35 * high ? 0 : low - room;
    high += room;
  }
  const X = (x) => left + ((x - xStart) / (xEnd - xStart || 1)) * (width - left - right);
  const Y = (y) => height - bottom - ((y - low) / (high - low || 1)) * (height - bottom - top);
  for (const y of ticks(low, high, 4.5)) {
    root.append(svg("line", { class: y === 0 ? "axis zero" : "axis", x1: left, x2: width - right, y1: Y(y), y2: Y(y) }));
    root.append(svg("text", { x: left - 5, y: Y(y) + 3.5, "text-anchor": "end" }, yText(y)));
  }
  const across = chart.profile ? ticks(xStart, xEnd, 4) : [xStart, (xStart + xEnd) / 2, xEnd];
  for (const x of across) {
    const anchor = X(x) > width - 14 ? "end" : "middle";
    root.append(svg("text", { x: X(x), y: height - 8, "text-anchor": anchor }, xText(x)));
  }
  const level = (y, x1, x2, name) => svg("line", { class: name, x1, x2, y1: Y(y), y2: Y(y) });
  if (reference !== null) root.append(level(reference, left, width - right, "reference"));
  const place = (x, y) => `${X(x).toFixed(1)},${Y(y).toFixed(1)}`;
  for (const { s, xs, values } of lines) {
    if (values.some((v) => v[1] !== null)) {
      const there = values.map((v, i) => place(xs[i], v[2] ?? v[0]));
      const back = values.map((v, i) => place(xs[i], v[1] ?? v[0])).reverse();
      root.append(svg("polygon", { class: "band", points: there.concat(back).join(" "), fill: colour(s.style) }));
    }
  }
  for (const { s, xs, values } of lines) {
    const points = values.map((v, i) => place(xs[i], v[0])).join(" ");
    root.append(svg("polyline", { class: "line", points, stroke: colour(s.style), "stroke-dasharray": dash(s.style) }));
    const at = xs.length - 1;
    if (!chart.profile) root.append(marker(s.style, X(xs[at]), Y(values[at][0]), 3.2, { fill: colour(s.style) }));
  }
  own.forEach(({ s, triple }, i) => {
    const x = width - right + 10 + 10 * i;
    const bar = { x1: x, x2: x, y1: Y(triple[1]), y2: Y(triple[2]), stroke: colour(s.style) };
    if (triple[1] !== null) root.append(svg("line", { class: "printed", ...bar }));
    root.append(marker(s.style, x, Y(triple[0]), 3.4, hollow(s)));
  });
  for (const { triple } of rest) root.append(level(triple[0], width - 11, width - 2, "tick"));
  const steps = [...new Set(lines.flatMap((l) => l.xs))].sort((a, b) => a - b);
  const points = steps.map((x) => ({
    x, title: tipTitle(x),
    pairs: lines.filter((l) => l.xs.includes(x)).map((l) => {
      const triple = l.values[l.xs.indexOf(x)];
      return { s: l.s, what: l.s.name, value: estimate(triple, kind), y: triple[0] };
    }),
  }));
  if (scores.length) {
    const sorted = [...scores].sort((a, b) => b.triple[0] - a.triple[0]);
    points.push({
      x: null, title: "Published, at the end of the paper’s budget",
      pairs: sorted.map(({ s, triple }) => ({ s, what: s.name, value: estimate(triple, kind, true), y: triple[0] })),
    });
  }
  const nearest = (x) => {
    if (scores.length && x > width - right + 3) return points.length - 1;
    const at = xStart + ((x - left) / (width - left - right)) * (xEnd - xStart);
    let best = 0;
    steps.forEach((step, i) => { if (Math.abs(step - at) < Math.abs(steps[best] - at)) best = i; });
    return steps.length ? best : -1;
  };
  const show = (point, overlay) => {
    const x = point.x === null ? width - right + 10 : X(point.x);
    if (point.x !== null) {
      overlay.append(svg("line", { class: "cross", x1: x, x2: x, y1: top, y2: height - bottom }));
      for (const { s, y } of point.pairs) overlay.append(marker(s.style, x, Y(y), 3.6, { fill: colour(s.style), class: "active" }));
    }
    return [x, Y(point.pairs[0].y)];
  };
  interactive(root, points, nearest, show, Math.max(0, steps.length - 1));
  return root;
};

/** Values with intervals in rows; several to a row below each other. */
const dotChart = (width, { label, rows, kind, reference = null, range = null, labelShare = 0.4, xText = plainTick }) => {
  const gap = 12, pad = 9, top = 4, bottom = 20;
  const left = Math.min(230, Math.max(84, width * labelShare)), right = 14;
  const tall = rows.map((row) => Math.max(22, row.items.length * gap + pad));
  const height = top + bottom + tall.reduce((a, b) => a + b, 0);
  const root = plotRoot(width, height, label);
  const ends = rows.flatMap((row) => row.items.flatMap(({ triple }) => triple.filter((x) => x !== null)));
  let [low, high] = range ?? [Math.min(0, ...ends), Math.max(...ends)];
  if (!range) { const room = (high - low || 1) * 0.04; high += room; if (low < 0) low -= room; }
  const X = (x) => left + ((x - low) / (high - low || 1)) * (width - left - right);
  for (const x of ticks(low, high, width - left > 260 ? 6 : 4.5)) {
    root.append(svg("line", { class: x === 0 ? "axis zero" : "axis", x1: X(x), x2: X(x), y1: top, y2: height - bottom }));
    root.append(svg("text", { x: X(x), y: height - 6, "text-anchor": "middle" }, xText(x)));
  }
  const upright = (x, name) => svg("line", { class: name, x1: X(x), x2: X(x), y1: top, y2: height - bottom });
  if (reference !== null) root.append(upright(reference, "reference"));
  const points = [];
  let y = top;
  rows.forEach((row, k) => {
    const middle = y + tall[k] / 2;
    if (k) root.append(svg("line", { class: "axis", x1: 0, x2: width - right, y1: y, y2: y }));
    const text = svg("text", { class: "row", x: 0, y: middle + 4 }, row.label);
    root.append(text);
    fit(text, row.label, left - 8);
    row.items.forEach(({ s, triple, what }, i) => {
      const at = middle + (i - (row.items.length - 1) / 2) * gap;
      const reach = { x1: X(triple[1]), x2: X(triple[2]), y1: at, y2: at, stroke: colour(s.style) };
      if (triple[1] !== null) root.append(svg("line", { class: "whisker", ...reach }));
      root.append(marker(s.style, X(triple[0]), at, 3.8, s.ours ? { fill: colour(s.style) } : hollow(s)));
      points.push({ x: X(triple[0]), y: at, s, title: row.label, pairs: [{ s, what: what ?? s.name, value: estimate(triple, kind) }] });
    });
    y += tall[k];
  });
  const nearest = (x, y) => {
    let best = -1, least = 40;
    points.forEach((point, i) => {
      const far = Math.abs(point.y - y) * 2 + Math.abs(point.x - x) / 20;
      if (far < least) { least = far; best = i; }
    });
    return best;
  };
  const show = ({ s, x, y }, overlay) => {
    overlay.append(marker(s.style, x, y, 5, { fill: colour(s.style), class: "active" }));
    return [x, y];
  };
  interactive(root, points, nearest, show, 0);
  return root;
};
/** Shorten a label to its room; the tooltip has all of it. About 6 units a letter, as nothing is laid out yet. */
const fit = (node, text, room) => {
  const letters = Math.floor(room / 5.8);
  if (text.length > letters) node.textContent = `…${text.slice(text.length - letters + 1)}`;
};
