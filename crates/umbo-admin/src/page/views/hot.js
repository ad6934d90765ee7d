// Keys that are read more than others, and the lists of those that are pinned and blocked.

import { Chart } from "../chart.js";
import { ask, badge, bar, h, panel, Table, Tile } from "../dom.js";
import { ago, count, duration, format, keyText, parts, shortened, time } from "../format.js";
import { marks } from "../live.js";

const LIVES = [["", "until it is taken off the list"], ["15m", "15 minutes"], ["1h", "1 hour"], ["1d", "1 day"]];
const VERBS = { pinned: { do: "Pin", undo: "Unpin", done: "pinned", undone: "unpinned" }, blocked: { do: "Block", undo: "Unblock", done: "blocked", undone: "unblocked" } };
const EFFECTS = {
  pinned: "Its answers are kept in memory and served from there, hot or not.",
  blocked: "Every read of it is refused from now on, by all dispatchers.",
};

function name(key) {
  return `${key.namespace}: ${keyText(key)}`;
}

export function hot(page) {
  const tiles = {
    reads: new Tile("Reads"), saved: new Tile("Reads saved", "", "Share of all reads that did not go to the store"),
    threshold: new Tile("Hot from", "", "Reads a second that make a key hot now"),
    flights: new Tile("Reads in flight", "", "Reads of the store that others can join now"), cache: new Tile("Cached answers"),
  };
  const chart = new Chart({ title: "Reads that the store did not see", unit: "/s", kind: "area", height: 160 });
  const table = new Table({
    label: "Hot, pinned and blocked keys", key: ({ id }) => id, sort: "rate", empty: "No key is hot, pinned or blocked.", stacked: true,
    columns: [
      {
        name: "key", title: "Key", class: "mono key", sort: keyText, sign: ({ id }) => id,
        node: (key) => [h("span", { text: shortened(keyText(key), 56), title: keyText(key).slice(0, 4096) }), h("span", { class: "dim block", text: `${key.namespace}${key.kind === "range" ? ", range" : ""}` })],
      },
      {
        name: "standing", title: "State", sort: ({ standing }) => standing, sign: (key) => JSON.stringify([key.standing, key.blocked, key.pinned]),
        node: (key) => {
          const listing = key.standing === "blocked" ? key.blocked : key.standing === "pinned" ? key.pinned : null;
          const about = listing && [`by ${listing.by}`, ago(listing.at), listing.until && `until ${time(listing.until)}`, listing.reason && `“${listing.reason}”`].filter(Boolean).join(", ");
          return [badge(key.standing, { blocked: "bad", pinned: "info" }[key.standing] ?? "warn"), about ? h("span", { class: "dim block wrap", text: about }) : null].filter(Boolean);
        },
      },
      { name: "rate", title: "Reads/s", number: true, sort: (key) => key.rate_now, text: (key) => format(key.rate_now) },
      { name: "ru", title: "RU/s", number: true, about: "What its reads would cost if each asked the store", sort: (key) => key.ru_rate, text: (key) => format(key.ru_rate) },
      {
        name: "hits", title: "From cache", number: true, sort: (key) => key.hit_ratio, sign: (key) => String(Math.round(key.hit_ratio * 100)),
        node: (key) => [bar(key.hit_ratio), h("span", { class: "bar-text", text: format(Math.round(key.hit_ratio * 100) / 100, "share") })],
      },
      { name: "age", title: "Hot for", number: true, wide: true, sort: (key) => key.hot_for_ms, text: (key) => (key.is_hot ? duration(key.hot_for_ms) : "–") },
      {
        name: "callers", title: "Read by", wide: true, sign: (key) => key.callers.map(({ caller, share }) => `${caller} ${Math.round(share * 20)}`).join(),
        node: (key) => key.callers.slice(0, 3).map(({ caller, share }) => h("a", { class: "block", href: `#/callers/${encodeURIComponent(caller)}`, text: `${shortened(caller, 24)} ${Math.round(share * 100)}\u2009%` })),
      },
      {
        name: "actions", title: "", class: "actions-cell", sign: (key) => `${Boolean(key.pinned)} ${Boolean(key.blocked)}`,
        node: (key) => ["pinned", "blocked"].map((which) => h("button", {
          type: "button", class: which === "blocked" && !key.blocked ? "change danger small" : "change small", text: key[which] ? VERBS[which].undo : VERBS[which].do,
          "aria-label": `${key[which] ? VERBS[which].undo : VERBS[which].do} ${name(key).slice(0, 120)}`,
          on: { click: () => (key[which] ? unlist(which, key) : list(which, `id/${key.id}`, name(key), key)) },
        })),
      },
    ],
  });
  const view = {
    title: "Hot keys",
    series: ["hot_hits", "hot_collapsed"],
    element: h("div", { class: "view" },
      h("div", { class: "tiles" }, Object.values(tiles).map((tile) => tile.element)),
      panel("Keys", table.element, { wide: true, tools: ["pinned", "blocked"].map((which) => h("button", { type: "button", class: "change", text: `${VERBS[which].do} a key…`, on: { click: () => byName(which) } })) }),
      panel("What it saves", chart.element, { wide: true })),
    needs: () => ({ hot: { path: "admin/v1/hot", every: 1_000 } }),
    update({ hot: report, history }) {
      if (report) {
        table.update(report.keys);
        tiles.reads.show(parts(report.pod.reads_rate, "/s"));
        tiles.saved.show(parts(report.pod.saved_share, "share"));
        tiles.threshold.show(parts(report.pod.threshold_rate, "/s"));
        tiles.flights.show(parts(report.pod.flights));
        tiles.cache.show(parts(report.pod.cache_bytes, "B"), `${count(report.pod.cache_entries)} ${report.pod.cache_entries === 1 ? "answer" : "answers"}`);
      }
      if (history) {
        chart.update(history.chart([
          { label: "cache hits of hot keys", colour: "series-2", values: history.outcome("hot_hits") },
          { label: "joined another read", colour: "series-4", values: history.outcome("hot_collapsed") },
        ]), marks(page.events()));
      }
    },
  };

  async function list(which, target, what, key) {
    const readers = key?.callers?.length ? `Read most by ${key.callers.map(({ caller, share }) => `${caller} (${Math.round(share * 100)} %)`).join(", ")}.` : "";
    const values = await ask({
      title: `${VERBS[which].do} this key?`,
      about: [h("p", { class: "mono wrap", text: shortened(what, 300) }), EFFECTS[which], readers].filter(Boolean),
      fields: [
        { name: "reason", label: "Reason", maxlength: 256, hint: "Shown with the key and in the events." },
        { name: "ttl", label: "For how long", type: "select", options: LIVES },
      ],
      action: VERBS[which].do, kind: which === "blocked" ? "danger" : "primary",
    });
    if (!values) return;
    const body = {};
    if (values.reason.trim()) body.reason = values.reason.trim();
    if (values.ttl) body.ttl = values.ttl;
    await page.change("PUT", `admin/v1/hot/${which}/${target}`, { body }, `The key is ${VERBS[which].done}.`);
    page.refresh("hot");
  }

  async function unlist(which, key) {
    const values = await ask({ title: `${VERBS[which].undo} this key?`, about: h("p", { class: "mono wrap", text: shortened(name(key), 300) }), action: VERBS[which].undo });
    if (!values) return;
    await page.change("DELETE", `admin/v1/hot/${which}/id/${key.id}`, {}, `The key is ${VERBS[which].undone}.`);
    page.refresh("hot");
  }

  async function byName(which) {
    const values = await ask({
      title: `${VERBS[which].do} a key`, about: EFFECTS[which], action: "Continue",
      fields: [
        { name: "namespace", label: "Namespace", required: true }, { name: "pk", label: "Partition key", required: true },
        { name: "sk", label: "Sort key", hint: "Leave it empty for a row without one." },
        { name: "enc", label: "Keys are written as", type: "select", options: [["", "text"], ["b64u", "base64url, for bytes that are no text"]] },
      ],
    });
    if (!values) return;
    const keys = [values.pk, values.sk].filter(Boolean).map(encodeURIComponent).join("/");
    const target = `ns/${encodeURIComponent(values.namespace)}/kv/${keys}${values.enc ? `?enc=${values.enc}` : ""}`;
    await list(which, target, `${values.namespace}: ${values.pk}${values.sk ? ` / ${values.sk}` : ""}`);
  }

  return view;
}
