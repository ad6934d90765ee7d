// Why a request was refused, failed or slow: one by its id, or the reasons of a caller's refusals.

import { badge, bar, h, panel, Table } from "../dom.js";
import { count, duration, format, time, visible } from "../format.js";

const LASTS = [["5m", "5 minutes"], ["15m", "15 minutes"], ["1h", "1 hour"]];
const OUTCOME_KINDS = { served: "good", refused: "warn", rejected: "warn", shed: "warn", failed: "bad" };

export function why(page, argument) {
  const isCaller = argument?.startsWith("caller=");
  const request = h("input", { id: "why-id", name: "id", placeholder: "24868a01000000000001", spellcheck: "false", autocomplete: "off", value: isCaller ? "" : argument ?? "" });
  const caller = h("input", { id: "why-caller", name: "caller", placeholder: "search", spellcheck: "false", autocomplete: "off", value: isCaller ? argument.slice(7) : "" });
  const last = h("select", { "aria-label": "Window" }, LASTS.map(([value, text]) => h("option", { value, text, selected: value === "15m" })));
  const result = h("div", { class: "view", "aria-live": "polite" });
  const form = (label, input, button, submit, ...more) => h("form", { class: "ask-row", on: { submit: (event) => { event.preventDefault(); submit(); } } },
    h("label", { for: input.id, text: label }), h("div", { class: "row" }, input, more, h("button", { type: "submit", class: "primary", text: button })));

  async function showRequest() {
    const id = request.value.trim();
    if (!id) return;
    recent.remove();
    history.replaceState(null, "", `#/why/${encodeURIComponent(id)}`);
    try {
      result.replaceChildren(record(await page.read(`admin/v1/why/${encodeURIComponent(id)}`)));
    } catch (error) {
      fail(error);
    }
  }

  async function showCaller() {
    const name = caller.value.trim();
    if (!name) return;
    recent.remove();
    history.replaceState(null, "", `#/why/${encodeURIComponent(`caller=${name}`)}`);
    try {
      result.replaceChildren(reasons(await page.read(`admin/v1/why?caller=${encodeURIComponent(name)}&last=${last.value}`)));
    } catch (error) {
      fail(error);
    }
  }

  function fail(error) {
    result.replaceChildren(h("section", { class: "panel wide" }, h("p", { class: "problem", role: "alert", text: error.message })));
  }

  const newest = refusals("Last refusals", "Nothing was refused in the last 15 minutes.", true);
  const recent = panel("Last refusals, of the last 15 minutes", newest.element, { wide: true });
  return {
    title: "Why",
    element: h("div", { class: "view" },
      h("section", { class: "panel wide" }, h("div", { class: "grid flat" },
        form("Request id, as umbo-request-id says it", request, "Explain", showRequest),
        form("Or all refusals of a caller", caller, "Group", showCaller, last))),
      result, argument === null ? recent : null),
    needs: () => (recent.isConnected ? { refused: { path: "admin/v1/why?last=15m", every: 5_000 } } : {}),
    update({ refused }) {
      if (refused) newest.update(refused.reasons);
      if (argument === null) return;
      const isOfCaller = isCaller;
      argument = null;
      if (isOfCaller) showCaller();
      else showRequest();
    },
  };
}

function record(found) {
  const facts = [
    ["Request", found.id], ["When", time(found.at_ms)], ["Operation", found.operation], ["Namespace", found.namespace], ["Caller", found.caller && visible(found.caller)],
    ["Criticality", found.criticality], ["Status", found.status], ["Code", found.code], ["Total", format(found.total_ms, "ms")],
    ["Estimated", format(found.estimate_ru, "RU")], ["Charged", format(found.actual_ru, "RU")], ["Shard", found.shard], ["Node", found.node],
    ["Kept by", found.kept && `${found.kept.server}, ${time(found.kept.at_ms)}`], ["Attempts", found.attempts], ["Cache", found.cache], ["Pressure", found.pressure === undefined || found.pressure === null ? undefined : format(found.pressure)],
    ["Queue", found.queue && Object.entries(found.queue).map(([name, value]) => `${name.replaceAll("_", " ")} ${value}`).join(", ")],
    ["Parts of the price", found.ru_parts && Object.entries(found.ru_parts).filter(([, ru]) => ru).map(([part, ru]) => `${part.replaceAll("_", " ")} ${format(ru, "RU")}`).join(", ")],
  ].filter(([, value]) => value !== undefined && value !== null && value !== "");
  const total = Math.max(1e-9, found.total_ms ?? 0, ...(found.phases ?? []).map(({ ms }) => ms));
  const phases = new Table({
    label: "Phases", key: ({ phase }) => phase, empty: "No phase was begun.",
    columns: [
      { name: "phase", title: "Phase", text: ({ phase }) => phase },
      { name: "ms", title: "Time", number: true, text: ({ ms }) => format(ms, "ms") },
      { name: "share", title: "", sign: ({ ms }) => String(ms), node: ({ ms }) => bar(ms / total) },
    ],
  });
  phases.update(found.phases ?? []);
  const policies = new Table({
    label: "Policies", key: (row) => `${row.policy} ${row.scope}`, empty: "No policy was asked.", stacked: true,
    columns: [
      { name: "policy", title: "Policy", sign: (row) => row.policy, node: (row) => h("a", { href: `#/quotas/${encodeURIComponent(row.policy)}`, text: row.policy }) },
      { name: "scope", title: "Scope", text: (row) => row.scope ?? "" },
      { name: "balance", title: "Balance", number: true, text: (row) => format(row.balance ?? null) },
      { name: "cost", title: "Cost", number: true, text: (row) => format(row.cost ?? null) },
      { name: "verdict", title: "Verdict", sign: (row) => row.verdict ?? "", node: (row) => badge(row.verdict ?? "", /admit/.test(row.verdict) ? "good" : "warn") },
    ],
  });
  policies.update(found.policies ?? []);
  return h("div", { class: "view" },
    h("section", { class: "panel wide" }, h("header", { class: "panel-head" }, h("h2", {}, "What happened ", badge(found.outcome ?? String(found.status), OUTCOME_KINDS[found.outcome] ?? "plain"))), h("p", { class: "verdict wrap", text: found.text ?? "" }), h("dl", { class: "facts two" }, facts.flatMap(([term, value]) => [h("dt", { text: term }), h("dd", { text: String(value) })]))),
    h("div", { class: "grid" },
      h("section", { class: "panel" }, h("header", { class: "panel-head" }, h("h2", { text: "Where the time went" })), phases.element),
      h("section", { class: "panel" }, h("header", { class: "panel-head" }, h("h2", { text: "Policies that were asked" })), policies.element)));
}

function reasons(answer) {
  const table = refusals("Reasons", "Nothing of this caller was refused in this time.");
  table.update(answer.reasons ?? []);
  return h("section", { class: "panel wide" },
    h("header", { class: "panel-head" }, h("h2", { text: `Refusals of ${visible(answer.caller)}, last ${duration(answer.window_ms)}` })),
    table.element, h("p", { class: "hint", text: [`Counts are kept for ${duration(answer.kept_for_ms)}.`, answer.kept && `${count(answer.kept)} of them were by other servers or before a restart.`, ...(answer.notes ?? [])].filter(Boolean).join(" ") }));
}

/** A table of refusals by reason; of all callers the last ones first, with their callers. */
export function refusals(label, empty, isOfAll = false) {
  const caller = {
    name: "caller", title: "Caller", class: "name", sort: (row) => row.caller, sign: (row) => row.caller,
    node: (row) => h("a", { href: `#/why/${encodeURIComponent(`caller=${row.caller}`)}`, text: visible(row.caller) }),
  };
  return new Table({
    label, key: (row) => `${row.caller ?? ""} ${row.code} ${row.policy ?? ""} ${row.shard ?? ""}`, sort: isOfAll ? "last" : "count", empty, stacked: true,
    columns: [
      ...(isOfAll ? [caller] : []),
      { name: "code", title: "Reason", sign: (row) => row.code, node: (row) => badge(row.code, "warn") },
      { name: "count", title: "Count", number: true, sort: (row) => row.count, text: (row) => count(row.count) },
      { name: "where", title: "Policy or shard", class: "wrap", text: (row) => row.policy ?? (row.shard === undefined || row.shard === null ? "" : `shard ${row.shard}`) },
      { name: "last", title: "Last", class: "nowrap", sort: (row) => row.last_at_ms, text: (row) => time(row.last_at_ms) },
      { name: "text", title: "In words", class: "wrap", text: (row) => row.text ?? "" },
      { name: "example", title: "Example", class: "mono wrap", sign: (row) => row.example ?? "", node: (row) => (row.example ? h("a", { href: `#/why/${encodeURIComponent(row.example)}`, text: row.example }) : "") },
    ],
  });
}
