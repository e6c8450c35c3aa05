// Amounts and times as the terminal tells them, and where the ticks of an axis stand.
const UNITS = ["B", "KB", "MB", "GB", "TB", "PB"];
const TIME_STEPS = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600,
  900, 1800, 3600, 7200, 21600, 43200, 86400, 172800, 432000, 864000];

// Amounts as the terminal tells them: powers of 1024, three digits.
function bytes(n) {
  let exponent = 0;
  while (exponent < UNITS.length - 1 && Math.abs(n) >= 999.5 * 1024 ** exponent) exponent++;
  const value = n / 1024 ** exponent;
  const fine = exponent >= 3 ? Math.abs(value) < 99.95 : exponent > 0 && Math.abs(value) < 9.95;
  return `${value.toFixed(fine ? 1 : 0)} ${UNITS[exponent]}`;
}
function duration(s) {
  const sign = s < 0 ? "-" : "", whole = Math.abs(s);
  if (whole < 120) return `${sign}${+whole.toFixed(whole < 1 ? 3 : whole < 10 ? 2 : 1)} s`;
  const seconds = Math.round(whole), pad = (n) => String(n).padStart(2, "0");
  const [d, h, m] = [Math.floor(seconds / 86400), Math.floor(seconds / 3600) % 24, Math.floor(seconds / 60) % 60];
  if (d) return `${sign}${d}d ${pad(h)}:${pad(m)}`;
  return sign + (h ? `${h}:${pad(m)}:${pad(seconds % 60)}` : `${m}:${pad(seconds % 60)}`);
}
const plain = (n) => Number(n.toPrecision(4)).toLocaleString("en");
const FORMATS = { bytes, seconds: duration, number: plain };

function ticks(low, high, kind, most) {
  if (!(high > low)) return [low];
  let step;
  if (kind === "seconds") step = TIME_STEPS.find((s) => (high - low) / s <= most) || (high - low) / most;
  else {
    const unit = kind === "bytes" ? 1024 ** Math.max(0, Math.floor(Math.log(Math.max(high, 1) * 1.0001) / Math.log(1024))) : 1;
    const rough = (high - low) / unit / most, power = 10 ** Math.floor(Math.log10(rough));
    step = unit * power * [1, 2, 5, 10].find((m) => m * power >= rough * 0.999);
  }
  const found = [];
  for (let at = Math.ceil(low / step - 1e-9); at * step <= high * (1 + 1e-12) && found.length < 50; at++) found.push(at * step);
  return found;
}
