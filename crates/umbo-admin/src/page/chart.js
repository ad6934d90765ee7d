// Charts over time on a canvas: lines, stacked areas and bars. One cursor moves through all of them, and a drag over one
// of them zooms all.

import { h, setText } from "./dom.js";
import { exact, format, parts, tick, time } from "./format.js";

const GUTTER = 58; // Pixels left of the plot, the same in all charts, so that times stand below one another.
const RIGHT = 10;
const TOP = 8;
const BOTTOM = 20;
const MARK_REACH = 7; // Pixels around an event mark in which the tooltip tells of it.
const DRAG_MIN = 6; // Pixels from which on a drag is no click.
const ZOOM_STEPS_MIN = 4; // Steps below which there is no closer look.
const FRESH = 3; // Steps after the last in which an event is shown at the edge.
const LEGEND_MAX = 12;
const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 432000];

/** The instant that all charts point at, and the times between which they show: in milliseconds, or null. */
const cursor = { at: null, zoom: null, charts: new Set() };

const shown = () => [...cursor.charts].filter(({ element }) => element.isConnected);

/** Shows the time between two instants in all charts; all of it without them. */
export function zoom(from, to) {
  cursor.zoom = from === undefined ? null : { from: Math.min(from, to), to: Math.max(from, to) };
  for (const chart of shown()) chart.update(chart.whole, chart.marks);
}

function pointAt(at) {
  cursor.at = at;
  for (const chart of shown()) chart.drawOverlay();
}

const colours = new Map();

/** The value of a colour of the style sheet. */
export function colour(name) {
  if (!colours.has(name)) {
    const value = getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
    colours.set(name, value || name);
  }
  return colours.get(name);
}

/** Draws all charts anew, because the theme has changed. */
export function recolour() {
  colours.clear();
  for (const chart of shown()) {
    chart.showLegend();
    chart.draw();
  }
}

/** The colours of things that have no meaning of their own, in a fixed order. */
export const palette = (at) => `series-${at % 10}`;

const tooltip = h("div", { class: "tooltip", role: "status", hidden: true });

/** Upper end and distance of the ticks of an axis from 0 that reaches `max`. */
export function scale(max, ticks = 4, unit = "") {
  if (!(max > 0)) return { top: 1, step: 1 };
  const rough = max / ticks;
  if (unit.startsWith("B") && rough > 1) {
    const step = 2 ** Math.ceil(Math.log2(rough));
    return { top: Math.ceil((max / step) * 0.999) * step, step };
  }
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((size) => size >= rough);
  return { top: Math.ceil((max / step) * 0.999) * step, step };
}

/**
 * A chart. `series` of `update` are [{label, colour, values, unit?}]; `kind` is `line`, `area` (stacked) or `bars`
 * (stacked).
 */
export class Chart {
  constructor({ title, unit = "", kind = "line", height = 150, tools = [], about = "", ceiling }) {
    Object.assign(this, { title, unit, kind, height, ceiling });
    this.data = this.whole = { start: 0, step: 1000, series: [] };
    this.marks = [];
    this.isLog = false;
    this.base = h("canvas", { "aria-hidden": "true" });
    this.overlay = h("canvas", { class: "overlay", tabindex: "0", role: "img", "aria-label": title });
    this.legend = h("ul", { class: "legend" });
    this.note = h("p", { class: "chart-empty", text: "Collecting data…" });
    this.plot = h("div", { class: "plot" }, this.base, this.overlay, this.note);
    this.plot.style.height = `${height}px`;
    const log = h("button", {
      type: "button", class: "small", text: "log", title: "Logarithmic axis", "aria-label": `log axis of ${title}`, "aria-pressed": "false",
      on: {
        click: () => {
          this.isLog = !this.isLog;
          log.setAttribute("aria-pressed", String(this.isLog));
          this.draw();
        },
      },
    });
    this.reset = h("button", { type: "button", class: "small", text: "All", title: "Show all of the time again (Escape)", hidden: true, on: { click: () => zoom() } });
    const heading = h("h3", {}, title, unit ? h("span", { class: "unit", text: ` ${axisUnit(unit)}` }) : null);
    this.element = h("figure", { class: "chart", title: about },
      h("figcaption", {}, heading, h("div", { class: "tools" }, this.reset, unit === "ms" ? log : null, tools)), this.plot, this.legend);
    this.listen();
    cursor.charts.add(this);
    new ResizeObserver(() => this.draw()).observe(this.plot);
  }

  listen() {
    const on = (name, listener) => this.overlay.addEventListener(name, listener);
    on("pointermove", (event) => {
      this.hovered = { x: event.offsetX, y: event.offsetY };
      pointAt(this.timeAt(event.offsetX));
      this.showTooltip();
    });
    on("pointerdown", (event) => {
      this.dragged = event.button === 0 ? { x: event.offsetX, at: this.timeAt(event.offsetX) } : null;
      if (this.dragged) this.overlay.setPointerCapture(event.pointerId);
    });
    on("pointerup", (event) => {
      const from = this.dragged;
      this.dragged = null;
      if (from && Math.abs(event.offsetX - from.x) >= DRAG_MIN) zoom(from.at, this.timeAt(event.offsetX));
    });
    on("pointercancel", () => { this.dragged = null; });
    on("dblclick", () => zoom());
    on("pointerleave", () => this.leave());
    on("blur", () => this.leave());
    on("keydown", (event) => {
      const steps = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10 }[event.key];
      if (event.key === "Escape") {
        this.leave();
        zoom();
      }
      if (event.key === "+" && this.length > ZOOM_STEPS_MIN) {
        const { start, step } = this.data;
        const [at, reach] = [cursor.at ?? start + (this.length - 1) * step, (this.length * step) / 4];
        zoom(at - reach, at + reach);
      }
      if (!steps || !this.length) return;
      event.preventDefault();
      const { start, step } = this.data;
      const last = start + (this.length - 1) * step;
      const at = Math.max(start, Math.min(last, (cursor.at ?? last) + steps * step));
      this.hovered = { x: this.x(at), y: TOP };
      pointAt(at);
      this.showTooltip();
    });
  }

  leave() {
    this.hovered = null;
    tooltip.hidden = true;
    pointAt(null);
  }

  update(whole, marks = []) {
    this.whole = whole;
    this.data = cut(whole, cursor.zoom);
    this.marks = marks;
    const { series } = this.data;
    this.reset.hidden = this.data === whole;
    this.note.hidden = series.some(({ values }) => values.some((value) => value !== null));
    this.showLegend();
    this.draw();
    this.overlay.setAttribute("aria-label", this.summary());
    if (this.hovered) this.showTooltip();
  }

  get length() {
    return Math.max(0, ...this.data.series.map(({ values }) => values.length));
  }

  summary() {
    const latest = this.data.series.slice(0, LEGEND_MAX).map((one) => `${one.label} ${format(last(one.values), one.unit ?? this.unit)}`);
    return `${this.title}: ${latest.join(", ") || "no data"}. Arrow keys move the cursor, plus zooms, Escape shows all.`;
  }

  showLegend() {
    const { series } = this.data;
    const sign = series.map(({ label, colour: name }) => `${label}\n${name}`).join("\n");
    if (sign !== this.legendSign) {
      this.legendSign = sign;
      this.values = series.slice(0, LEGEND_MAX).map(() => h("span", { class: "legend-value" }));
      this.legend.replaceChildren(...this.values.map((value, at) => {
        const swatch = h("span", { class: "swatch" });
        swatch.style.background = `var(--${series[at].colour})`;
        return h("li", {}, swatch, h("span", { class: "legend-label", text: series[at].label, title: series[at].label }), value);
      }));
    }
    this.showValues();
  }

  showValues() {
    const at = this.indexAtCursor();
    this.values?.forEach((element, which) => {
      const one = this.data.series[which];
      const value = at === null ? last(one.values) : one.values[at];
      setText(element, format(value, one.unit ?? this.unit));
    });
  }

  indexAtCursor() {
    if (cursor.at === null || !this.length) return null;
    const index = Math.round((cursor.at - this.data.start) / this.data.step);
    return index >= 0 && index < this.length ? index : null;
  }

  x(at) {
    const { start, step } = this.data;
    const span = Math.max(1, (this.length - 1) * step);
    return GUTTER + ((at - start) / span) * (this.width - GUTTER - RIGHT);
  }

  timeAt(x) {
    const { start, step } = this.data;
    const share = (x - GUTTER) / Math.max(1, this.width - GUTTER - RIGHT);
    const index = Math.round(Math.max(0, Math.min(1, share)) * (this.length - 1));
    return start + index * step;
  }

  y(value) {
    if (this.isLog) return TOP + (1 - Math.log(Math.max(1, value / this.low)) / Math.log(this.top / this.low)) * (this.height - TOP - BOTTOM);
    return TOP + (1 - value / this.top) * (this.height - TOP - BOTTOM);
  }

  /** Values from the bottom of each series to its top: stacked, or from 0. */
  bands() {
    const below = new Array(this.length).fill(0);
    return this.data.series.map(({ values }) => values.map((value, at) => {
      if (this.kind === "line") return value === null ? null : [0, value];
      const from = below[at];
      below[at] += value ?? 0;
      return value === null ? null : [from, below[at]];
    }));
  }

  draw() {
    this.width = this.plot.clientWidth;
    if (!this.width) return;
    const context = fit(this.base, this.width, this.height);
    const bands = this.bands();
    const values = bands.flat().filter(Boolean).map(([, value]) => value);
    const max = values.reduce((most, value) => Math.max(most, value), this.ceiling ?? 0);
    const { top, step } = scale(max, this.height < 130 ? 3 : 4, this.unit);
    this.top = top;
    let ticks = Array.from({ length: Math.floor((top * 1.001) / step) + 1 }, (_, at) => at * step);
    if (this.isLog) {
      const least = values.reduce((low, value) => (value > 0 ? Math.min(low, value) : low), top);
      const powers = [Math.floor(Math.log10(least)), Math.max(Math.ceil(Math.log10(max || 1)), Math.floor(Math.log10(least)) + 1)];
      ticks = Array.from({ length: powers[1] - powers[0] + 1 }, (_, at) => 10 ** (powers[0] + at));
      [this.low, this.top] = [ticks[0], ticks.at(-1)];
    }
    this.drawAxes(context, ticks);
    context.save();
    context.beginPath();
    context.rect(GUTTER, 0, this.width - GUTTER - RIGHT + 1, this.height);
    context.clip();
    bands.forEach((band, at) => this.drawBand(context, band, colour(this.data.series[at].colour)));
    context.restore();
    this.drawOverlay();
  }

  drawAxes(context, ticks) {
    context.font = `11px ${colour("font")}`;
    context.fillStyle = colour("muted");
    context.strokeStyle = colour("grid");
    context.lineWidth = 1;
    context.textAlign = "right";
    context.textBaseline = "middle";
    for (const value of ticks) {
      const y = Math.round(this.y(value)) + 0.5;
      line(context, GUTTER, y, this.width - RIGHT, y);
      context.fillText(axisNumber(value, this.unit), GUTTER - 8, y);
    }
    if (this.length < 2) return;
    const { start, step: every } = this.data;
    const span = (this.length - 1) * every;
    const room = Math.max(2, Math.floor((this.width - GUTTER - RIGHT) / 84));
    const distance = (STEPS.find((seconds) => span / (seconds * 1e3) <= room) ?? STEPS.at(-1)) * 1e3;
    const offset = new Date(start).getTimezoneOffset() * 60e3;
    context.textAlign = "center";
    context.textBaseline = "alphabetic";
    for (let at = Math.ceil((start - offset) / distance) * distance + offset; at <= start + span; at += distance) {
      const x = this.x(at);
      if (x < GUTTER + 12 || x > this.width - RIGHT - 14) continue;
      context.fillText(tick(at, distance), x, this.height - 5);
    }
  }

  drawBand(context, band, ink) {
    const { start, step } = this.data;
    context.strokeStyle = context.fillStyle = ink;
    if (this.kind === "bars") {
      const width = Math.max(1, ((this.width - GUTTER - RIGHT) / Math.max(1, band.length)) * 0.8);
      band.forEach((point, at) => {
        if (!point) return;
        const y = this.y(point[1]);
        context.fillRect(this.x(start + at * step) - width / 2, y, width, this.y(point[0]) - y);
      });
      return;
    }
    for (const [from, to] of runs(band)) {
      const upper = [];
      for (let at = from; at <= to; at += 1) upper.push([this.x(start + at * step), this.y(band[at][1])]);
      if (this.kind === "area") {
        context.beginPath();
        upper.forEach(([x, y]) => context.lineTo(x, y));
        for (let at = to; at >= from; at -= 1) context.lineTo(this.x(start + at * step), this.y(band[at][0]));
        context.closePath();
        context.globalAlpha = 0.35;
        context.fill();
        context.globalAlpha = 1;
      }
      context.lineWidth = 1.5;
      context.lineJoin = "round";
      context.beginPath();
      if (upper.length === 1) context.arc(upper[0][0], upper[0][1], 2, 0, 7);
      upper.forEach(([x, y], at) => {
        // Nothing that is 0 draws a line of its colour over what is below it in a stack.
        const isNothing = this.kind === "area" && isEmpty(band[from + at]) && isEmpty(band[Math.max(from, from + at - 1)]);
        if (at === 0 || isNothing) context.moveTo(x, y);
        else context.lineTo(x, y);
      });
      context.stroke();
    }
  }

  drawOverlay() {
    if (!this.width) return;
    const context = fit(this.overlay, this.width, this.height);
    const bottom = this.height - BOTTOM;
    if (this.length > 1) {
      for (const mark of this.marks) {
        // What has just happened is at the edge until the next step is known.
        const isFresh = mark.at <= this.data.start + (this.length + FRESH) * this.data.step;
        const place = Math.round(this.x(mark.at)) + 0.5;
        const x = isFresh ? Math.min(place, this.width - RIGHT) : place;
        if (x < GUTTER || x > this.width - RIGHT + 1) continue;
        context.strokeStyle = context.fillStyle = colour(mark.colour);
        context.setLineDash([2, 3]);
        line(context, x, TOP, x, bottom);
        context.setLineDash([]);
        context.beginPath();
        context.moveTo(x - 4, TOP - 7);
        context.lineTo(x + 4, TOP - 7);
        context.lineTo(x, TOP);
        context.fill();
      }
    }
    if (this.dragged && this.hovered) {
      context.globalAlpha = 0.15;
      context.fillStyle = colour("accent");
      context.fillRect(this.dragged.x, TOP, this.hovered.x - this.dragged.x, bottom - TOP);
      context.globalAlpha = 1;
    }
    const index = this.indexAtCursor();
    if (index !== null) {
      const x = Math.round(this.x(this.data.start + index * this.data.step)) + 0.5;
      context.strokeStyle = colour("muted");
      line(context, x, TOP, x, bottom);
      this.bands().forEach((band, at) => {
        if (!band[index]) return;
        context.fillStyle = colour(this.data.series[at].colour);
        context.beginPath();
        context.arc(x, this.y(band[index][1]), 3, 0, 7);
        context.fill();
      });
    }
    this.showValues();
  }

  showTooltip() {
    const index = this.indexAtCursor();
    if (index === null || !this.hovered) return;
    const at = this.data.start + index * this.data.step;
    const rows = this.data.series.slice(0, LEGEND_MAX).map((one) => {
      const swatch = h("span", { class: "swatch" });
      swatch.style.background = `var(--${one.colour})`;
      return h("div", { class: "tooltip-row" }, swatch, h("span", { text: one.label }), h("b", { text: exact(one.values[index], one.unit ?? this.unit) }));
    });
    const near = this.marks.filter((mark) => Math.abs(this.x(mark.at) - this.hovered.x) <= MARK_REACH).slice(0, 4);
    const events = near.map((mark) => h("div", { class: "tooltip-event", text: `${time(mark.at)} ${mark.text}` }));
    tooltip.replaceChildren(h("div", { class: "tooltip-time", text: time(at) }), ...rows, ...events);
    place(this.overlay, this.x(at), this.hovered.y);
  }
}

/** Shows the tooltip with other content beside a point of an element. */
export function tell(element, x, y, ...children) {
  tooltip.replaceChildren(...children);
  place(element, x, y);
}

export function tellNothing() {
  tooltip.hidden = true;
}

function place(element, x, y) {
  if (!tooltip.isConnected) document.body.append(tooltip);
  tooltip.hidden = false;
  const box = element.getBoundingClientRect();
  const { offsetWidth: width, offsetHeight: height } = tooltip;
  const left = box.left + x + 14 + width > window.innerWidth - 8 ? box.left + x - width - 14 : box.left + x + 14;
  const top = Math.min(Math.max(8, box.top + y - height / 2), window.innerHeight - height - 8);
  tooltip.style.left = `${Math.max(8, left)}px`;
  tooltip.style.top = `${top}px`;
}

/** Makes a canvas as sharp as the screen, empty, and returns its context. */
export function fit(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  const [across, down] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== across || canvas.height !== down) {
    canvas.width = across;
    canvas.height = down;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}

function line(context, x, y, toX, toY) {
  context.beginPath();
  context.moveTo(x, y);
  context.lineTo(toX, toY);
  context.stroke();
}

/** The part of the data between two instants; all of it where that has fewer than two steps. */
function cut(data, between) {
  if (!between) return data;
  const length = Math.max(0, ...data.series.map(({ values }) => values.length));
  const first = Math.max(0, Math.ceil((between.from - data.start) / data.step));
  const end = Math.min(length, Math.floor((between.to - data.start) / data.step) + 1);
  if (end - first < 2 || end - first === length) return data;
  return { ...data, start: data.start + first * data.step, series: data.series.map((one) => ({ ...one, values: one.values.slice(first, end) })) };
}

const isEmpty = ([low, high]) => high <= low;

/** First and last index of each run of values without a gap. */
function runs(band) {
  const found = [];
  let from = null;
  band.forEach((point, at) => {
    if (point && from === null) from = at;
    if (!point && from !== null) {
      found.push([from, at - 1]);
      from = null;
    }
  });
  if (from !== null) found.push([from, band.length - 1]);
  return found;
}

export function last(values) {
  for (let at = values.length - 1; at >= 0; at -= 1) if (values[at] !== null) return values[at];
  return null;
}

/** The number at a tick, with its unit only where that changes with the size of the number. */
function axisNumber(value, unit) {
  if (["B", "B/s", "ms", "share"].includes(unit)) return value === 0 ? "0" : format(value, unit);
  return parts(value, unit).number;
}

/** The unit beside the title of a chart. */
function axisUnit(unit) {
  if (["B", "B/s", "ms", "share"].includes(unit)) return "";
  return unit === "/s" ? "per second" : unit;
}
