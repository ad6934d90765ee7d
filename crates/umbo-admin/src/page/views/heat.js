// Where the load is: shards or slot groups × time, brighter where more request units are charged.

import { fit, colour, tell, tellNothing } from "../chart.js";
import { bar, h, panel, setText, Table } from "../dom.js";
import { exact, format, keyText, shortened, tick, time } from "../format.js";

const [LEFT, TOP, BOTTOM, RIGHT] = [70, 4, 22, 8];
const ROW_MIN = 14;
const ROW_MAX = 26;
const SHADES = 9;
/** Columns at the end of the map that stand for now: the last step may be under way. */
const NOW_COLUMNS = 2;
/** Fewest columns of the map. */
const COLUMNS_MIN = 60;
const STEPS = [30, 60, 300, 600, 3600, 10800, 21600, 86400, 432000];

export function heat(page) {
  let data = null;
  let chosen = null;
  let at = null;
  const canvas = h("canvas", { tabindex: "0", role: "img", "aria-label": "Heat map" });
  const plot = h("div", { class: "plot heat" }, canvas);
  const empty = h("p", { class: "empty", text: "Collecting data…" });
  const legend = h("div", { class: "heat-legend", "aria-hidden": "true" });
  const title = h("h2", { text: "Choose a row" });
  const hint = h("p", { class: "hint", text: "A click on the map, or Enter on it, shows who and what was behind a row at that time; at its right end or on its name, now." });
  const sources = new Table({
    label: "Sources of the row", key: (one) => JSON.stringify([one.caller, one.operation, one.namespace, one.pk, one.pk64]), sort: "share", empty: "The shard was idle, or nothing is known of that time.", stacked: true,
    columns: [
      { name: "caller", title: "Caller", sign: ({ caller }) => caller ?? "", node: ({ caller }) => (caller ? h("a", { href: `#/callers/${encodeURIComponent(caller)}`, text: caller }) : h("span", { text: "Umbo" })) },
      { name: "operation", title: "Operation", text: ({ operation }) => operation },
      { name: "namespace", title: "Namespace", text: ({ namespace }) => namespace ?? "" },
      { name: "partition", title: "Partition", class: "mono key", text: (one) => (one.pk === undefined && one.pk64 === undefined ? "several" : shortened(keyText(one), 48)) },
      { name: "share", title: "Of its busy time", number: true, sort: ({ share }) => share, sign: ({ share }) => String(Math.round(share * 100)), node: ({ share }) => [bar(share), h("span", { class: "bar-text", text: format(Math.round(share * 100) / 100, "share") })] },
    ],
  });
  const callers = new Table({
    label: "Callers of the row", key: ({ caller }) => caller, sort: "share", empty: "None of its keys is read much.",
    columns: [
      { name: "caller", title: "Caller", sign: ({ caller }) => caller, node: ({ caller }) => h("a", { href: `#/callers/${encodeURIComponent(caller)}`, text: caller }) },
      { name: "share", title: "Of its hot reads", number: true, sort: ({ share }) => share, sign: ({ share }) => String(Math.round(share * 100)), node: ({ share }) => [bar(share), h("span", { class: "bar-text", text: format(Math.round(share * 100) / 100, "share") })] },
    ],
  });
  const keys = new Table({
    label: "Hottest keys of the row", key: (row) => row.id ?? row.hash, sort: "rate", empty: "None of its keys is hot.", stacked: true,
    columns: [
      { name: "key", title: "Key", class: "mono key", sign: (row) => row.id ?? row.hash, node: (row) => h("span", { text: row.pk === undefined && row.pk64 === undefined ? `#${row.hash}` : shortened(keyText(row), 48), title: row.namespace }) },
      { name: "namespace", title: "Namespace", text: (row) => row.namespace ?? "" },
      { name: "rate", title: "Reads/s", number: true, sort: (row) => row.rate_now ?? row.rate ?? 0, text: (row) => format(row.rate_now ?? row.rate ?? null) },
    ],
  });
  const more = h("p", { class: "hint", hidden: true }, "Short requests are sampled. Who asks most of all shards: ", h("a", { href: "#/callers", text: "Callers" }), ".");
  const behind = h("section", { class: "panel wide" }, h("header", { class: "panel-head" }, title), hint, sources.element, h("div", { class: "grid flat" }, callers.element, keys.element), more);
  sources.element.hidden = callers.element.hidden = keys.element.hidden = true;

  const rowName = (row) => row.label ?? (row.shard === undefined ? `slots ${row.slots}` : `shard ${row.shard}`);
  const rowId = (row, index) => String(row.row ?? row.id ?? row.shard ?? index);
  const view = {
    title: "Heat map",
    hasRange: true,
    element: h("div", { class: "view" }, panel("Request units a second", h("div", {}, legend, plot, empty), { wide: true }), behind),
    needs: () => ({
      heat: { path: `admin/v1/heat?range=${page.range()}`, every: { "5m": 1_000, "1h": 10_000 }[page.range()] ?? 30_000 },
      ...(chosen === null ? {} : { cell: { path: `admin/v1/heat/${encodeURIComponent(chosen.id)}${chosen.at === null ? "" : `?range=${chosen.range}&at=${chosen.at}`}`, every: 2_000 } }),
    }),
    update({ heat: answer, cell }) {
      if (answer) {
        data = known(answer);
        draw();
      }
      if (!cell || chosen === null) return;
      const when = chosen.at === null ? "now" : `at ${time(cell.start_ms)}`;
      setText(title, `Behind ${chosen.name} ${when}: ${format(cell.ru_rate ?? null, "RU/s")}, busy ${format(Math.round(cell.busy * 100) / 100, "share")}`);
      hint.hidden = true;
      sources.element.hidden = more.hidden = false;
      callers.element.hidden = keys.element.hidden = chosen.at !== null;
      sources.update(cell.sources ?? []);
      callers.update(cell.callers ?? []);
      keys.update(cell.keys ?? []);
    },
  };

  /** The map without a past of which nothing is known. */
  function known(answer) {
    const first = Math.min(...answer.rows.map(({ values }) => values.findIndex((value) => value !== null)).filter((index) => index >= 0));
    const length = Math.max(0, ...answer.rows.map(({ values }) => values.length));
    const drop = Number.isFinite(first) ? Math.max(0, Math.min(first, length - COLUMNS_MIN)) : 0;
    return { ...answer, start_ms: answer.start_ms + drop * answer.step_ms, rows: answer.rows.map((row) => ({ ...row, values: row.values.slice(drop) })) };
  }

  const columns = () => Math.max(1, ...data.rows.map(({ values }) => values.length));
  const rowHeight = () => Math.max(ROW_MIN, Math.min(ROW_MAX, 420 / data.rows.length));
  const width = () => plot.clientWidth - LEFT - RIGHT;

  function draw() {
    const rows = data.rows;
    empty.hidden = rows.length > 0;
    if (!rows.length || !plot.clientWidth) return;
    const tall = rowHeight();
    const height = TOP + rows.length * tall + BOTTOM;
    plot.style.height = `${height}px`;
    const context = fit(canvas, plot.clientWidth, height);
    const max = Math.max(1e-9, ...rows.flatMap(({ values }) => values.map((value) => value ?? 0)));
    const cell = width() / columns();
    context.font = `11px ${colour("font")}`;
    context.textBaseline = "middle";
    rows.forEach((row, y) => {
      row.values.forEach((value, x) => {
        context.fillStyle = value === null ? colour("panel") : shade(value / max);
        const left = LEFT + x * cell;
        context.fillRect(left, TOP + y * tall, Math.ceil(left + cell) - left, tall - 1);
      });
      const isChosen = chosen?.id === rowId(row, y);
      context.fillStyle = colour(isChosen ? "accent" : "muted");
      context.textAlign = "right";
      context.fillText(rowName(row), LEFT - 8, TOP + (y + 0.5) * tall);
      if (isChosen || at?.y === y) {
        context.strokeStyle = colour("accent");
        context.lineWidth = isChosen ? 2 : 1;
        context.strokeRect(LEFT, TOP + y * tall, width(), tall - 1);
        if (isChosen && chosen.at >= data.start_ms) context.strokeRect(LEFT + Math.floor((chosen.at - data.start_ms) / data.step_ms) * cell, TOP + y * tall, cell, tall - 1);
      }
    });
    drawTimes(context, height);
    if (at) {
      context.strokeStyle = colour("text");
      context.lineWidth = 1;
      context.strokeRect(LEFT + at.x * cell, TOP + at.y * tall, cell, tall - 1);
    }
    canvas.setAttribute("aria-label", `Heat map of ${rows.length} rows; the highest cell has ${format(max, "RU/s")}. Arrow keys move, Enter opens a row.`);
    showLegend(max);
  }

  function drawTimes(context, height) {
    const span = (columns() - 1) * data.step_ms;
    const room = Math.max(2, Math.floor(width() / 84));
    const distance = (STEPS.find((seconds) => span / (seconds * 1e3) <= room) ?? STEPS.at(-1)) * 1e3;
    const offset = new Date(data.start_ms).getTimezoneOffset() * 60e3;
    context.fillStyle = colour("muted");
    context.textAlign = "center";
    for (let when = Math.ceil((data.start_ms - offset) / distance) * distance + offset; when <= data.start_ms + span; when += distance) {
      const x = LEFT + ((when - data.start_ms) / (span || 1)) * width();
      if (x > LEFT + 16 && x < LEFT + width() - 16) context.fillText(tick(when, distance), x, height - 9);
    }
  }

  /** A step of the scale: its square root, so that what is small beside the highest is seen too. */
  function shade(share) {
    return colour(`heat-${Math.min(SHADES - 1, Math.round(Math.sqrt(share) * (SHADES - 1)))}`);
  }

  function showLegend(max) {
    const sign = format(max, "RU/s");
    if (legend.sign === sign) return;
    legend.sign = sign;
    const steps = Array.from({ length: SHADES }, (_, step) => {
      const swatch = h("span", { class: "heat-step" });
      swatch.style.background = `var(--heat-${step})`;
      return swatch;
    });
    legend.replaceChildren(h("span", { text: "0" }), ...steps, h("span", { text: sign }));
  }

  function cellAt(x, y) {
    if (!data?.rows.length) return null;
    const column = Math.floor(((x - LEFT) / width()) * columns());
    const row = Math.floor((y - TOP) / rowHeight());
    return row < 0 || row >= data.rows.length || column < 0 || column >= columns() ? null : { x: column, y: row };
  }

  function point(next) {
    at = next;
    draw();
    if (!at) {
      tellNothing();
      return;
    }
    const row = data.rows[at.y];
    const [left, top] = [LEFT + ((at.x + 1) / columns()) * width(), TOP + (at.y + 0.5) * rowHeight()];
    tell(canvas, left, top, h("div", { class: "tooltip-time", text: `${rowName(row)}, ${time(data.start_ms + at.x * data.step_ms)}` }), h("b", { text: exact(row.values[at.x], "RU/s") }));
  }

  function choose({ x, y }) {
    const row = data.rows[y];
    const isNow = x < 0 || x >= columns() - NOW_COLUMNS;
    chosen = { id: rowId(row, y), name: rowName(row), range: page.range(), at: isNow ? null : data.start_ms + x * data.step_ms };
    draw();
    page.refresh("cell");
  }

  canvas.addEventListener("pointermove", (event) => point(cellAt(event.offsetX, event.offsetY)));
  canvas.addEventListener("pointerleave", () => data && point(null));
  canvas.addEventListener("blur", () => data && point(null));
  canvas.addEventListener("click", (event) => {
    const cell = cellAt(Math.max(LEFT + 1, event.offsetX), event.offsetY);
    if (cell) choose(event.offsetX < LEFT ? { x: -1, y: cell.y } : cell);
  });
  canvas.addEventListener("keydown", (event) => {
    const move = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    if (!data?.rows.length) return;
    if (event.key === "Enter" && at) choose(at);
    if (!move) return;
    event.preventDefault();
    const from = at ?? { x: columns() - 1, y: move[1] > 0 ? -1 : 0 };
    point({ x: Math.max(0, Math.min(columns() - 1, from.x + move[0])), y: Math.max(0, Math.min(data.rows.length - 1, from.y + move[1])) });
  });
  new ResizeObserver(() => data && draw()).observe(plot);
  view.leave = tellNothing;
  return view;
}
