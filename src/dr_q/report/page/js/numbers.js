// How numbers are written, and where axes have their ticks.
/** As `toFixed`, but of two digits equally near the even one, as Python does. */
const fixed = (value, digits) => {
  // Only an odd multiple of 2^-(digits + 1) lies in the middle, and one digit more writes it exactly.
  const tie = Math.abs(value * 2 ** (digits + 1)) % 2 === 1;
  const cut = value.toFixed(digits + 1).slice(0, -1).replace(/\.$/, "");
  return tie && /[02468]$/.test(cut) ? cut : value.toFixed(digits);
};
/** As `number` in numbers.py. */
const number = (value, kind) => {
  let text;
  if (kind === "count") text = (+fixed(value, 0)).toLocaleString("en-US");
  else if (kind === "unit") text = fixed(value, 3);
  else if (kind === "share") text = `${value >= 0 ? "+" : ""}${fixed(100 * value, 1)}%`;
  else {
    const size = Math.abs(value);
    text = fixed(value, size >= 100 ? 0 : size >= 10 ? 1 : 2);
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
const percentTick = (x) => `${plainTick(100 * x)}%`;
const plainTick = (x) => String(+x.toPrecision(6)).replace("-", "−");
const ticks = (low, high, count) => {
  const raw = (high - low) / count, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((s) => s >= raw * 0.999);
  const found = [];
  for (let x = Math.ceil(low / step - 1e-9) * step; x <= high + step * 1e-6; x += step) found.push(Math.abs(x) < step * 1e-6 ? 0 : +x.toPrecision(10));
  return found;
};
