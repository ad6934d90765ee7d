// How the server does: what was asked of it and what became of that, how fast, by whom, and what changed lately.

import { Chart, last, palette } from "../chart.js";
import { badge, h, panel, select, setText, Tile } from "../dom.js";
import { count, parts, time } from "../format.js";
import { OUTCOMES, OUTCOME_TEXT, outcomes } from "../history.js";
import { marks } from "../live.js";
import { eventList } from "./events.js";

/** Tiers from the highest on. */
const TIERS = ["critical-plus", "critical", "sheddable-plus", "sheddable"];

/** The colour of a tier. */
export const tierColour = (tier) => `tier-${TIERS.indexOf(tier)}`;
/** Requests that ended before they had a tier, and those of operators, are of none. */
export const hasTier = { filter: ({ tier }) => TIERS.includes(tier) };
const LATENCIES = [["p50", "latency_p50_ms"], ["p99", "latency_p99_ms"], ["p99.9", "latency_p999_ms"]];
const EVENTS_SHOWN = 8;

export function overview(page) {
  const chosen = { operation: "", byOperation: "served", byTier: "served" };
  const redraw = () => view.update(view.data ?? {}, {});
  const tiles = {
    served: new Tile("Served", "served", "Requests a second that were answered as asked"),
    rejected: new Tile("Rejected", "rejected", "Requests a second that a quota refused (429)"),
    shed: new Tile("Shed", "shed", "Requests a second that were refused because of overload (503)"),
    failed: new Tile("Failed", "failed", "Requests a second that failed on the server's side"),
    latency: new Tile("p99 of gets", "", "99 of 100 gets are answered faster"),
    ru: new Tile("Request units", "", "Request units charged a second"),
    hot: new Tile("Reads saved", "", "Reads a second that the store did not see: cache hits of hot keys, and reads joined"),
    inFlight: new Tile("In flight", "", "Requests begun and not answered; below, open connections, those of this page among them"),
    cpu: new Tile("Processor", "", "Cores in use by this process"),
    memory: new Tile("Memory", "", "Memory of this process"),
  };
  const kinds = OUTCOMES.map((name) => [name, OUTCOME_TEXT[name]]);
  const choose = (label, key, options) => select(label, options, chosen[key], (value) => {
    chosen[key] = value;
    redraw();
  });
  const operations = choose("Operation", "operation", [["", "all operations"]]);
  const charts = {
    outcome: new Chart({ title: "Requests by outcome", unit: "/s", kind: "area", height: 190 }),
    latency: new Chart({ title: "Latency", unit: "ms", height: 190, tools: [operations], about: "Of all operations on rows, the slowest counts" }),
    operation: new Chart({ title: "By operation", unit: "/s", kind: "area", tools: [choose("Outcome by operation", "byOperation", kinds)] }),
    tier: new Chart({ title: "By tier", unit: "/s", kind: "area", tools: [choose("Outcome by tier", "byTier", kinds)] }),
    ru: new Chart({ title: "Request units", unit: "RU/s", kind: "area" }),
    hot: new Chart({ title: "Reads that the store did not see", unit: "/s", kind: "area" }),
    cpu: new Chart({ title: "Processor", unit: "cores", kind: "area" }),
    memory: new Chart({ title: "Memory", unit: "B", kind: "area" }),
  };
  const shards = h("div", { class: "cells", role: "list", "aria-label": "Shards" });
  const nodes = h("div", { class: "nodes" });
  const recent = eventList("Latest events");
  const calm = h("p", { class: "calm", hidden: true });
  const element = h("div", { class: "view" }, calm,
    h("div", { class: "tiles ten" }, Object.values(tiles).map((tile) => tile.element)),
    h("div", { class: "grid" },
      panel("Traffic", h("div", { class: "charts" }, [charts.outcome, charts.latency, charts.operation, charts.tier, charts.ru, charts.hot, charts.cpu, charts.memory].map((chart) => chart.element)), { wide: true, id: "traffic" }),
      panel("Shards and nodes", h("div", {}, shards, nodes), { tools: [h("a", { href: "#/storage", text: "Storage" })] }),
      panel("What changed", recent.element, { tools: [h("a", { href: "#/events", text: "All events" })] })));

  const view = {
    title: "Overview",
    element,
    series: [...outcomes(), ...outcomes("_by_tier"), ...LATENCIES.map(([, name]) => name), "ru", "hot_hits", "hot_collapsed", "in_flight", "connections", "cpu", "memory_bytes"],
    needs: () => ({
      shards: { path: "admin/v1/shards", every: 2_000 },
      cluster: { path: "admin/v1/cluster", every: 2_000 },
    }),
    update(data) {
      view.data = data;
      const diagnosis = page.diagnosis();
      calm.hidden = !diagnosis || diagnosis.findings.length > 0;
      if (!calm.hidden) setText(calm, `Nothing is wrong, as of ${time(diagnosis.checked_ms)}.`);
      if (data.history) showHistory(data.history);
      if (data.shards) showShards(data.shards.shards);
      if (data.cluster) showNodes(data.cluster.nodes);
      recent.update([...page.events()].reverse().slice(0, EVENTS_SHOWN), page.eventsError());
    },
  };

  function showHistory(history) {
    const at = marks(page.events());
    const show = (chart, series) => chart.update(history.chart(series), at);
    const now = (name, labels) => last(history.sum(name, labels));
    const refused = parts(last(history.outcome("refused")), "/s");
    for (const name of ["served", "rejected", "shed"]) tiles[name].show(parts(last(history.outcome(name)), "/s"));
    tiles.failed.show(parts(last(history.outcome("failed")), "/s"), `${refused.number}${refused.unit} refused (invalid)`);
    const isGet = history.all("latency_p99_ms", { operation: "get" }).length > 0;
    tiles.latency.show(parts(last(isGet ? history.one("latency_p99_ms", { operation: "get" }) : history.slowest("latency_p99_ms")), "ms"));
    tiles.ru.show(parts(last(history.outcome("ru")), "RU/s"));
    tiles.hot.show(parts((now("hot_hits") ?? 0) + (now("hot_collapsed") ?? 0), "/s"));
    tiles.inFlight.show(parts(now("in_flight"), ""), `${count(now("connections"))} connections`);
    tiles.cpu.show(parts(now("cpu"), "cores"));
    tiles.memory.show(parts(now("memory_bytes"), "B"));

    show(charts.outcome, OUTCOMES.map((name) => ({ label: OUTCOME_TEXT[name], colour: name, values: history.outcome(name) })));
    const names = history.labels(LATENCIES.map(([, name]) => name), "operation");
    if (operations.options.length !== names.length + 1) {
      operations.replaceChildren(...["", ...names].map((name) => h("option", { value: name, text: name || "all operations", selected: name === chosen.operation })));
    }
    show(charts.latency, LATENCIES.map(([label, name], which) => ({
      label, colour: `latency-${which}`,
      values: chosen.operation ? history.one(name, { operation: chosen.operation }) : history.slowest(name),
    })));
    show(charts.operation, history.byLabel(chosen.byOperation, "operation", (_, which) => palette(which)));
    show(charts.tier, history.byLabel(`${chosen.byTier}_by_tier`, "tier", tierColour, hasTier));
    const single = (name, label, paint) => ({ label, colour: paint, values: history.outcome(name) });
    show(charts.ru, [single("ru", "request units", "accent")]);
    show(charts.hot, [single("hot_hits", "cache hits of hot keys", "series-2"), single("hot_collapsed", "joined another read", "series-4")]);
    show(charts.cpu, [single("cpu", "cores in use", "series-5")]);
    show(charts.memory, [single("memory_bytes", "resident memory", "series-3")]);
  }

  function showShards(all) {
    const sign = JSON.stringify(all.map(({ shard, state, node }) => [shard, state, node]));
    if (sign === shards.sign) return;
    shards.sign = sign;
    shards.replaceChildren(...all.map(({ shard, state, node, reason }) => h("a", {
      class: `cell ${stateKind(state)}`, role: "listitem", href: "#/storage", text: String(shard),
      title: [`shard ${shard}: ${state}`, node && `on ${node}`, reason].filter(Boolean).join(", "),
      "aria-label": `Shard ${shard} ${state}`,
    })));
  }

  function showNodes(all) {
    const sign = JSON.stringify(all);
    if (sign === nodes.sign) return;
    nodes.sign = sign;
    const one = (node) => h("div", { class: "node" }, badge(node.reachable ? "up" : "away", node.reachable ? "good" : "bad"),
      h("b", { text: node.name }), h("span", { class: "dim", text: node.reason ?? `${node.address}, shards ${node.shards.join(", ") || "none"}` }));
    nodes.replaceChildren(...(all.length ? all.map(one) : [h("p", { class: "hint", text: "The shards are in this process." })]));
  }

  return view;
}

export function stateKind(state) {
  return { available: "good", "read-only": "warn" }[state] ?? "bad";
}
