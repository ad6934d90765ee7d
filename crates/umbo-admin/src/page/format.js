// Numbers, sizes, rates and times as text. Every number that is shown has its unit beside it.

const PREFIXES = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];
const BINARY = [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]];

function digits(value) {
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size >= 100) return value.toFixed(0);
  if (size >= 10) return trim(value.toFixed(1));
  if (size >= 1) return trim(value.toFixed(2));
  // Smaller differences call for no action.
  return size >= 0.0005 ? trim(value.toFixed(3)) : "0";
}

function trim(text) {
  return text.includes(".") ? text.replace(/\.?0+$/, "") : text;
}

/** A number and its unit apart, as {number, unit}. Units are `B`, `B/s`, `ms`, `share`, `cores` or any word. */
export function parts(value, unit = "") {
  if (value === null || value === undefined || Number.isNaN(value)) return { number: "–", unit: "" };
  if (unit === "B" || unit === "B/s") {
    const rest = unit === "B/s" ? "/s" : "";
    const [size, name] = BINARY.find(([size]) => Math.abs(value) >= size) ?? [1, "B"];
    return { number: digits(value / size), unit: name + rest };
  }
  if (unit === "ms") {
    if (Math.abs(value) >= 60e3) return { number: digits(value / 60e3), unit: "min" };
    if (Math.abs(value) >= 1e3) return { number: digits(value / 1e3), unit: "s" };
    if (value !== 0 && Math.abs(value) < 0.1) return { number: digits(value * 1e3), unit: "µs" };
    return { number: digits(value), unit: "ms" };
  }
  if (unit === "share") return { number: digits(value * 100), unit: "%" };
  const [size, prefix] = PREFIXES.find(([size]) => Math.abs(value) >= size) ?? [1, ""];
  return { number: digits(value / size) + prefix, unit };
}

/** A number with its unit, like `1.2k/s`, `340 KiB` or `0.8 ms`. */
export function format(value, unit = "") {
  const { number, unit: shown } = parts(value, unit);
  if (!shown || shown.startsWith("/")) return number + shown;
  return `${number}\u2009${shown}`;
}

/** A number with all its digits and its unit, for tooltips. */
export function exact(value, unit = "") {
  if (value === null || value === undefined) return "no data";
  const rounded = Math.abs(value) >= 1e3 ? Math.round(value) : Number(value.toPrecision(4));
  if (unit === "share") return `${Number((value * 100).toPrecision(4))}\u2009%`;
  const number = rounded.toLocaleString("en-GB", { maximumFractionDigits: 6 });
  if (!unit) return number;
  return unit.startsWith("/") ? number + unit : `${number}\u2009${unit}`;
}

/** A whole number with its digits grouped. */
export function count(value) {
  return value === null || value === undefined ? "–" : Math.round(value).toLocaleString("en-GB");
}

/** A length of time in milliseconds, like `12 s` or `3 h 5 min`. */
export function duration(ms) {
  if (ms === null || ms === undefined) return "–";
  const seconds = ms / 1e3;
  if (seconds < 10) return format(ms, "ms");
  if (seconds < 120) return `${Math.round(seconds)}\u2009s`;
  const minutes = Math.round(seconds / 60);
  if (minutes < 120) return `${minutes}\u2009min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours}\u2009h ${minutes % 60}\u2009min`;
  return `${Math.round(hours / 24)}\u2009d`;
}

const pad = (number, length = 2) => String(number).padStart(length, "0");

/** A time of day, with the date where it is not of today. */
export function time(ms, now = Date.now()) {
  const at = new Date(ms);
  const text = `${pad(at.getHours())}:${pad(at.getMinutes())}:${pad(at.getSeconds())}`;
  return at.toDateString() === new Date(now).toDateString() ? text : `${date(ms)} ${text}`;
}

/** A date, like `23 Nov`. */
export function date(ms) {
  return new Date(ms).toLocaleDateString("en-GB", { day: "numeric", month: "short" });
}

/** The label of a tick of a time axis whose ticks are `step` milliseconds apart. */
export function tick(ms, step) {
  const at = new Date(ms);
  if (step >= 86_400e3) return date(ms);
  const text = `${pad(at.getHours())}:${pad(at.getMinutes())}`;
  return step < 60e3 ? `${text}:${pad(at.getSeconds())}` : text;
}

/** How long ago a time was. */
export function ago(ms, now = Date.now()) {
  const passed = now - ms;
  return passed < 2e3 ? "now" : `${duration(passed)} ago`;
}

/** The bytes of base64url as text in which every byte that is not printable is escaped. */
export function bytesAsText(base64) {
  const bytes = atob(base64.replaceAll("-", "+").replaceAll("_", "/"));
  return [...bytes].map((byte) => {
    const code = byte.charCodeAt(0);
    return code >= 0x20 && code < 0x7f && byte !== "\\" ? byte : `\\x${code.toString(16).padStart(2, "0")}`;
  }).join("");
}

/** A long text with its middle left out. */
export function shortened(text, length = 64) {
  if (text.length <= length) return text;
  const half = Math.floor((length - 1) / 2);
  return `${text.slice(0, half)}…${text.slice(-half)}`;
}

/** The name of a key: partition, then sort key. */
export function keyText(key) {
  const part = (text, base64) => (base64 === undefined ? visible(text ?? "") : bytesAsText(base64));
  const partition = part(key.pk, key.pk64);
  const sort = part(key.sk, key.sk64);
  return sort ? `${partition} / ${sort}` : partition || "(empty)";
}

/** A text in which characters without a shape, or that change the direction, are escaped. */
export function visible(text) {
  return text.replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, (char) => `\\u{${char.codePointAt(0).toString(16)}}`);
}

/** The value of a quantity of the API: a number, or a text like `64KiB`. */
export function quantity(text) {
  const found = /^\s*([\d.]+)\s*([KMGT]iB|B)?\s*$/.exec(String(text));
  if (!found) return NaN;
  return Number(found[1]) * (BINARY.find(([, name]) => name === found[2])?.[0] ?? 1);
}
