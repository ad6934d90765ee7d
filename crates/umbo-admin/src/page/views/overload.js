// Which shards are overloaded, what the pressure comes from, who pays for it, and when it was so.

import { Chart, palette } from "../chart.js";
import { badge, h, panel, Table, Tile } from "../dom.js";
import { count, duration, format, parts, time } from "../format.js";
import { marks } from "../live.js";
import { hasTier, tierColour } from "./overview.js";

const SERIES = ["latency_ratio", "pressure", "queue_delay_ms", "queue_length", "penalty"];
const INPUTS = { "latency-ratio": "service times", "queue-delay": "the queue", lag: "the server's own threads" };

/** How many times slower than usual: the API has the normal p95 over the p95 now. */
const slowdown = (ratio) => (ratio > 0 ? 1 / ratio : null);

export function overload(page) {
  const shard = (_, at) => palette(at);
  const byShard = { paint: shard, text: (value) => `shard ${value}` };
  const charts = {
    pressure: new Chart({ title: "Pressure", unit: "", ceiling: 1, about: "0 is calm; the price of requests rises with it up to 1" }),
    latency_ratio: new Chart({ title: "Slower than usual", unit: "×", ceiling: 1, about: "The p95 now over the normal p95: 1 is as usual, 2 is twice as slow" }),
    queue_delay_ms: new Chart({ title: "Queue delay", unit: "ms" }),
    queue_length: new Chart({ title: "Queue length", unit: "requests" }),
  };
  const penalty = new Chart({ title: "Price by tier", unit: "×", ceiling: 2, about: "Factor on the price of requests of a tier; 1 is the plain price" });
  const shed = new Chart({ title: "Shed by tier", unit: "/s", kind: "area" });
  const tiles = { overloaded: new Tile("Overloaded shards"), waiting: new Tile("Waiting", "", "Requests that wait for a shard"), episodes: new Tile("Overloads", "", "Overloads since the start"), lag: new Tile("Thread lag", "", "By how much the server's own threads run late") };
  const columns = (list) => list.map((column) => ({ number: true, ...column }));
  const table = new Table({
    label: "Shards now", key: (row) => String(row.shard), sort: "pressure", empty: "No shard is watched.", stacked: true,
    columns: [
      { name: "shard", title: "Shard", sort: (row) => row.shard, text: (row) => String(row.shard) },
      { name: "state", title: "State", sort: (row) => Number(row.overloaded), sign: (row) => String(row.overloaded), node: (row) => badge(row.overloaded ? "overloaded" : "calm", row.overloaded ? "bad" : "good") },
      ...columns([
        { name: "pressure", title: "Pressure", sort: (row) => row.pressure, text: (row) => format(row.pressure) },
        { name: "slower", title: "Slower than usual", about: "The p95 now over the normal p95", sort: (row) => row.slower, text: (row) => (row.slower === null ? "–" : `×\u2009${format(row.slower)}`) },
        { name: "p95", title: "p95", sort: (row) => row.p95 ?? null, text: (row) => format(row.p95 ?? null, "ms") },
        { name: "normal", title: "Normal p95", wide: true, sort: (row) => row.normal ?? null, text: (row) => format(row.normal ?? null, "ms") },
        { name: "in_flight", title: "In flight", sort: (row) => row.queue.in_flight, text: (row) => `${row.queue.in_flight} of ${row.queue.limit}` },
        { name: "waiting", title: "Waiting", sort: (row) => row.queue.waiting, text: (row) => count(row.queue.waiting) },
        { name: "penalty", title: "Highest price", wide: true, sort: (row) => row.penalty, text: (row) => `×\u2009${format(row.penalty)}` },
        { name: "shed", title: "Shed", wide: true, sort: (row) => row.shed, text: (row) => count(row.shed) },
      ]),
    ],
  });
  const episodes = new Table({
    label: "Overloads", key: (row) => String(row.number), empty: "No overload since the start.", stacked: true,
    columns: [
      { name: "state", title: "State", sign: (row) => String(Boolean(row.under_way)), node: (row) => badge(row.under_way ? "under way" : "over", row.under_way ? "bad" : "plain") },
      { name: "started", title: "Began", class: "nowrap", text: (row) => time(row.started_at) },
      { name: "duration", title: "Lasted", number: true, text: (row) => duration(row.duration_ms) },
      { name: "shard", title: "Shard", number: true, text: (row) => String(row.shard) },
      { name: "class", title: "Operations", text: (row) => row.class },
      { name: "input", title: "Because of", text: (row) => INPUTS[row.input] ?? row.input },
      { name: "pressure", title: "Pressure", number: true, text: (row) => format(row.pressure_max) },
      { name: "p95", title: "p95, normal", number: true, wide: true, text: (row) => `${format(row.p95_ms, "ms")}, ${format(row.normal_p95_ms, "ms")}` },
      { name: "shed", title: "Shed", wide: true, text: (row) => Object.entries(row.shed).map(([tier, number]) => `${tier} ${count(number)}`).join(", ") || "none" },
    ],
  });
  const off = h("p", { class: "empty", text: "Nothing is shed: the overload controller is off in the settings.", hidden: true });

  return {
    title: "Overload",
    series: [...SERIES, "shed_by_tier"],
    element: h("div", { class: "view" },
      h("div", { class: "tiles" }, Object.values(tiles).map((tile) => tile.element)), off,
      panel("Pressure over time", h("div", { class: "charts" }, [...Object.values(charts), penalty, shed].map((chart) => chart.element)), { wide: true }),
      panel("Shards now", table.element, { wide: true }),
      panel("Overloads, newest first", episodes.element, { wide: true })),
    needs: () => ({ shed: { path: "admin/v1/shed", every: 1_000 } }),
    update({ history, shed: status }) {
      const at = marks(page.events());
      if (history) {
        for (const [name, chart] of Object.entries(charts)) {
          const series = history.byLabel(name, "shard", byShard.paint, byShard);
          chart.update(history.chart(name === "latency_ratio" ? series.map((one) => ({ ...one, values: one.values.map(slowdown) })) : series), at);
        }
        penalty.update(history.chart(history.byLabel("penalty", "tier", tierColour)), at);
        shed.update(history.chart(history.byLabel("shed_by_tier", "tier", tierColour, hasTier)), at);
      }
      if (!status) return;
      off.hidden = status.enabled;
      const rows = status.shards.map((one) => {
        const slowest = [...one.classes].sort((a, b) => (slowdown(b.ratio) ?? 0) - (slowdown(a.ratio) ?? 0))[0];
        return {
          ...one, pressure: Math.max(0, ...one.classes.map((each) => each.pressure)),
          slower: slowdown(slowest?.ratio),
          p95: slowest?.p95_ms, normal: slowest?.normal_p95_ms, penalty: Math.max(1, ...one.tiers.map((each) => each.penalty_above)),
          shed: one.tiers.flatMap((each) => Object.values(each.shed)).reduce((sum, number) => sum + number, 0),
        };
      });
      table.update(rows);
      episodes.update(status.episodes);
      tiles.overloaded.show(parts(rows.filter((row) => row.overloaded).length), `of ${rows.length}`);
      tiles.waiting.show(parts(rows.reduce((sum, row) => sum + row.queue.waiting, 0), "requests"));
      tiles.episodes.show(parts(status.episodes_total), `${status.episodes.filter((one) => one.under_way).length} under way`);
      tiles.lag.show(parts(status.lag_ms, "ms"));
    },
  };
}
