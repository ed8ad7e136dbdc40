// Tables, their verdicts and their sorting.
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
      const title = { ours: "this report", paper: "published" }[columns[i].group] ?? "";
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
  // A third press takes the order of the paper again.
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
