// The form of a policy: simulated against what was recorded, checked by a dry run, and only then set.

import { reasonHeader } from "../api.js";
import { colour, fit } from "../chart.js";
import { bar, h, setText, Table } from "../dom.js";
import { count, duration, format, quantity } from "../format.js";
import { difference } from "./events.js";

const UNITS = ["ru", "requests", "reads", "writes", "read-bytes", "write-bytes", "bytes"];
const DIMENSIONS = ["caller", "namespace", "user", "session", "org", "shard"];
/** Rates that are simulated beside the one that is asked for, as factors of it. */
const FACTORS = [0.125, 0.25, 0.5, 0.75, 1, 1.5, 2, 4, 8];
/** A simulation replays up to an hour of requests, in milliseconds. */
const SIMULATION_TIMEOUT = 60_000;

function field(label, input, hint) {
  input.id ||= `policy-${label.toLowerCase().replace(/\W+/g, "-")}`;
  return h("div", { class: "field" }, h("label", { for: input.id, text: label }), input, hint ? h("small", { text: hint }) : null);
}

const options = (values, chosen) => values.map((value) => h("option", { value, text: value, selected: value === chosen }));

/** The condition that a policy is still the stored one; none where none of this name is stored. */
async function storedAs(page, name) {
  try {
    const { policies } = await page.read("admin/v1/quotas");
    const version = policies.find(({ policy }) => policy.name === name)?.version;
    return version === undefined ? {} : { "If-Match": `"${version}"` };
  } catch {
    // What is wrong the dry run says.
    return {};
  }
}

export function policyForm(page, onSet = () => {}) {
  const inputs = {
    name: h("input", { required: true, pattern: "[a-z0-9][a-z0-9._\\-]{0,63}", spellcheck: "false", autocomplete: "off" }),
    caller: h("input", { placeholder: "any, like search-*", spellcheck: "false" }),
    namespace: h("input", { placeholder: "any, like listing-*", spellcheck: "false" }),
    unit: h("select", {}, options(UNITS, "ru")),
    rate: h("input", { required: true, placeholder: "units a second, like 1000 or 64KiB", spellcheck: "false" }),
    burst: h("input", { placeholder: "one second of the rate", spellcheck: "false" }),
    mode: h("select", {}, options(["enforce", "shadow"], "enforce")),
    reason: h("input", { maxlength: "256", placeholder: "why, for the events" }),
  };
  const per = DIMENSIONS.map((dimension) => h("input", { type: "checkbox", value: dimension, checked: dimension === "caller" }));
  let original = {};
  let checked = null;
  /** What a change is conditional on: the stored policy that the dry run saw. */
  let condition = {};
  const result = h("div", { class: "result", "aria-live": "polite" });
  const buttons = {
    simulate: h("button", { type: "submit", class: "primary", text: "1. Simulate" }),
    check: h("button", { type: "button", text: "2. Dry run", disabled: true, on: { click: () => check() } }),
    set: h("button", { type: "button", text: "3. Set", disabled: true, on: { click: () => set() } }),
  };
  const form = h("form", { class: "policy", on: { submit: (event) => { event.preventDefault(); simulate(); }, input: (event) => changed(event) } },
    h("div", { class: "fields" },
      field("Name", inputs.name), field("Caller", inputs.caller, "A * stands for any run of characters."), field("Namespace", inputs.namespace),
      field("Unit", inputs.unit), field("Rate", inputs.rate), field("Burst", inputs.burst), field("Mode", inputs.mode, "shadow counts what it would reject and rejects nothing."),
      field("Reason", inputs.reason)),
    h("fieldset", {}, h("legend", { text: "One bucket for each" }), per.map((input) => h("label", { class: "check" }, input, input.value))),
    h("div", { class: "actions start" }, Object.values(buttons)));
  const element = h("section", { class: "change everywhere panel wide" }, h("header", { class: "panel-head" }, h("h2", { text: "Try and set a policy" })), form, result);

  /** What was simulated or checked is no longer what the form says. */
  function changed(event) {
    if (event.target === inputs.reason) return;
    checked = null;
    buttons.check.disabled = buttons.set.disabled = true;
  }

  function spec() {
    const { name, caller, namespace, unit, rate, burst, mode } = Object.fromEntries(Object.entries(inputs).map(([key, input]) => [key, input.value.trim()]));
    const match = { ...original.match };
    for (const [key, value] of [["caller", caller], ["namespace", namespace]]) {
      if (value) match[key] = value;
      else delete match[key];
    }
    const number = (text) => (/^\d+(\.\d+)?$/.test(text) ? Number(text) : text);
    const policy = { ...original, name, match, per: per.filter((input) => input.checked).map((input) => input.value), unit, rate: number(rate), mode };
    if (burst) policy.burst = number(burst);
    else delete policy.burst;
    if (!Object.keys(match).length) delete policy.match;
    return policy;
  }

  async function busy(button, work) {
    const text = button.textContent;
    for (const one of Object.values(buttons)) one.disabled = true;
    setText(button, "Working…");
    const next = await work();
    setText(button, text);
    buttons.simulate.disabled = false;
    buttons.check.disabled = !next.check;
    buttons.set.disabled = !next.set;
  }

  const simulate = () => busy(buttons.simulate, async () => {
    const policy = spec();
    const run = (rate) => page.change("POST", "admin/v1/quotas/simulate", { body: { policy: { ...policy, rate } }, timeout: SIMULATION_TIMEOUT });
    const answer = await run(policy.rate);
    if (!answer) return {};
    showSimulation(policy, answer);
    const whole = quantity(policy.rate);
    const points = [{ rate: whole, answer }];
    for (const factor of FACTORS) {
      const rate = Number((whole * factor).toPrecision(6));
      if (factor === 1 || rate < 0.000001) continue;
      // A burst that is named may not fit other rates; then the curve has fewer points.
      const isWhole = policy.unit.includes("bytes") ? Math.max(1, Math.round(rate)) : rate;
      try {
        points.push({ rate: isWhole, answer: await page.simulate({ ...policy, rate: isWhole }) });
      } catch {
        continue;
      }
      curve.show(points.sort((a, b) => a.rate - b.rate), whole, policy.unit);
    }
    return { check: true };
  });

  const curve = rejectionCurve();

  function showSimulation(policy, answer) {
    const share = answer.requests ? answer.rejected / answer.requests : 0;
    const rows = new Table({
      label: "Simulation by bucket", key: ({ label }) => label, sort: "rejected", empty: "No request on record would have been counted.", limit: 20, stacked: true,
      columns: [
        { name: "label", title: "Bucket", class: "mono", sort: ({ label }) => label, text: ({ label }) => label },
        { name: "requests", title: "Counted", number: true, sort: ({ requests }) => requests, text: ({ requests }) => count(requests) },
        { name: "rejected", title: "Rejected", number: true, sort: ({ rejected }) => rejected, text: ({ rejected }) => count(rejected) },
        { name: "share", title: "Share", number: true, sign: (row) => `${row.rejected}/${row.requests}`, node: (row) => [bar(row.rejected / Math.max(1, row.requests), "rejected"), h("span", { class: "bar-text", text: format(row.rejected / Math.max(1, row.requests), "share") })] },
      ],
    });
    rows.update(answer.rows);
    curve.show([{ rate: quantity(policy.rate), answer }], quantity(policy.rate), policy.unit);
    result.replaceChildren(
      h("p", { class: "verdict" }, h("b", { text: `${count(answer.rejected)} of ${count(answer.requests)} requests (${format(share, "share")})` }), ` of the last ${duration(answer.seconds * 1e3)} would have been rejected.`),
      curve.element, rows.element, ...(answer.notes ?? []).map((text) => h("p", { class: "hint", text })));
  }

  const check = () => busy(buttons.check, async () => {
    const policy = spec();
    condition = await storedAs(page, policy.name);
    const change = await page.change("PUT", `admin/v1/quotas/${encodeURIComponent(policy.name)}?dry_run=true`, { body: policy, headers: condition });
    if (!change) return { check: true };
    checked = JSON.stringify(policy);
    const lines = change.before ? difference(change.before, change.after) : [`A new policy: ${change.after.rate} ${change.after.unit} a second`];
    result.prepend(h("div", { class: "dry-run" }, h("b", { text: "Dry run: nothing is changed yet." }), lines.length ? lines.map((text) => h("div", { class: "mono", text })) : h("div", { text: "It is in effect as it is." })));
    while (result.querySelectorAll(".dry-run").length > 1) result.querySelectorAll(".dry-run")[1].remove();
    return { check: true, set: true };
  });

  const set = () => busy(buttons.set, async () => {
    const policy = spec();
    if (JSON.stringify(policy) !== checked) return { check: true };
    const done = await page.change("PUT", `admin/v1/quotas/${encodeURIComponent(policy.name)}`, { body: policy, headers: { ...condition, ...reasonHeader(inputs.reason.value) } }, `The policy ${policy.name} is in effect.`);
    if (!done) return { check: true, set: true };
    original = policy;
    result.replaceChildren(h("p", { class: "verdict" }, "Set. ", h("a", { href: `#/quotas/${encodeURIComponent(policy.name)}`, text: policy.name })));
    onSet();
    return { check: false };
  });

  return {
    element,
    /** Writes a policy into the form. What the form has no field for is kept as it is. */
    fill(policy) {
      original = policy;
      inputs.name.value = policy.name;
      inputs.caller.value = policy.match?.caller ?? "";
      inputs.namespace.value = policy.match?.namespace ?? "";
      inputs.unit.value = policy.unit;
      inputs.rate.value = policy.rate;
      // One second of the rate is what an absent burst means; it then follows the rate.
      inputs.burst.value = quantity(policy.burst) === quantity(policy.rate) ? "" : policy.burst ?? "";
      inputs.mode.value = policy.mode ?? "enforce";
      for (const input of per) input.checked = (policy.per ?? []).includes(input.value);
    },
  };
}

/** The share of requests that would have been rejected, over the rate of the limit. */
function rejectionCurve() {
  const canvas = h("canvas", { role: "img" });
  const plot = h("div", { class: "plot curve" }, canvas);
  const element = h("figure", { class: "chart" }, h("figcaption", {}, h("h3", { text: "Rejected requests by limit" })), plot);
  const [left, right, top, bottom, height] = [58, 16, 12, 30, 180];
  let shown = null;
  plot.style.height = `${height}px`;
  new ResizeObserver(() => shown && draw(...shown)).observe(plot);

  function draw(points, chosen, unit) {
    const width = plot.clientWidth;
    if (!width) return;
    const context = fit(canvas, width, height);
    const shares = points.map(({ answer }) => (answer.requests ? answer.rejected / answer.requests : 0));
    const [low, high] = [Math.log(points[0].rate), Math.log(points.at(-1).rate)];
    const x = (rate) => (high > low ? left + ((Math.log(rate) - low) / (high - low)) * (width - left - right) : (left + width - right) / 2);
    const ceiling = Math.min(1, Math.max(0.1, Math.ceil(Math.max(...shares) * 10) / 10));
    const y = (share) => top + (1 - share / ceiling) * (height - top - bottom);
    context.font = `11px ${colour("font")}`;
    context.textBaseline = "middle";
    for (const share of [0, ceiling / 2, ceiling]) {
      context.strokeStyle = colour("grid");
      context.beginPath();
      context.moveTo(left, y(share));
      context.lineTo(width - right, y(share));
      context.stroke();
      context.fillStyle = colour("muted");
      context.textAlign = "right";
      context.fillText(format(share, "share"), left - 8, y(share));
    }
    context.strokeStyle = context.fillStyle = colour("rejected");
    context.lineWidth = 2;
    context.beginPath();
    points.forEach(({ rate }, at) => context.lineTo(x(rate), y(shares[at])));
    context.stroke();
    context.textAlign = "center";
    let free = -Infinity;
    points.forEach(({ rate }, at) => {
      const isChosen = rate === chosen;
      context.fillStyle = colour(isChosen ? "accent" : "rejected");
      context.beginPath();
      context.arc(x(rate), y(shares[at]), isChosen ? 5 : 3, 0, 7);
      context.fill();
      const text = format(rate);
      const half = context.measureText(text).width / 2;
      if (!isChosen && (x(rate) - half < free || Math.abs(x(rate) - x(chosen)) < 2 * half + 8)) return;
      context.fillStyle = colour(isChosen ? "accent" : "muted");
      context.fillText(text, x(rate), height - 18);
      free = x(rate) + half + 6;
    });
    context.fillStyle = colour("muted");
    context.fillText(`${unit} a second`, (left + width - right) / 2, height - 5);
    canvas.setAttribute("aria-label", `Rejected requests by limit: ${points.map(({ rate }, at) => `${format(rate)} ${unit}/s ${format(shares[at], "share")}`).join(", ")}`);
  }

  return {
    element,
    show(points, chosen, unit) {
      shown = [points, chosen, unit];
      draw(points, chosen, unit);
    },
  };
}
