// Loads of all namespaces: progress and reason to wait of each, and those that have ended.

import { badge, bar, h, panel, setText, Table, Tile } from "../dom.js";
import { count, duration, format, parts, time } from "../format.js";

/** Over how much time a rate is taken, in milliseconds. */
const RATE_OVER = 10_000;
const ENDED = { live: "good", superseded: "plain", "rolled-back": "warn", failed: "bad", aborted: "warn" };

const isEnded = ({ state }) => Object.hasOwn(ENDED, state);
const totalOf = (load) => load.rows_total ?? load.expected_rows ?? null;
const doneOf = (load) => load.rows_applied + load.rows_skipped + load.rows_rejected;
const kindOf = (load) => ENDED[load.state] ?? (load.paused || load.reason ? "warn" : "info");

/** Rows a second of each load, by the lists that were read of late. */
class Rates {
  seen = new Map();

  add(loads, at) {
    this.seen = new Map(loads.map((load) => {
      const past = (this.seen.get(load.id) ?? []).filter((one) => at - one.at <= RATE_OVER);
      return [load.id, [...past, { at, rows: doneOf(load) }]];
    }));
  }

  /** Null before the second look at a load. */
  of({ id }) {
    const samples = this.seen.get(id) ?? [];
    const [first, last] = [samples[0], samples.at(-1)];
    return first === last ? null : (Math.max(0, last.rows - first.rows) * 1e3) / (last.at - first.at);
  }
}

const COMMON = [
  { name: "namespace", title: "Namespace", sort: (load) => load.namespace, text: (load) => load.namespace },
  { name: "id", title: "Load", class: "mono", sort: (load) => load.id, text: (load) => load.id },
  { name: "mode", title: "Mode", wide: true, text: (load) => (load.import ? "import" : load.mode) },
  {
    name: "state", title: "State", sort: (load) => load.state, sign: (load) => `${load.state} ${load.paused} ${kindOf(load)}`,
    node: (load) => badge(load.paused ? `${load.state}, paused` : load.state, kindOf(load)),
  },
  {
    name: "rows", title: "Rows", number: true, sort: doneOf, sign: (load) => `${doneOf(load)} ${totalOf(load)}`,
    node: (load) => {
      const total = totalOf(load);
      const text = h("span", { class: "bar-text", text: total === null ? count(doneOf(load)) : `${count(doneOf(load))} of ${count(total)}` });
      return total === null || isEnded(load) ? text : [bar(total ? doneOf(load) / total : 1), text];
    },
  },
];
const REJECTED = { name: "rejected", title: "Rejected", number: true, sort: (load) => load.rows_rejected, text: (load) => count(load.rows_rejected) };
const BY = { name: "by", title: "By", wide: true, text: (load) => load.created_by };

export function loads() {
  const tiles = {
    open: new Tile("Under way"), waiting: new Tile("Waiting", "", "Loads that say what they wait for, or are paused"),
    rate: new Tile("Rows", "", "Rows a second of all loads"), failed: new Tile("Failed", "failed", "Of the loads that are remembered"),
  };
  const rates = new Rates();
  let known = null;
  const leftOf = (load) => {
    const [total, rate] = [totalOf(load), rates.of(load)];
    return total !== null && rate ? (Math.max(0, total - doneOf(load)) * 1e3) / rate : null;
  };
  const open = new Table({
    label: "Loads under way", key: ({ id }) => id, sort: "id", descending: false, empty: "No load is under way.", stacked: true,
    columns: [
      ...COMMON,
      { name: "rate", title: "Rows/s", number: true, about: "Over the last ten seconds", sort: rates.of.bind(rates), text: (load) => format(rates.of(load)) },
      { name: "left", title: "Left", number: true, about: "At this rate", sort: leftOf, text: (load) => duration(leftOf(load)) },
      REJECTED,
      { name: "waits", title: "Waits for", class: "wrap", text: (load) => load.reason ?? "" },
      { name: "created", title: "Created", class: "nowrap", wide: true, sort: (load) => load.created_at, text: (load) => time(load.created_at) },
      BY,
    ],
  });
  const ended = new Table({
    label: "Loads that have ended", key: ({ id }) => id, sort: "ended", empty: "No load has ended yet.", stacked: true,
    columns: [
      ...COMMON,
      { name: "skipped", title: "Skipped", number: true, wide: true, sort: (load) => load.rows_skipped, text: (load) => count(load.rows_skipped) },
      REJECTED,
      { name: "took", title: "Took", number: true, sort: (load) => load.ended_at - load.created_at, text: (load) => duration(load.ended_at - load.created_at) },
      { name: "ended", title: "Ended", class: "nowrap", sort: (load) => load.ended_at, text: (load) => time(load.ended_at) },
      { name: "reason", title: "Reason", class: "wrap", text: (load) => load.reason ?? "" },
      BY,
    ],
  });
  const note = h("p", { class: "hint", hidden: true });
  return {
    title: "Loads",
    element: h("div", { class: "view" },
      h("div", { class: "tiles" }, Object.values(tiles).map((tile) => tile.element)),
      panel("Under way", open.element, { wide: true }),
      panel("History", h("div", {}, note, ended.element), { wide: true })),
    needs: () => ({ loads: { path: "admin/v1/loads", every: 2_000 } }),
    update({ loads: list }) {
      if (!list || list === known) return;
      known = list;
      rates.add(list.loads, Date.now());
      const [over, going] = [list.loads.filter(isEnded), list.loads.filter((load) => !isEnded(load))];
      open.update(going);
      ended.update(over);
      tiles.open.show(parts(going.length));
      tiles.waiting.show(parts(going.filter((load) => kindOf(load) === "warn").length));
      tiles.rate.show(parts(going.reduce((sum, load) => sum + (rates.of(load) ?? 0), 0), "/s"));
      tiles.failed.show(parts(over.filter(({ state }) => state === "failed").length), `of ${over.length} that have ended`);
      note.hidden = !list.left_out;
      setText(note, `${count(list.left_out)} further loads are not listed.`);
    },
  };
}
