// The sections of the page, each made from the data and the state.
const finals = new Map(data.finals.map((final) => [JSON.stringify([final.task, final.series]), final]));
const finalOf = (task, key) => finals.get(JSON.stringify([task, key]));
const curvesOf = new Map();
for (const curve of data.curves) curvesOf.set(curve.task, [...(curvesOf.get(curve.task) ?? []), curve]);

const legend = (node, items, line = true) => {
  node.replaceChildren(...items.map((s) => el("span", {}, swatch(s, line), s.ours ? s.name : `${s.name}, published`)));
};
const shortName = (task) => task.slice(task.indexOf("/") + 1);
const renderCurves = () => {
  const groups = $("curve-groups");
  forget(groups);
  const presets = shownPresets();
  const theirs = data.series.filter((s) => !s.ours && !state.hide.has(s.key));
  legend($("curve-legend"), [...presets, ...theirs.filter((s) => s.style >= 0)]);
  if (theirs.some((s) => s.style < 0)) $("curve-legend").append(el("span", {}, swatch({ ours: false, style: -1 }), "others, published"));
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
      const said = finalOf(task.name, `ours ${data.base}`)?.verdict;
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

const renderReferences = () => {
  $("reference").hidden = !data.references.length;
  const box = $("reference-charts");
  forget(box);
  if (!data.references.length) return;
  for (const found of data.references.filter((one) => one.preset === data.base && visible(one))) {
    const s = series.get(found.series);
    const chartOf = (label, rows) => {
      const height = rows.reduce((sum) => sum + 22, 24);
      const chart = { label, rows, kind: "share", reference: 0, labelShare: 0.42, xText: percentTick };
      return chartNode((width) => dotChart(width, chart), height);
    };
    const suites = found.suites.filter((one) => one.suite === "all" || state.suites.has(one.suite))
      .map((one) => ({ label: one.label, items: [{ s, triple: one.value, what: "difference" }] }));
    const tasks = found.tasks.filter(visible)
      .map((one) => ({ label: one.task, items: [{ s, triple: one.value, what: one.verdict }] }));
    if (suites.length) box.append(card(`${found.title}: suites`, chartOf(`${found.title}, by suite`, suites)));
    if (tasks.length) box.append(card(`${found.title}: tasks`, chartOf(`${found.title}, by task`, tasks)));
  }
  $("reference-table").replaceChildren(tableNode("reference", { tall: true }), tableNode("reference-tasks", { tall: true, titled: true }));
};

const renderAggregates = () => {
  const box = $("aggregate-charts");
  forget(box);
  const rows = data.aggregates.filter(visible);
  data.statistics.forEach((statistic) => {
    const items = shownSuites().map((suite) => ({
      label: suite.title,
      items: rows.filter((row) => row.suite === suite.name && row.values[statistic] !== null)
        .map((row) => ({ s: series.get(row.series), triple: row.values[statistic], what: row.about })),
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
  const notes = shownSuites().filter((suite) => Object.hasOwn(data.grounds, suite.name))
    .map((suite) => el("li", {}, data.grounds[suite.name]));
  $("profile-notes").replaceChildren(...notes);
  if (!box.children.length) box.append(empty(data.profiles.length ? FILTERED : data.tables.aggregates.missing));
};

const renderImprovement = () => {
  const box = $("improvement-chart");
  forget(box);
  const rows = data.improvements.filter(visible);
  const items = shownSuites().map((suite) => ({
    label: suite.title,
    items: rows.filter((row) => row.suite === suite.name)
      .map((row) => ({ s: series.get(row.series), triple: row.value })),
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
  const presets = shownPresets().filter((s) => !s.reference);
  $("ablation-legend").replaceChildren();
  if (data.series.filter((s) => s.ours && !s.reference).length < 2) return;
  legend($("ablation-legend"), presets, false);
  for (const suite of shownSuites()) {
    const rows = data.tasks.filter((t) => t.suite === suite.name && matches(t.name)).map((t) => ({
      label: shortName(t.name),
      items: data.sideBySide.filter((f) => f.task === t.name && f.normalised && !state.hide.has(f.series))
        .map((f) => ({ s: series.get(f.series), triple: f.normalised, what: `${series.get(f.series).name} at ${number(f.step, "count")} steps` })),
    })).filter((row) => row.items.length);
    const chart = { label: `${suite.title}: normalised scores at common steps`, rows, kind: "unit", labelShare: 0.42 };
    const height = rows.reduce((sum, row) => sum + Math.max(22, row.items.length * 12 + 9), 24);
    if (rows.length) box.append(card(suite.title, chartNode((width) => dotChart(width, chart), height)));
  }
};

const heatMap = ({ settings, axes }, { name, kind, values }) => {
  const means = values.map((one) => one.value[0]);
  const [low, high] = [Math.min(...means), Math.max(...means)];
  const table = el("table", { class: "heat", "aria-label": `${name} by ${settings.join(" and ")}` });
  table.append(el("tr", {}, el("th", {}, `${settings[1]} \\ ${settings[0]}`), ...axes[0].map((x) => el("th", { scope: "col" }, x))));
  axes[1].forEach((y, j) => {
    const row = el("tr", {}, el("th", { scope: "row" }, y));
    axes[0].forEach((_, i) => {
      const found = values.find((one) => one.at[0] === i && one.at[1] === j);
      const cell = el("td", found ? { title: estimate(found.value, kind) } : {}, found ? number(found.value[0], kind) : "–");
      if (found) cell.style.setProperty("--heat", `${Math.round(8 + 62 * ((found.value[0] - low) / (high - low || 1)))}%`);
      row.append(cell);
    });
    table.append(row);
  });
  return el("div", { class: "wrap", tabindex: 0, role: "region", "aria-label": name }, table);
};
const renderGrids = () => {
  $("grid").hidden = !data.grids.length;
  const box = $("grid-charts");
  forget(box);
  if (!data.grids.length) return;
  for (const grid of data.grids) {
    const cards = el("div", { class: "cards two-up" });
    for (const chart of grid.charts) {
      if (chart.kind === "score" && !matches(chart.name)) continue;
      if (grid.settings.length > 1) { cards.append(card(chart.name, heatMap(grid, chart))); continue; }
      const rows = grid.axes[0].map((value, i) => ({
        label: `${grid.settings[0]} = ${value}`,
        items: chart.values.filter((one) => one.at[0] === i && !state.hide.has(one.series))
          .map((one) => ({ s: series.get(one.series), triple: one.value })),
      })).filter((row) => row.items.length);
      const drawn = { label: `${chart.name} by ${grid.settings[0]}`, rows, kind: chart.kind, labelShare: 0.45 };
      if (rows.length) cards.append(card(chart.name, chartNode((width) => dotChart(width, drawn), 24 + 22 * rows.length)));
    }
    box.append(el("p", { class: "lead" }, grid.title), cards);
  }
  $("grid-table").replaceChildren(tableNode("grid", { tall: true }));
};

const timeShares = (run) => {
  const parts = Object.entries(run.milliseconds).filter(([, value]) => value);
  const total = parts.reduce((sum, [, value]) => sum + value, 0);
  return parts.map(([part, value]) => `${part} ${Math.round((100 * value) / total)}%`).join(", ");
};
const renderSpeed = () => {
  $("speed-table").replaceChildren(tableNode("speed"));
  const said = data.runs.filter(visible).map((run) => [run.name, timeShares(run)]).filter(([, text]) => text);
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
  $("runs-table").replaceChildren(tableNode("runs", { tall: true }));
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
      const said = data.finals
        .filter((final) => final.series === s.key && final.suite === suite.name && visible(final))
        .flatMap((final) => final.verdict?.verdict ?? []);
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
  renderReferences();
  renderTables();
  renderAggregates();
  renderProfiles();
  renderImprovement();
  renderAblations();
  renderGrids();
  renderPrintState();
};
