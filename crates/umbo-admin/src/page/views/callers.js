// Who asks: every caller with its rates and totals, and one of them in detail.

import { Chart, last } from "../chart.js";
import { bar, h, panel, Table, Tile } from "../dom.js";
import { count, format, keyText, parts, quantity, shortened, visible } from "../format.js";
import { marks } from "../live.js";
import { refusals } from "./why.js";

const SERIES = ["caller_ru", "caller_requests", "caller_rejected", "caller_bytes"];
/** Callers that are read at most. */
const CALLERS_MAX = 10_000;

export function callers(page, name) {
  return name === null ? list(page) : detail(page, name);
}

function list(page) {
  let text = "";
  const filter = h("input", { type: "search", placeholder: "Filter callers", "aria-label": "Filter callers", on: { input: () => { text = filter.value.toLowerCase(); view.update(view.data ?? {}); } } });
  const rate = (field, unit) => ({ number: true, sort: (row) => row[field] ?? null, text: (row) => format(row[field] ?? null, unit) });
  const table = new Table({
    label: "Callers", key: ({ caller }) => caller, sort: "ru_rate", empty: "No caller has sent a request yet.", stacked: true,
    onRow: ({ caller }) => page.go(`#/callers/${encodeURIComponent(caller)}`),
    columns: [
      {
        name: "caller", title: "Caller", sort: ({ caller }) => caller, sign: ({ caller }) => caller, class: "name",
        node: ({ caller }) => h("a", { href: `#/callers/${encodeURIComponent(caller)}`, text: visible(caller) }),
      },
      { name: "ru_rate", title: "RU/s", about: "Request units charged a second, now", ...rate("ru_rate", "") },
      {
        name: "share", title: "Share", number: true, about: "Share of all request units charged now", sort: ({ share }) => share ?? null,
        sign: ({ share }) => String(Math.round((share ?? -1) * 200)), node: ({ share }) => (share === null ? [] : [bar(share), h("span", { class: "bar-text", text: `${Math.round(share * 100)}\u2009%` })]),
      },
      { name: "requests_rate", title: "Requests/s", ...rate("requests_rate", "") },
      { name: "bytes_rate", title: "Bytes/s", ...rate("bytes_rate", "B/s") },
      { name: "rejected_rate", title: "Rejected/s", ...rate("rejected_rate", ""), class: "rejected-text" },
      { name: "ru", title: "RU", wide: true, about: "Request units since the start", ...rate("ru", "") },
      { name: "requests", title: "Requests", wide: true, about: "Requests since the start", ...rate("requests", "") },
      { name: "rejected", title: "Rejected", wide: true, about: "Rejected since the start", ...rate("rejected", "") },
      { name: "penalty", title: "Penalty RU", wide: true, about: "Request units that overloads added to plain prices, since the start", ...rate("penalty", "") },
    ],
  });
  const chart = new Chart({ title: "Busiest callers", unit: "RU/s", kind: "area", height: 200 });
  const note = h("p", { class: "hint", text: "Rates are of the busiest callers now; totals are of this process since its start." });
  const view = {
    title: "Callers",
    series: SERIES,
    element: h("div", { class: "view" }, panel("Load by caller", chart.element, { wide: true }), panel("All callers", h("div", {}, note, table.element), { wide: true, tools: [filter] })),
    needs: () => ({ callers: { path: `admin/v1/callers?limit=${CALLERS_MAX}`, every: 5_000 } }),
    update(data) {
      view.data = data;
      const rows = new Map((data.callers?.callers ?? []).map((row) => [row.caller, { ...row }]));
      const { history } = data;
      if (history) {
        chart.update(history.chart(history.byLabel("caller_ru", "caller", (_, at) => `series-${at % 10}`, { text: (name) => shortened(visible(name), 32) })), marks(page.events()));
        for (const [field, series] of [["ru_rate", "caller_ru"], ["requests_rate", "caller_requests"], ["rejected_rate", "caller_rejected"], ["bytes_rate", "caller_bytes"]]) {
          for (const { labels, values } of history.all(series)) {
            if (!rows.has(labels.caller)) rows.set(labels.caller, { caller: labels.caller });
            rows.get(labels.caller)[field] = values.at(-1);
          }
        }
      }
      const all = [...rows.values()];
      const sum = all.reduce((before, { ru_rate: now }) => before + (now ?? 0), 0);
      for (const row of all) row.share = sum > 0 && row.ru_rate !== undefined && row.ru_rate !== null ? row.ru_rate / sum : null;
      if (data.callers || all.length) table.update(all.filter(({ caller }) => caller.toLowerCase().includes(text)));
    },
  };
  return view;
}

function detail(page, name) {
  let policies = null;
  const labels = { caller: name };
  const tiles = { ru: new Tile("Request units"), requests: new Tile("Requests"), rejected: new Tile("Rejected", "rejected"), bytes: new Tile("Bytes"), penalty: new Tile("Penalty", "", "Request units that overloads added, since the start") };
  const charts = {
    ru: new Chart({ title: "Request units", unit: "RU/s", kind: "area" }),
    requests: new Chart({ title: "Requests", unit: "/s", kind: "area" }),
    bytes: new Chart({ title: "Bytes", unit: "B/s", kind: "area" }),
  };
  const usage = new Table({
    label: "Usage by namespace and operation", key: (row) => `${row.namespace} ${row.operation}`, sort: "ru", empty: "Nothing was charged yet.", stacked: true,
    columns: [
      { name: "namespace", title: "Namespace", sort: (row) => row.namespace, text: (row) => row.namespace },
      { name: "operation", title: "Operation", sort: (row) => row.operation, text: (row) => row.operation },
      { name: "requests", title: "Requests", number: true, sort: (row) => row.requests, text: (row) => count(row.requests) },
      { name: "rejected", title: "Rejected", number: true, sort: (row) => row.rejected, text: (row) => count(row.rejected) },
      { name: "ru", title: "RU", number: true, sort: (row) => row.ru, text: (row) => format(row.ru) },
    ],
  });
  const quota = new Table({
    label: "Policies with what is left", key: (row) => `${row.policy} ${row.label}`, sort: "left", descending: false, empty: "No policy has counted this caller yet.", stacked: true,
    columns: [
      { name: "policy", title: "Policy", sort: (row) => row.policy, sign: (row) => row.policy, node: (row) => h("a", { href: `#/quotas/${encodeURIComponent(row.policy)}`, text: row.policy }) },
      { name: "label", title: "Bucket", text: (row) => row.label },
      { name: "observed", title: "Asked/s", number: true, text: (row) => format(row.observed) },
      { name: "limit", title: "Limit/s", number: true, text: (row) => format(row.rate) },
      {
        name: "left", title: "Left", number: true, sort: (row) => row.left, sign: (row) => `${Math.round(row.left * 100)} ${Math.round(row.balance)}`,
        node: (row) => [bar(row.left, row.left < 0.1 ? "bad" : ""), h("span", { class: "bar-text", text: format(row.balance) })],
      },
      { name: "rejected", title: "Rejected", number: true, sort: (row) => row.rejected, text: (row) => count(row.rejected) },
    ],
  });
  const keys = new Table({
    label: "Hottest keys", key: (row) => row.id, sort: "rate", empty: "None of the hot keys is read by this caller.", stacked: true,
    columns: [
      { name: "key", title: "Key", class: "mono", sign: (row) => row.id, node: (row) => h("a", { href: "#/hot", text: shortened(keyText(row), 48), title: keyText(row).slice(0, 2048) }) },
      { name: "namespace", title: "Namespace", text: (row) => row.namespace },
      { name: "rate", title: "Reads/s", number: true, sort: (row) => row.rate, text: (row) => format(row.rate) },
      { name: "share", title: "Of the key", number: true, text: (row) => format(row.share, "share") },
    ],
  });
  const reasons = refusals("Refusals by reason", "Nothing of this caller was refused in the last 15 minutes.");
  const view = {
    title: `Caller ${shortened(visible(name), 40)}`,
    series: SERIES,
    element: h("div", { class: "view" },
      h("p", {}, h("a", { href: "#/callers", text: "← All callers" })),
      h("div", { class: "tiles" }, Object.values(tiles).map((tile) => tile.element)),
      h("div", { class: "grid" },
        panel("Its load", h("div", { class: "charts three" }, Object.values(charts).map((chart) => chart.element)), { wide: true }),
        panel("Refusals by reason, last 15 minutes", reasons.element, { wide: true }),
        panel("Policies with what is left", quota.element),
        panel("Hottest keys", keys.element),
        panel("Usage since the start", usage.element, { wide: true }))),
    needs: () => ({
      usage: { path: `admin/v1/callers/${encodeURIComponent(name)}`, every: 3_000 }, quotas: { path: "admin/v1/quotas", every: 5_000 },
      hot: { path: "admin/v1/hot", every: 2_000 }, why: { path: `admin/v1/why?caller=${encodeURIComponent(name)}&last=15m`, every: 5_000 },
      ...Object.fromEntries((policies ?? []).map((policy) => [`users ${policy}`, { path: `admin/v1/quotas/${encodeURIComponent(policy)}/users?limit=1000`, every: 3_000 }])),
    }),
    update(data) {
      policies = data.quotas?.policies.map(({ policy }) => policy.name) ?? policies;
      if (data.history) showHistory(data.history);
      const rows = data.usage?.rows ?? [];
      if (data.usage) usage.update(rows);
      tiles.penalty.show(parts(rows.reduce((sum, row) => sum + (row.penalty ?? 0), 0), "RU"));
      // A label names each dimension of the bucket, like `caller=search namespace=listings`.
      const isOwn = ({ label }) => ` ${label} `.includes(` caller=${name} `);
      const isRead = policies?.some((policy) => data[`users ${policy}`]);
      if (isRead) quota.update(policies.flatMap((policy) => (data[`users ${policy}`]?.users ?? []).filter(isOwn).map((user) => ({
        policy, ...user, rate: quantity(user.limit.rate), left: user.balance / quantity(user.limit.burst),
      }))));
      if (data.hot) keys.update(data.hot.keys.flatMap((key) => key.callers.filter(({ caller }) => caller === name).map(({ share }) => ({ ...key, share, rate: key.rate_now * share }))));
      if (data.why) reasons.update(data.why.reasons);
    },
  };

  function showHistory(history) {
    const at = marks(page.events());
    const now = (series) => last(history.outcome(series, labels));
    tiles.ru.show(parts(now("caller_ru"), "RU/s"));
    tiles.requests.show(parts(now("caller_requests"), "/s"));
    tiles.rejected.show(parts(now("caller_rejected"), "/s"));
    tiles.bytes.show(parts(now("caller_bytes"), "B/s"));
    charts.ru.update(history.chart([{ label: "request units", colour: "accent", values: history.one("caller_ru", labels) }]), at);
    charts.requests.update(history.chart([
      { label: "admitted", colour: "served", values: history.outcome("caller_requests", labels) },
      { label: "rejected (quota)", colour: "rejected", values: history.outcome("caller_rejected", labels) },
    ]), at);
    charts.bytes.update(history.chart([{ label: "bytes", colour: "series-3", values: history.one("caller_bytes", labels) }]), at);
  }

  return view;
}
