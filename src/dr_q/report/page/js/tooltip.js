// The box that shows values next to the pointer or the focus.
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
