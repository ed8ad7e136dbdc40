"use strict";
// The page of a report. Everything it shows is in the JSON beside it; text enters the page as text, never as markup.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const $ = (id) => document.getElementById(id);
  const DASHES = ["", "7 3", "2 2", "8 3 2 3", "12 4", "4 2 1 2", "1 3", "6 2 2 2 2 2", "3 5"];
  const SVG = "http://www.w3.org/2000/svg";
  const series = new Map(data.series.map((s) => [s.key, s]));
  const presetByName = new Map(data.series.filter((s) => s.ours).map((s) => [s.name, s]));
  const suiteTitle = new Map(data.suites.map((s) => [s.name, s.title]));
  const VERDICTS = ["above", "inside", "below"];
  const MARK = { above: "▲ ", inside: "● ", below: "▼ " };

  // ---- elements ---------------------------------------------------------------------------------------------------
  const el = (tag, attributes = {}, ...children) => {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) if (value !== undefined) node.setAttribute(name, value);
    node.append(...children.filter((child) => child !== null && child !== undefined));
    return node;
  };
  const svg = (tag, attributes = {}, ...children) => {
    const node = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    node.append(...children);
    return node;
  };
  const FILTERED = "Nothing is left of this by the filters.";
  const empty = (text) => el("p", { class: "empty" }, text);
  const card = (title, chart) => el("figure", { class: "card" }, el("figcaption", {}, title), chart);
  const colour = (style) => (style < 0 ? "var(--none)" : `var(--s${style % 9})`);
  const dash = (style) => (style < 0 ? "" : DASHES[style % DASHES.length]);

  /** The marker of a style around a point; the same shapes as in the PNG files. */
  const marker = (style, x, y, size = 4, attributes = {}) => {
    const r = size;
    const polygon = (...points) => svg("polygon", { points: points.map(([a, b]) => `${x + a * r},${y + b * r}`).join(" "), ...attributes });
    switch (style < 0 ? 0 : style % 9) {
      case 1: return polygon([-0.9, -0.9], [0.9, -0.9], [0.9, 0.9], [-0.9, 0.9]);
      case 2: return polygon([0, -1.15], [1.05, 0.85], [-1.05, 0.85]);
      case 3: return polygon([0, -1.25], [1.25, 0], [0, 1.25], [-1.25, 0]);
      case 4: return polygon([0, 1.15], [1.05, -0.85], [-1.05, -0.85]);
      case 5: return polygon(
        [-0.4, -1.1], [0.4, -1.1], [0.4, -0.4], [1.1, -0.4], [1.1, 0.4], [0.4, 0.4],
        [0.4, 1.1], [-0.4, 1.1], [-0.4, 0.4], [-1.1, 0.4], [-1.1, -0.4], [-0.4, -0.4],
      );
      case 6: return polygon(
        [-1.1, -0.6], [-0.6, -1.1], [0, -0.5], [0.6, -1.1], [1.1, -0.6], [0.5, 0],
        [1.1, 0.6], [0.6, 1.1], [0, 0.5], [-0.6, 1.1], [-1.1, 0.6], [-0.5, 0],
      );
      case 7: return polygon([-1.15, 0], [0.85, -1.05], [0.85, 1.05]);
      case 8: return polygon([1.15, 0], [-0.85, -1.05], [-0.85, 1.05]);
      default: return svg("circle", { cx: x, cy: y, r, ...attributes });
    }
  };
  const hollow = (s) => ({ fill: "var(--raised)", stroke: colour(s.style), class: "mark" });
  const swatch = (s, line = true) => {
    const node = svg("svg", { width: 26, height: 12, "aria-hidden": "true" });
    if (s.ours) {
      const look = { stroke: colour(s.style), "stroke-width": 2, "stroke-dasharray": dash(s.style) };
      if (line) node.append(svg("line", { x1: 0, x2: 26, y1: 6, y2: 6, ...look }));
      node.append(marker(s.style, 13, 6, 3.6, { fill: colour(s.style) }));
    } else if (s.style >= 0) {
      node.append(svg("line", { x1: 3, x2: 23, y1: 6, y2: 6, stroke: colour(s.style), class: "printed" }));
      node.append(marker(s.style, 13, 6, 3.6, hollow(s)));
    } else node.append(svg("line", { x1: 9, x2: 17, y1: 6, y2: 6, class: "tick" }));
    return node;
  };

  // ---- numbers ----------------------------------------------------------------------------------------------------
  /** As `number` in tables.py. */
  const number = (value, kind) => {
    let text;
    if (kind === "count") text = Math.round(value).toLocaleString("en-US");
    else if (kind === "unit") text = value.toFixed(3);
    else {
      const size = Math.abs(value);
      text = value.toFixed(size >= 100 ? 0 : size >= 10 ? 1 : 2);
      if (kind === "signed" && value >= 0) text = "+" + text;
    }
    return text.replace("-", "−");
  };
  const printed = (value) => String(value).replace("-", "−");
  const interval = (triple, show) => (triple[1] === null ? "" : `[${show(triple[1])}, ${show(triple[2])}]`);
  const estimate = (triple, kind, exact = false) => {
    const show = exact ? printed : (x) => number(x, kind);
    return `${show(triple[0])} ${interval(triple, show)}`.trim();
  };
  const shortSteps = (x) => {
    if (Math.abs(x) >= 1e6) return `${+(x / 1e6).toPrecision(3)}M`;
    return Math.abs(x) >= 1e3 ? `${+(x / 1e3).toPrecision(3)}k` : `${+x.toPrecision(3)}`;
  };
  const plainTick = (x) => String(+x.toPrecision(6)).replace("-", "−");
  const ticks = (low, high, count) => {
    const raw = (high - low) / count, power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((s) => s >= raw * 0.999);
    const found = [];
    for (let x = Math.ceil(low / step - 1e-9) * step; x <= high + step * 1e-6; x += step) found.push(+x.toPrecision(10));
    return found;
  };

  // ---- state, shared by link --------------------------------------------------------------------------------------
  const state = { suites: new Set(), hide: new Set(), q: "", all: false, sort: new Map(), at: "" };
  const clear = () => {
    state.suites = new Set(data.suites.map((s) => s.name));
    state.hide = new Set();
    state.q = "";
    state.all = false;
    state.sort = new Map();
  };
  const readHash = () => {
    clear();
    const hash = location.hash.slice(1);
    if (/^[\w-]+$/.test(hash)) { state.at = hash; return; }
    const given = new URLSearchParams(hash);
    if (given.has("suites")) state.suites = new Set(given.get("suites").split(",").filter((name) => suiteTitle.has(name)));
    for (const key of given.getAll("hide")) if (series.has(key)) state.hide.add(key);
    state.q = given.get("q") ?? "";
    state.all = given.get("all") === "1";
    for (const one of given.getAll("sort")) {
      const found = /^([\w-]+)\.(\d+)\.(up|down)$/.exec(one);
      if (found && Object.hasOwn(data.tables, found[1])) state.sort.set(found[1], { column: +found[2], up: found[3] === "up" });
    }
    state.at = given.get("at") ?? "";
  };
  const writeHash = () => {
    const given = new URLSearchParams();
    if (state.suites.size < data.suites.length) given.set("suites", [...state.suites].join(","));
    for (const key of state.hide) given.append("hide", key);
    if (state.q) given.set("q", state.q);
    if (state.all) given.set("all", "1");
    for (const [name, { column, up }] of state.sort) given.append("sort", `${name}.${column}.${up ? "up" : "down"}`);
    if (state.at) given.set("at", state.at);
    const text = given.toString();
    history.replaceState(null, "", text ? `#${text}` : location.pathname + location.search);
  };
  const matches = (task) => task.toLowerCase().includes(state.q.trim().toLowerCase());
  const visible = (row) =>
    (!row.suite || state.suites.has(row.suite)) && (!row.series || !state.hide.has(row.series)) &&
    (!row.task || matches(row.task)) && (row.has_runs || state.all);
  const shownPresets = () => data.series.filter((s) => s.ours && !state.hide.has(s.key));
  const shownSuites = () => data.suites.filter((s) => state.suites.has(s.name));

  // ---- tooltip ----------------------------------------------------------------------------------------------------
  const tip = $("tip");
  const showTip = (title, pairs, x, y) => {
    tip.replaceChildren(el("b", {}, title));
    for (const { s, what, value } of pairs)
      tip.append(el("div", { class: "pair" }, s ? swatch(s) : null, el("span", { class: "what" }, what), el("span", {}, value)));
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    const left = x + 14 + box.width > innerWidth - 8 ? x - 14 - box.width : x + 14;
    const top = y + 14 + box.height > innerHeight - 8 ? y - 14 - box.height : y + 14;
    tip.style.left = `${Math.max(8, Math.min(left, innerWidth - box.width - 8))}px`;
    tip.style.top = `${Math.max(8, top)}px`;
  };
  let shownAgain = null;  // what a focused verdict shows; focus scrolls it into view, and scrolling hides other tips
  const hideTip = () => { tip.hidden = true; shownAgain = null; };

  // ---- charts: drawn when they come into view, again when what they show changes ------------------------------------
  const charts = new Map();
  const drawNow = (node) => {
    const chart = charts.get(node);
    if (chart && chart.stale && node.clientWidth) {
      chart.stale = false;
      node.replaceChildren(chart.draw(node.clientWidth));
      node.style.minHeight = "0";  // it was the room kept until now
    }
  };
  const observer = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      const chart = charts.get(entry.target);
      if (chart) chart.near = entry.isIntersecting;
      if (entry.isIntersecting) drawNow(entry.target);
    }
  }, { rootMargin: "300px" });
  const chartNode = (draw, height) => {
    const node = el("div", { class: "chart" });
    if (height) node.style.minHeight = `${height}px`;
    charts.set(node, { draw, stale: true, near: false });
    observer.observe(node);
    return node;
  };
  const forget = (container) => {
    for (const node of container.querySelectorAll(".chart")) { observer.unobserve(node); charts.delete(node); }
    container.replaceChildren();
  };
  const drawAll = () => { for (const node of charts.keys()) drawNow(node); };
  const redraw = () => {
    for (const [node, chart] of charts) { chart.stale = true; if (chart.near) drawNow(node); }
  };

  /** Pointer and keyboard over a chart: `points` are where values are; `show` marks one and fills the tooltip. */
  const interactive = (root, points, nearest, show, first) => {
    let active = -1;
    const overlay = svg("g", { "pointer-events": "none" });
    root.append(overlay);
    const go = (index, event) => {
      if (index < 0 || !points.length) return;
      active = index;
      overlay.replaceChildren();
      const box = root.getBoundingClientRect();
      const [x, y] = show(points[index], overlay);
      showTip(points[index].title, points[index].pairs, event ? event.clientX : box.left + x, event ? event.clientY : box.top + y);
    };
    const leave = () => { active = -1; overlay.replaceChildren(); hideTip(); };
    const move = (event) => {
      const box = root.getBoundingClientRect();
      const index = nearest(event.clientX - box.left, event.clientY - box.top);
      if (index < 0) leave(); else go(index, event);
    };
    root.addEventListener("pointermove", move);
    root.addEventListener("pointerdown", move);
    root.addEventListener("pointerleave", leave);
    root.addEventListener("focus", () => { if (root.matches(":focus-visible")) go(first); });
    root.addEventListener("blur", leave);
    root.addEventListener("keydown", (event) => {
      const steps = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
      if (event.key in steps) go(Math.max(0, Math.min(points.length - 1, (active < 0 ? first : active) + steps[event.key])));
      else if (event.key === "Home") go(0);
      else if (event.key === "End") go(points.length - 1);
      else if (event.key === "Escape") { leave(); return; }
      else return;
      event.preventDefault();
    });
  };

  const plotRoot = (width, height, label) => {
    const root = svg("svg", { class: "plot", viewBox: `0 0 ${width} ${height}`, height, tabindex: 0, role: "img", "aria-label": label });
    root.style.maxWidth = `${width}px`;
    return root;
  };

  /** Lines with bands; at the right, what is in print. */
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
        x: null, title: "In print, at the end of the paper’s budget",
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
  const dotChart = (width, { label, rows, kind, reference = null, range = null, labelShare = 0.4 }) => {
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
      root.append(svg("text", { x: X(x), y: height - 6, "text-anchor": "middle" }, plainTick(x)));
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

  // ---- tables -----------------------------------------------------------------------------------------------------
  const rank = (cell) => {
    if (cell === null) return null;
    if (typeof cell !== "object") return cell;
    if ("verdict" in cell) { const at = VERDICTS.indexOf(cell.verdict); return at < 0 ? VERDICTS.length : at; }
    return cell.value[0];
  };
  const compareCells = (a, b, up) => {
    const [x, y] = [rank(a), rank(b)];
    if (x === null || y === null) return (x === null) - (y === null);
    const order = typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y), "en", { numeric: true });
    return up ? order : -order;
  };
  const pill = (said) => {
    const name = `verdict ${VERDICTS.includes(said.verdict) ? said.verdict : ""}`;
    const text = `${MARK[said.verdict] ?? ""}${said.verdict}`;
    const node = el("button", { class: name, type: "button", "aria-label": `${said.verdict}: ${said.why}` }, text);
    const show = () => {
      const box = node.getBoundingClientRect();
      showTip(said.verdict, [{ what: said.why, value: "" }], box.right, box.bottom - 10);
    };
    for (const what of ["focus", "click"]) node.addEventListener(what, () => { show(); shownAgain = show; });
    node.addEventListener("pointerenter", show);
    for (const what of ["blur", "pointerleave"]) node.addEventListener(what, hideTip);
    node.addEventListener("keydown", (event) => { if (event.key === "Escape") hideTip(); });
    return el("span", { class: "said" }, node, el("span", { class: "why" }, ` ${said.why}`));
  };
  const cellNode = (column, cell, { first, kind, edge, foot }) => {
    const text = column.kind === "text" || column.kind === "verdict";
    const node = el(first ? "th" : "td", first ? { scope: "row" } : {});
    if (text) node.classList.add("left");
    if (edge) node.classList.add("edge");
    if (cell === null) { if (!first && !foot) node.append(el("span", { class: "none", "aria-label": "none" }, "–")); }
    else if (typeof cell === "object" && "verdict" in cell) node.append(pill(cell));
    else if (typeof cell === "object") {
      const show = cell.printed && kind === "score" ? printed : (x) => number(x, kind);
      node.append(show(cell.value[0]));
      const range = interval(cell.value, show);
      if (range) node.append(el("span", { class: "interval" }, range));
    } else {
      if (typeof cell === "number") node.append(number(cell, kind));
      else node.append(...(first ? breakable(cell) : [cell]));
      if (typeof cell === "string" && cell.length > 60 && !first) node.classList.add("prose");
    }
    return node;
  };
  /** A name that may be broken after / - _ and nowhere else. */
  const breakable = (text) => text.split(/(?<=[/_-])/).flatMap((part, i) => (i ? [el("wbr"), part] : [part]));
  const edgeAt = (columns, i) => i > 0 && columns[i].group !== columns[i - 1].group;
  const tableNode = (name, { tall = false, titled = false } = {}) => {
    const table = data.tables[name];
    if (!table.rows.length) return empty(table.missing);
    let rows = table.rows.filter(visible);
    if (!rows.length) return empty(FILTERED);
    const kept = table.columns.map((_, i) => i).filter((i) => !table.columns[i].series || !state.hide.has(table.columns[i].series));
    const columns = kept.map((i) => table.columns[i]);
    const sorted = state.sort.get(name);
    if (sorted && sorted.column < table.columns.length) {
      rows = [...rows].sort((a, b) => compareCells(a.cells[sorted.column], b.cells[sorted.column], sorted.up));
    }
    const verdicts = columns.filter((c) => c.kind === "verdict").length;
    const head = el("thead");
    if (columns.some((c) => c.group)) {
      const groups = el("tr", { class: "groups" });
      for (let i = 0; i < columns.length; ) {
        let width = 1;
        while (i + width < columns.length && columns[i + width].group === columns[i].group) width += 1;
        const title = { ours: "this report", paper: "in print" }[columns[i].group] ?? "";
        const cell = el(title ? "th" : "td", title ? { colspan: width, scope: "colgroup" } : { colspan: width }, title);
        if (edgeAt(columns, i)) cell.classList.add("edge");
        groups.append(cell);
        i += width;
      }
      head.append(groups);
    }
    const names = el("tr");
    kept.forEach((at, i) => {
      const column = columns[i];
      const how = sorted && sorted.column === at ? (sorted.up ? "ascending" : "descending") : "none";
      const text = column.kind === "verdict" && verdicts === 1 ? "verdict" : column.label;
      const button = el("button", { type: "button", class: "sort", "data-table": name, "data-column": at }, text);
      const cell = el("th", { scope: "col", "aria-sort": how }, button);
      if (column.kind === "text" || column.kind === "verdict") cell.classList.add("left");
      if (edgeAt(columns, i)) cell.classList.add("edge");
      names.append(cell);
    });
    head.append(names);
    const line = (row, foot) => {
      const node = el("tr");
      kept.forEach((at, i) => {
        const how = { first: i === 0, kind: foot ? "unit" : columns[i].kind, edge: edgeAt(columns, i), foot };
        node.append(cellNode(columns[i], row.cells[at], how));
      });
      return node;
    };
    const body = el("tbody");
    for (const row of rows) body.append(line(row, false));
    const node = el("table", { id: `table-${name}`, "aria-label": table.title }, head, body);
    if (table.footer.length) {
      const foot = el("tfoot");
      for (const row of table.footer) foot.append(line(row, true));
      node.append(foot);
    }
    const kind = `wrap${tall ? " tall" : ""}${columns.length > 6 ? " wide" : ""}`;
    const wrap = el("div", { class: kind, tabindex: 0, role: "region", "aria-label": table.title }, node);
    const all = document.createDocumentFragment();
    if (titled) all.append(el("h3", {}, table.title));
    all.append(wrap);
    if (table.notes.length) all.append(el("ul", { class: "notes" }, ...table.notes.map((note) => el("li", {}, note))));
    return all;
  };
  document.addEventListener("click", (event) => {
    const button = event.target instanceof Element ? event.target.closest(".sort") : null;
    if (!button) return;
    const { table, column } = button.dataset;
    const before = state.sort.get(table);
    // A third press takes the order of print again.
    const firstUp = data.tables[table].columns[+column].kind === "text";
    if (!before || before.column !== +column) state.sort.set(table, { column: +column, up: firstUp });
    else if (before.up === firstUp) state.sort.set(table, { column: +column, up: !firstUp });
    else state.sort.delete(table);
    writeHash();
    const box = button.closest(".wrap");
    const places = [box.scrollLeft, box.scrollTop];
    renderTables();
    const again = document.querySelector(`.sort[data-table="${table}"][data-column="${column}"]`);
    if (again) {
      again.focus({ preventScroll: true });
      [again.closest(".wrap").scrollLeft, again.closest(".wrap").scrollTop] = places;
    }
  });

  // ---- sections ---------------------------------------------------------------------------------------------------
  const columnAt = (table, label) => data.tables[table].columns.findIndex((column) => column.label === label);
  const finals = new Map(data.tables.finals.rows.map((row) => [JSON.stringify([row.task, row.series]), row.cells]));
  const finalCell = (task, key, label) => finals.get(JSON.stringify([task, key]))?.[columnAt("finals", label)] ?? null;
  const curvesOf = new Map();
  for (const curve of data.curves) curvesOf.set(curve.task, [...(curvesOf.get(curve.task) ?? []), curve]);

  const legend = (node, items, line = true) => {
    node.replaceChildren(...items.map((s) => el("span", {}, swatch(s, line), s.ours ? s.name : `${s.name} in print`)));
  };
  const shortName = (task) => task.slice(task.indexOf("/") + 1);
  const renderCurves = () => {
    const groups = $("curve-groups");
    forget(groups);
    const presets = shownPresets();
    const theirs = data.series.filter((s) => !s.ours && !state.hide.has(s.key));
    legend($("curve-legend"), [...presets, ...theirs.filter((s) => s.style >= 0)]);
    if (theirs.some((s) => s.style < 0)) $("curve-legend").append(el("span", {}, swatch({ ours: false, style: -1 }), "others in print"));
    for (const suite of shownSuites()) {
      const cards = el("div", { class: "cards" });
      for (const task of data.tasks) {
        if (task.suite !== suite.name || !matches(task.name)) continue;
        const lines = (curvesOf.get(task.name) ?? [])
          .map((c) => ({ s: presetByName.get(c.preset), xs: c.steps, values: c.values, seeds: c.seeds }))
          .filter((l) => !state.hide.has(l.s.key));
        if (!lines.length) continue;
        const scores = theirs.filter((s) => Object.hasOwn(task.published, s.name)).map((s) => ({ s, triple: task.published[s.name] }));
        const reference = scores.find(({ s }) => s.counterpart === data.base)?.triple[0] ?? null;
        const end = Math.max(...lines.map((l) => l.xs[l.xs.length - 1])) || 1;
        const said = finalCell(task.name, `ours ${data.base}`, "verdict");
        const ended = lines.map(({ s, xs, values, seeds }) =>
          `${s.name}, ${seeds} seeds: ${estimate(values.at(-1), "score")} at ${number(xs.at(-1), "count")} steps`);
        const label = `${task.name}. ${ended.join("; ")}`;
        const counts = new Set(lines.map((l) => l.seeds));
        const seeds = counts.size > 1 ? "mean over seeds" : `${lines[0].seeds} seed${lines[0].seeds > 1 ? "s" : ""}`;
        const tags = said && !state.hide.has(`ours ${data.base}`) ? el("span", { class: "tags" }, pill(said)) : null;
        const name = el("span", { class: "name", title: task.name }, ...breakable(shortName(task.name)));
        cards.append(el("figure", { class: "card", "data-task": task.name }, el("figcaption", {}, name, tags),
          chartNode((width) => lineChart(width, {
            label, lines, scores, reference, xEnd: end, xText: shortSteps, yText: shortSteps, kind: "score",
            tipTitle: (x) => `${number(x, "count")} steps, ${seeds}`,
          }))));
      }
      if (cards.children.length) groups.append(el("h3", {}, suite.title), cards);
    }
    if (!groups.children.length) groups.append(empty(FILTERED));
  };

  const renderAggregates = () => {
    const box = $("aggregate-charts");
    forget(box);
    const table = data.tables.aggregates;
    const rows = table.rows.filter(visible);
    if (!rows.length) return;
    ["Mean", "Median", "IQM"].forEach((statistic) => {
      const at = columnAt("aggregates", statistic);
      const items = shownSuites().map((suite) => ({
        label: suite.title,
        items: rows.filter((row) => row.suite === suite.name && row.cells[at] !== null).map(({ cells, series: key }) => (
          { s: series.get(key), triple: cells[at].value, what: `${cells[1]}, ${cells[2]}, ${cells[3]} tasks` })),
      })).filter((row) => row.items.length);
      const chart = { label: `${statistic} of normalised scores`, rows: items, kind: "unit", labelShare: 0.42 };
      if (items.length) box.append(card(statistic, chartNode((width) => dotChart(width, chart))));
    });
  };

  const renderProfiles = () => {
    const box = $("profile-charts");
    forget(box);
    const presets = shownPresets();
    legend($("profile-legend"), presets.filter((s) => data.profiles.some((p) => p.preset === s.name)));
    for (const suite of shownSuites()) {
      const lines = data.profiles.filter((p) => p.suite === suite.name)
        .map((p) => ({ s: presetByName.get(p.preset), xs: p.thresholds, values: p.shares }))
        .filter((l) => !state.hide.has(l.s.key));
      if (!lines.length) continue;
      const xs = lines[0].xs;
      box.append(card(suite.title, chartNode((width) => lineChart(width, {
        label: `${suite.title}: share of runs above a normalised score`, lines, xStart: xs[0], xEnd: xs.at(-1),
        yRange: [0, 1], xText: plainTick, yText: (y) => `${Math.round(100 * y)}%`, kind: "unit", profile: true,
        tipTitle: (x) => `share of runs above ${x.toFixed(2)}`,
      }))));
    }
    if (!box.children.length) box.append(empty(data.profiles.length ? FILTERED : data.tables.aggregates.missing));
  };

  const renderImprovement = () => {
    const box = $("improvement-chart");
    forget(box);
    const rows = data.tables.improvement.rows.filter(visible);
    const at = columnAt("improvement", "probability of improvement");
    const items = shownSuites().map((suite) => ({
      label: suite.title,
      items: rows.filter((row) => row.suite === suite.name)
        .map((row) => ({ s: series.get(row.series), triple: row.cells[at].value })),
    })).filter((row) => row.items.length);
    const chart = {
      label: `probability of improvement over ${data.base}`, rows: items, kind: "unit",
      reference: 0.5, range: [0, 1], labelShare: 0.36,
    };
    if (items.length) box.append(chartNode((width) => dotChart(Math.min(width, 640), chart)));
  };

  const renderAblations = () => {
    const box = $("ablation-charts");
    forget(box);
    const presets = shownPresets();
    $("ablation-legend").replaceChildren();
    if (presetByName.size < 2) return;
    legend($("ablation-legend"), presets, false);
    for (const suite of shownSuites()) {
      const rows = data.tasks.filter((t) => t.suite === suite.name && matches(t.name)).map((t) => ({
        label: shortName(t.name),
        items: presets.map((s) => ({ s, cell: finalCell(t.name, s.key, "normalised") }))
          .filter(({ cell }) => cell).map(({ s, cell }) => ({ s, triple: cell.value })),
      })).filter((row) => row.items.length);
      const chart = { label: `${suite.title}: normalised last scores`, rows, kind: "unit", labelShare: 0.42 };
      const height = rows.reduce((sum, row) => sum + Math.max(22, row.items.length * 12 + 9), 24);
      if (rows.length) box.append(card(suite.title, chartNode((width) => dotChart(width, chart), height)));
    }
  };

  const timeShares = (row, table) => {
    const parts = table.columns.map((c, i) => [c.label, row.cells[i]]).filter(([label, value]) => label.endsWith(", ms") && value);
    const total = parts.reduce((sum, [, value]) => sum + value, 0);
    if (!total) return null;
    return parts.map(([label, value]) => `${label.slice(0, -4)} ${Math.round((100 * value) / total)}%`).join(", ");
  };
  const renderSpeed = () => {
    $("speed-table").replaceChildren(tableNode("speed"));
    const table = data.tables.speed;
    const said = table.rows.filter(visible).map((row) => [row.cells[0], timeShares(row, table)]).filter(([, text]) => text);
    if (!said.length || said.length > 12) return;
    const lines = said.map(([name, text]) => el("li", {}, `Where ${name} spent its time: ${text}.`));
    $("speed-table").append(el("ul", { class: "notes" }, ...lines));
  };

  const renderTables = () => {
    $("score-tables").replaceChildren(...shownSuites().map((suite) => tableNode(`scores-${suite.name}`, { titled: true })));
    if (!$("score-tables").children.length) $("score-tables").append(empty(FILTERED));
    $("aggregate-table").replaceChildren(tableNode("aggregates"));
    $("improvement-table").replaceChildren(tableNode("improvement"));
    $("ablation-table").replaceChildren(tableNode("ablations", { tall: true, titled: true }));
    renderSpeed();
    $("settings-table").replaceChildren(tableNode("settings"));
    $("versions-table").replaceChildren(tableNode("versions"));
  };

  const renderSummary = () => {
    $("findings").replaceChildren(...data.findings.map((text) => el("li", {}, text)));
    $("warnings").replaceChildren(...data.warnings.map((text) => el("p", { class: "notice" }, text)));
    const box = $("verdict-counts");
    box.replaceChildren();
    for (const s of shownPresets()) {
      const grid = el("div", { class: "counts" });
      for (const suite of shownSuites()) {
        const said = data.tables.finals.rows
          .filter((row) => row.series === s.key && row.suite === suite.name && visible(row))
          .map((row) => finalCell(row.task, s.key, "verdict")?.verdict).filter(Boolean);
        if (!said.length) continue;
        const bar = el("div", { class: "bar" });
        for (const what of ["below", "inside", "above", ...new Set(said.filter((w) => !VERDICTS.includes(w)))]) {
          const count = said.filter((w) => w === what).length;
          if (!count) continue;
          const text = `${MARK[what] ?? ""}${count}${count / said.length > 0.16 ? ` ${what}` : ""}`;
          const part = el("span", { class: VERDICTS.includes(what) ? what : "", title: `${count} ${what}` }, text);
          part.style.flex = `${count} 1 0`;
          bar.append(part);
        }
        grid.append(el("span", {}, suite.title), bar);
      }
      const title = `${s.name}: tasks below, inside and above the published interval of ${s.counterpart}`;
      if (grid.children.length) box.append(el("h3", {}, title), grid);
    }
  };

  const renderPrintState = () => {
    const hidden = [...state.hide].map((key) => series.get(key).name);
    const parts = [];
    if (state.suites.size < data.suites.length) parts.push(`suites: ${shownSuites().map((s) => s.title).join(", ") || "none"}`);
    if (hidden.length) parts.push(`without ${hidden.join(", ")}`);
    if (state.q) parts.push(`tasks with “${state.q}”`);
    $("print-state").textContent = parts.length ? `Filtered: ${parts.join("; ")}.` : "";
  };

  const render = () => {
    hideTip();
    renderSummary();
    renderCurves();
    renderTables();
    renderAggregates();
    renderProfiles();
    renderImprovement();
    renderAblations();
    renderPrintState();
  };

  // ---- filters ----------------------------------------------------------------------------------------------------
  const boxes = [];
  const checkbox = (container, text, picture, value, get, set) => {
    const input = el("input", { type: "checkbox", value });
    input.addEventListener("change", () => { set(input.checked); changed(); });
    boxes.push(() => { input.checked = get(); });
    container.append(el("label", { class: "check" }, input, picture, el("span", {}, text)));
  };
  const setIn = (set, key, on) => { if (on) set.add(key); else set.delete(key); };
  const syncControls = () => {
    for (const sync of boxes) sync();
    if ($("search").value !== state.q) $("search").value = state.q;
    $("all-tasks").checked = state.all;
  };
  const changed = () => { syncControls(); writeHash(); render(); };
  const setUp = () => {
    for (const s of data.suites) checkbox($("suite-filter"), s.title, null, s.name, () => state.suites.has(s.name), (on) => {
      setIn(state.suites, s.name, on);
      state.suites = new Set(data.suites.map((one) => one.name).filter((name) => state.suites.has(name)));
    });
    for (const s of data.series) {
      const picture = s.ours || s.style >= 0 ? swatch(s) : null;
      const box = $(s.ours ? "preset-filter" : "paper-filter");
      const hide = (on) => setIn(state.hide, s.key, !on);
      checkbox(box, s.name, picture, s.key, () => !state.hide.has(s.key), hide);
    }
    const theirs = data.series.filter((s) => !s.ours);
    $("paper-fieldset").hidden = !theirs.length;
    $("paper-all").addEventListener("click", () => { for (const s of theirs) state.hide.delete(s.key); changed(); });
    $("paper-none").addEventListener("click", () => { for (const s of theirs) state.hide.add(s.key); changed(); });
    $("all-tasks-label").hidden = !Object.values(data.tables).some((table) => table.rows.some((row) => !row.has_runs));
    $("all-tasks").addEventListener("change", () => { state.all = $("all-tasks").checked; changed(); });
    let pause = 0;
    const search = () => { state.q = $("search").value; changed(); };
    $("search").addEventListener("input", () => { clearTimeout(pause); pause = setTimeout(search, 120); });
    $("filters").addEventListener("submit", (event) => event.preventDefault());
    $("reset").addEventListener("click", () => { clear(); changed(); });
    $("copy").addEventListener("click", async () => {
      writeHash();
      try {
        await navigator.clipboard.writeText(location.href);
        $("copied").textContent = "The link is on the clipboard.";
      } catch {
        $("copied").textContent = location.href;
      }
    });
    for (const section of document.querySelectorAll("main > section")) {
      $("contents").append(el("li", {}, el("a", { href: `#${section.id}` }, section.querySelector("h2").textContent)));
    }
    document.addEventListener("click", (event) => {
      const link = event.target instanceof Element ? event.target.closest('a[href^="#"]') : null;
      if (!link) return;
      event.preventDefault();
      state.at = link.getAttribute("href").slice(1);
      writeHash();
      const narrow = matchMedia("(max-width: 860px)").matches;
      if (narrow) $("panel").open = false;
      goTo(state.at);
    });
  };
  const goTo = (id) => {
    const target = $(id);
    if (!target) return;
    target.scrollIntoView();
    if (!target.hasAttribute("tabindex")) target.setAttribute("tabindex", "-1");
    target.focus({ preventScroll: true });
  };

  // ---- colours, width, print --------------------------------------------------------------------------------------
  const dark = matchMedia("(prefers-color-scheme: dark)");
  let theme = "auto";
  try { theme = localStorage.getItem("dr-q-theme") ?? "auto"; } catch { /* storage may be switched off for files */ }
  if (!["auto", "light", "dark"].includes(theme)) theme = "auto";
  const applyTheme = () => {
    document.documentElement.dataset.theme = theme === "auto" ? (dark.matches ? "dark" : "light") : theme;
    $("theme").textContent = `Theme: ${theme}`;
    $("theme").setAttribute("aria-label", theme === "auto" ? "Colours: as the system" : `Colours: ${theme}`);
  };
  dark.addEventListener("change", applyTheme);
  $("theme").addEventListener("click", () => {
    theme = { auto: "dark", dark: "light", light: "auto" }[theme];
    try { localStorage.setItem("dr-q-theme", theme); } catch { /* as above */ }
    applyTheme();
  });
  const narrow = matchMedia("(max-width: 860px)");
  const panel = () => { $("panel").open = !narrow.matches; };
  narrow.addEventListener("change", panel);
  let width = innerWidth, wait = 0;
  addEventListener("resize", () => {
    if (innerWidth === width) return;
    width = innerWidth;
    clearTimeout(wait);
    wait = setTimeout(redraw, 120);
  });
  addEventListener("beforeprint", drawAll);
  addEventListener("scroll", () => (shownAgain ?? hideTip)(), { passive: true });
  addEventListener("hashchange", () => { readHash(); syncControls(); render(); if (state.at) goTo(state.at); });

  // ---- begin ------------------------------------------------------------------------------------------------------
  applyTheme();
  panel();
  $("version").textContent = data.version;
  $("facts").textContent = data.facts.join(" · ");
  for (const node of document.querySelectorAll("[data-fill]")) {
    const value = data[node.dataset.fill];
    node.textContent = typeof value === "number" ? value.toLocaleString("en-US") : value;
  }
  setUp();
  readHash();
  syncControls();
  render();
  if (state.at) goTo(state.at);
  performance.mark("dr-q-ready");
})();
