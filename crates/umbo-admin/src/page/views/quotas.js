// Policies: how much of each is used, what it rejects, and a form that tries one before it is set.

import { Chart, palette } from "../chart.js";
import { reasonHeader } from "../api.js";
import { ask, badge, bar, h, panel, Table } from "../dom.js";
import { count, format, quantity } from "../format.js";
import { marks } from "../live.js";
import { policyForm } from "./policy_form.js";

const SERIES = ["policy_rejected", "policy_would_reject", "policy_utilisation"];

export function quotas(page, name) {
  return name === null ? list(page) : detail(page, name);
}

const modeOf = (policy) => policy.mode ?? "enforce";

/** Which requests a policy counts, in words. */
function counted(policy) {
  const { operations, ...patterns } = policy.match ?? {};
  const matches = Object.entries(patterns).map(([dimension, pattern]) => `${dimension} ${pattern}`);
  return [matches.join(", ") || "all requests", operations?.length ? `of ${operations.join(", ")}` : "", policy.per?.length ? `each ${policy.per.join(" × ")}` : "together"].filter(Boolean).join("; ");
}

function list(page) {
  const form = policyForm(page);
  const table = new Table({
    label: "Policies", key: ({ policy }) => policy.name, sort: "utilisation", empty: "No policy is in effect.", stacked: true,
    onRow: ({ policy }) => page.go(`#/quotas/${encodeURIComponent(policy.name)}`),
    columns: [
      { name: "name", title: "Policy", class: "name", sort: ({ policy }) => policy.name, sign: ({ policy }) => policy.name, node: ({ policy }) => h("a", { href: `#/quotas/${encodeURIComponent(policy.name)}`, text: policy.name }) },
      { name: "counts", title: "Counts", wide: true, text: ({ policy }) => counted(policy) },
      { name: "rate", title: "Limit", number: true, class: "nowrap", sort: ({ policy }) => quantity(policy.rate), text: ({ policy }) => `${policy.rate} ${policy.unit}/s` },
      {
        name: "utilisation", title: "Used", number: true, about: "Requested rate over the limit, of the bucket where it is highest", sort: ({ counters }) => counters.utilisation, sign: ({ counters }) => String(Math.round(counters.utilisation * 100)),
        node: ({ counters }) => [bar(counters.utilisation, counters.utilisation > 1 ? "bad" : counters.utilisation > 0.8 ? "warn" : ""), h("span", { class: "bar-text", text: format(Math.round(counters.utilisation * 100) / 100, "share") })],
      },
      { name: "buckets", title: "Buckets", number: true, wide: true, sort: ({ counters }) => counters.buckets, text: ({ counters }) => count(counters.buckets) },
      { name: "rejected", title: "Rejected", number: true, sort: ({ counters }) => counters.rejected, text: ({ counters }) => count(counters.rejected) },
      { name: "shadow", title: "Would reject", number: true, wide: true, sort: ({ counters }) => counters.shadow_rejected, text: ({ counters }) => count(counters.shadow_rejected) },
      { name: "mode", title: "Mode", sort: ({ policy }) => modeOf(policy), sign: ({ policy }) => modeOf(policy), node: ({ policy }) => badge(modeOf(policy), modeOf(policy) === "shadow" ? "plain" : "info") },
      { name: "source", title: "Source", wide: true, sort: ({ source }) => source, text: ({ source }) => source },
    ],
  });
  const charts = {
    policy_utilisation: new Chart({ title: "How much is used", unit: "share", ceiling: 1, about: "Requested rate over the limit, of the bucket where it is highest" }),
    policy_rejected: new Chart({ title: "Rejected by policy", unit: "/s", kind: "area" }),
    policy_would_reject: new Chart({ title: "Would be rejected by shadow policies", unit: "/s", kind: "area" }),
  };
  return {
    title: "Quotas",
    series: SERIES,
    element: h("div", { class: "view" },
      panel("Policies in effect", table.element, { wide: true, tools: [h("a", { class: "change everywhere button", href: "#/quotas/+new", text: "New policy" })] }),
      panel("Over time", h("div", { class: "charts three" }, Object.values(charts).map((chart) => chart.element)), { wide: true }),
      form.element),
    needs: () => ({ quotas: { path: "admin/v1/quotas", every: 2_000 } }),
    update({ history, quotas: answer }) {
      if (answer) table.update(answer.policies);
      if (!history) return;
      for (const [name, chart] of Object.entries(charts)) chart.update(history.chart(history.byLabel(name, "policy", (_, at) => palette(at))), marks(page.events()));
    },
  };
}

function detail(page, name) {
  const isNew = name === "+new";
  const form = policyForm(page, () => page.refresh());
  const labels = { policy: name };
  const about = h("dl", { class: "facts" });
  const chart = new Chart({ title: "Requests that it refused", unit: "/s", kind: "area" });
  const used = new Chart({ title: "How much of it is used", unit: "share", ceiling: 1, about: "Requested rate over the limit, of the bucket where it is highest" });
  const users = new Table({
    label: "Buckets", key: ({ label }) => label, sort: "observed", empty: "No caller has been counted yet.", limit: 100, stacked: true,
    columns: [
      { name: "label", title: "Bucket", class: "mono", sort: ({ label }) => label, text: ({ label }) => label },
      { name: "observed", title: "Asked/s", number: true, sort: ({ observed }) => observed, text: ({ observed }) => format(observed) },
      { name: "limit", title: "Limit/s", number: true, sort: ({ limit }) => quantity(limit.rate), text: ({ limit }) => String(limit.rate) },
      {
        name: "left", title: "Left", number: true, sort: ({ balance }) => balance, sign: ({ balance, limit }) => `${Math.round(balance)} ${Math.round((100 * balance) / quantity(limit.burst))}`,
        node: ({ balance, limit }) => [bar(balance / quantity(limit.burst), balance / quantity(limit.burst) < 0.1 ? "bad" : ""), h("span", { class: "bar-text", text: format(balance) })],
      },
      { name: "rejected", title: "Rejected", number: true, sort: ({ rejected }) => rejected, text: ({ rejected }) => count(rejected) },
    ],
  });
  const remove = h("button", { type: "button", class: "change everywhere danger", text: "Remove…", hidden: true, on: { click: () => askToRemove() } });
  let filled = false;
  const view = {
    title: isNew ? "New policy" : `Policy ${name}`,
    series: isNew ? undefined : SERIES,
    element: h("div", { class: "view" },
      h("p", {}, h("a", { href: "#/quotas", text: "← All policies" })),
      isNew ? h("p", { class: "observes hint", text: "This token may not change policies: that needs the permission admin on every namespace." }) : h("div", { class: "grid" },
        panel("As it is in effect", about, { tools: [remove] }),
        panel("What it did", h("div", { class: "charts" }, used.element, chart.element)),
        panel("Who it counts", users.element, { wide: true })),
      form.element),
    needs: () => (isNew ? {} : {
      policy: { path: `admin/v1/quotas/${encodeURIComponent(name)}`, every: 2_000 },
      users: { path: `admin/v1/quotas/${encodeURIComponent(name)}/users?limit=1000`, every: 1_000 },
    }),
    update({ history, policy: info, users: answer }) {
      if (info) {
        remove.hidden = info.source !== "stored";
        const { policy } = info;
        const facts = [
          ["Counts", counted(policy)], ["Limit", `${policy.rate} ${policy.unit} a second, at most ${policy.burst} at once`], ["Mode", modeOf(policy)],
          ["Source", info.source], ["Used", format(info.counters.utilisation, "share")], ["Rejected", count(info.counters.rejected)], ["Would have rejected", count(info.counters.shadow_rejected)],
          ["Exceptions", (policy.overrides ?? []).map((one) => `${counted({ match: one.match, per: ["bucket"] }).split(";")[0]}: ${one.rate}`).join("; ") || "none"],
        ];
        const sign = JSON.stringify(facts);
        if (about.sign !== sign) {
          about.sign = sign;
          about.replaceChildren(...facts.flatMap(([term, text]) => [h("dt", { text: term }), h("dd", { text })]));
        }
        if (!filled) {
          filled = true;
          form.fill(policy);
        }
      }
      if (answer) users.update(answer.users);
      if (history) {
        chart.update(history.chart([
          { label: "rejected", colour: "rejected", values: history.outcome("policy_rejected", labels) },
          { label: "would be rejected (shadow)", colour: "series-6", values: history.outcome("policy_would_reject", labels) },
        ]), marks(page.events()));
        used.update(history.chart([{ label: "of the limit", colour: "accent", values: history.outcome("policy_utilisation", labels) }]), marks(page.events()));
      }
    },
  };

  async function askToRemove() {
    const change = await page.change("DELETE", `admin/v1/quotas/${encodeURIComponent(name)}?dry_run=true`, {});
    if (!change) return;
    const after = change.after ? `Afterwards the built-in policy of this name is in effect: ${change.after.rate} ${change.after.unit}/s.` : "Afterwards no policy has this name.";
    const values = await ask({ title: `Remove ${name}?`, about: after, fields: [{ name: "reason", label: "Reason", maxlength: 256 }], action: "Remove", kind: "danger" });
    if (!values) return;
    const done = await page.change("DELETE", `admin/v1/quotas/${encodeURIComponent(name)}`, { headers: reasonHeader(values.reason) }, `The policy ${name} is removed.`);
    if (done) page.go("#/quotas");
  }

  return view;
}
