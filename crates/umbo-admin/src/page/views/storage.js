// Where the rows are: shards and their files, nodes, namespaces.

import { Chart, palette } from "../chart.js";
import { badge, h, panel, Table, Tile } from "../dom.js";
import { count, format, parts, time } from "../format.js";
import { marks } from "../live.js";
import { stateKind } from "./overview.js";

const SHARD_CHARTS = {
  shard_ru: { title: "Load by shard", unit: "RU/s", kind: "area" },
  shard_commits: { title: "Commits by shard", unit: "/s", kind: "area" },
  shard_queued: { title: "Mutations that wait for a commit", unit: "", kind: "area" },
  shard_rows: { title: "Rows", unit: "", kind: "area" },
  shard_expired_rows: { title: "Expired rows not reclaimed yet", unit: "rows", kind: "area" },
};

export function storage(page) {
  const tiles = { rows: new Tile("Rows"), file: new Tile("Files"), live: new Tile("Live bytes", "", "Bytes of rows that are visible or await reclaiming"), queued: new Tile("Waiting writes"), sync: new Tile("Sync", "", "Time of a commit that is waited for until it is on the disk"), cache: new Tile("Row cache", "", "Share of the reads of a row that memory answers"), shards: new Tile("Shards"), nodes: new Tile("Nodes") };
  const charts = Object.fromEntries(Object.entries(SHARD_CHARTS).map(([name, options]) => [name, new Chart(options)]));
  const bytes = new Chart({ title: "Bytes of files and of rows", unit: "B" });
  const sync = new Chart({ title: "Time of a sync", unit: "ms", about: "A commit that is waited for until it is on the disk" });
  const cache = new Chart({ title: "Row cache hit rate", unit: "share", ceiling: 1, about: "Of the reads of a row; the others visit the pages of a file" });
  const map = h("div", { class: "slots", role: "img" });
  const numbers = (list) => list.map((column) => ({ number: true, ...column }));
  const shards = new Table({
    label: "Shards", key: (row) => String(row.shard), sort: "shard", descending: false, stacked: true,
    columns: [
      { name: "shard", title: "Shard", sort: (row) => row.shard, text: (row) => String(row.shard) },
      { name: "state", title: "State", sort: (row) => row.state, sign: (row) => row.state + (row.reason ?? ""), node: (row) => [badge(row.state, stateKind(row.state)), row.reason ? h("span", { class: "dim block wrap", text: row.reason }) : null].filter(Boolean) },
      { name: "node", title: "Node", sort: (row) => row.node ?? "", text: (row) => row.node ?? "this process" },
      ...numbers([
        { name: "slots", title: "Slots", wide: true, sort: (row) => row.slots, text: (row) => count(row.slots) },
        { name: "rows", title: "Rows", sort: (row) => row.rows, text: (row) => count(row.rows) },
        { name: "file", title: "File", sort: (row) => row.file_bytes, text: (row) => format(row.file_bytes, "B") },
        { name: "live", title: "Live", wide: true, sort: (row) => row.live ?? null, text: (row) => format(row.live ?? null, "B") },
        { name: "queued", title: "Waiting writes", sort: (row) => row.queued, text: (row) => count(row.queued) },
        { name: "commits", title: "Commits/s", wide: true, sort: (row) => row.commits ?? null, text: (row) => format(row.commits ?? null) },
      ]),
    ],
  });
  const nodes = new Table({
    label: "Nodes", key: (row) => row.name, sort: "name", descending: false, empty: "The shards are in this process: there are no nodes.", stacked: true,
    columns: [
      { name: "name", title: "Node", sort: (row) => row.name, text: (row) => row.name },
      { name: "state", title: "State", sort: (row) => Number(row.reachable), sign: (row) => String(row.reachable) + (row.reason ?? ""), node: (row) => [badge(row.reachable ? "up" : "away", row.reachable ? "good" : "bad"), row.reason ? h("span", { class: "dim block wrap", text: row.reason }) : null].filter(Boolean) },
      { name: "address", title: "Address", class: "mono", text: (row) => row.address },
      { name: "shards", title: "Shards", text: (row) => row.shards.join(", ") || "none" },
      { name: "map", title: "Map version", number: true, text: (row) => String(row.map_version ?? "–") },
      { name: "clock", title: "Clock", number: true, text: (row) => (row.clock_ahead_ms === undefined ? "–" : `${row.clock_ahead_ms > 0 ? "+" : ""}${count(row.clock_ahead_ms)}\u2009ms`) },
      { name: "version", title: "Version", text: (row) => row.program_version ?? "–" },
      { name: "flight", title: "In flight", number: true, text: (row) => count(row.in_flight) },
    ],
  });
  const namespaces = new Table({
    label: "Namespaces", key: (row) => row.name, sort: "bytes", empty: "There is no namespace yet.", stacked: true,
    columns: [
      { name: "name", title: "Namespace", sort: (row) => row.name, text: (row) => row.name },
      { name: "state", title: "State", sort: (row) => row.state, sign: (row) => row.state, node: (row) => badge(row.state, row.state === "live" ? "good" : "warn") },
      { name: "rows", title: "Rows", number: true, sort: (row) => row.size?.rows ?? null, text: (row) => count(row.size?.rows) },
      { name: "bytes", title: "Size", number: true, sort: (row) => row.size?.bytes ?? null, text: (row) => format(row.size?.bytes ?? null, "B") },
      { name: "ttl", title: "Default TTL", number: true, wide: true, text: (row) => (row.default_ttl ? `${count(row.default_ttl)}\u2009s` : "none") },
      { name: "durability", title: "Writes", wide: true, text: (row) => row.durability },
      { name: "created", title: "Created", wide: true, text: (row) => time(row.created_at) },
    ],
  });
  return {
    title: "Storage",
    series: [...Object.keys(SHARD_CHARTS), "shard_file_bytes", "shard_live_bytes", "syncs", "sync_time", "row_cache_hits", "row_cache_misses"],
    element: h("div", { class: "view" },
      h("div", { class: "tiles" }, Object.values(tiles).map((tile) => tile.element)),
      panel("Shards", h("div", {}, map, shards.element), { wide: true }),
      panel("Over time", h("div", { class: "charts" }, [...Object.values(charts), bytes, sync, cache].map((chart) => chart.element)), { wide: true }),
      h("div", { class: "grid" }, panel("Nodes", nodes.element, { wide: true }), panel("Namespaces", namespaces.element, { wide: true }))),
    needs: () => ({
      shards: { path: "admin/v1/shards", every: 2_000 }, cluster: { path: "admin/v1/cluster", every: 2_000 },
      namespaces: { path: "admin/v1/namespaces", every: 5_000 },
    }),
    update({ history, shards: list, cluster, namespaces: names }) {
      const at = marks(page.events());
      if (history) {
        const text = (value) => `shard ${value}`;
        for (const [name, chart] of Object.entries(charts)) chart.update(history.chart(history.byLabel(name, "shard", (_, which) => palette(which), { text })), at);
        bytes.update(history.chart([
          { label: "files", colour: "series-6", values: history.sum("shard_file_bytes") },
          { label: "rows (live)", colour: "series-0", values: history.sum("shard_live_bytes") },
        ]), at);
        const [syncs, taken, hits, misses] = ["syncs", "sync_time", "row_cache_hits", "row_cache_misses"].map((name) => history.sum(name));
        const share = (part, whole) => (whole > 0 && part !== null ? part / whole : null);
        const times = taken.map((seconds, place) => share(seconds === null ? null : seconds * 1_000, syncs[place]));
        const rates = hits.map((found, place) => share(found, (found ?? 0) + (misses[place] ?? 0)));
        sync.update(history.chart([{ label: "a sync", colour: "series-5", values: times }]), at);
        cache.update(history.chart([{ label: "found in memory", colour: "series-2", values: rates }]), at);
        // An idle second has neither.
        const recent = (values) => values.findLast((value) => value !== null) ?? null;
        tiles.sync.show(parts(recent(times), "ms"));
        tiles.cache.show(parts(recent(rates), "share"));
      }
      if (list) {
        const now = (name, shard) => history?.one(name, { shard }).at(-1);
        const rows = list.shards.map((row) => ({ ...row, live: now("shard_live_bytes", row.shard), commits: now("shard_commits", row.shard) }));
        shards.update(rows);
        const sum = (field) => rows.reduce((total, row) => total + (row[field] ?? 0), 0);
        tiles.rows.show(parts(sum("rows")), `${count(sum("rows"))} stored`);
        tiles.file.show(parts(sum("file_bytes"), "B"));
        tiles.live.show(parts(rows.some((row) => row.live !== undefined && row.live !== null) ? sum("live") : null, "B"));
        tiles.queued.show(parts(sum("queued")));
        tiles.shards.show(parts(rows.length), `${rows.filter((row) => row.state === "available").length} available`);
        showMap(rows);
      }
      if (cluster) {
        nodes.update(cluster.nodes);
        tiles.nodes.show(parts(cluster.nodes.length), cluster.nodes.length ? `${cluster.nodes.filter((node) => node.reachable).length} up` : "embedded");
      }
      if (names) namespaces.update(names.namespaces);
    },
  };

  /** The map of the shards: as wide as the slots that each has. */
  function showMap(rows) {
    const sign = JSON.stringify(rows.map(({ shard, slots, state, node }) => [shard, slots, state, node]));
    if (sign === map.sign) return;
    map.sign = sign;
    map.setAttribute("aria-label", `Map of ${rows.length} shards by hash slots`);
    map.replaceChildren(...rows.map(({ shard, slots, state, node }) => {
      const part = h("span", { class: `slot ${stateKind(state)}`, text: String(shard), title: `shard ${shard}: ${count(slots)} slots${node ? ` on ${node}` : ""}, ${state}` });
      part.style.flexGrow = String(slots);
      return part;
    }));
  }
}
