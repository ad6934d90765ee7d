// The fleet: which server the page shows, or what all of them answer, made into one answer.

import { ApiError, get } from "./api.js";

/** The choice of all servers together. */
export const ALL = "all";

/** How the series of several servers become one where they are not added up. */
const GREATEST = new Set([
  "latency_p50_ms", "latency_p99_ms", "latency_p999_ms", "pressure", "queue_delay_ms", "penalty", "policy_utilisation",
  // Of a shard, which every server has from its node.
  "shard_rows", "shard_file_bytes", "shard_live_bytes", "shard_commits", "shard_queued", "shard_expired_rows",
  "syncs", "sync_time", "row_cache_hits", "row_cache_misses",
]);
const LEAST = new Set(["latency_ratio", "node_up"]);

const add = (a, b) => a + b;
const combination = (name) => (GREATEST.has(name) ? Math.max : LEAST.has(name) ? Math.min : add);

/** Adds values of another server where both begin at their own instant; what neither knows stays null. */
function overlay(into, values, offset, combine) {
  values.forEach((value, at) => {
    const place = at + offset;
    if (value === null || place < 0 || place >= into.length) return;
    into[place] = into[place] === null ? value : combine(into[place], value);
  });
}

/** One answer of several over the same range; `listOf` names the list, `signOf` what belongs together. */
function overTime(answers, list, signOf, combineOf) {
  const step = answers[0].step_ms;
  const same = answers.filter((answer) => answer.step_ms === step);
  const lengthOf = (answer) => Math.max(0, ...answer[list].map(({ values }) => values.length));
  const start = Math.min(...same.map(({ start_ms: at }) => at));
  // What one server has not reached yet would look like a fall of all.
  const ends = same.filter((answer) => lengthOf(answer)).map((answer) => answer.start_ms + lengthOf(answer) * step);
  const length = ends.length ? Math.max(0, Math.round((Math.min(...ends) - start) / step)) : 0;
  const merged = new Map();
  for (const answer of same) {
    const offset = Math.round((answer.start_ms - start) / step);
    for (const one of answer[list]) {
      const sign = signOf(one);
      if (!merged.has(sign)) merged.set(sign, { ...one, values: new Array(length).fill(null) });
      overlay(merged.get(sign).values, one.values, offset, combineOf(one));
    }
  }
  return { ...answers[0], start_ms: start, step_ms: step, [list]: [...merged.values()] };
}

/** Adds up the numbers of rows that belong together; other fields are those of the first. */
function summed(lists, signOf) {
  const merged = new Map();
  for (const row of lists.flat()) {
    const known = merged.get(signOf(row));
    if (!known) {
      merged.set(signOf(row), { ...row });
      continue;
    }
    for (const [field, value] of Object.entries(row)) if (typeof value === "number") known[field] = (known[field] ?? 0) + value;
  }
  return [...merged.values()];
}

const total = (rows, field) => rows.reduce((sum, row) => sum + (row[field] ?? 0), 0);
const most = (rows, field) => Math.max(...rows.map((row) => row[field] ?? 0));
const known = (rows, field) => rows.map((row) => row[field]).filter((value) => value !== undefined && value !== null);

/** Groups rows by a sign, in the order of the first of each. */
function grouped(rows, signOf) {
  const groups = new Map();
  for (const row of rows) groups.set(signOf(row), [...(groups.get(signOf(row)) ?? []), row]);
  return [...groups.values()];
}

/** A hot key as all servers together read it. */
function hotKey(rows) {
  const rate = total(rows, "rate");
  const callers = rows.flatMap((row) => row.callers.map(({ caller, share }) => ({ caller, share: rate ? (share * row.rate) / rate : share / rows.length })));
  const reads = total(rows, "reads");
  const sums = Object.fromEntries(["rate_error", "rate_now", "ru_rate", "hits"].map((field) => [field, total(rows, field)]));
  return {
    ...rows[0], ...sums, rate, reads, is_hot: rows.some((row) => row.is_hot), hot_for_ms: most(rows, "hot_for_ms"),
    standing: ["blocked", "pinned", "hot"].find((standing) => rows.some((row) => row.standing === standing)),
    hit_ratio: reads ? total(rows, "hits") / reads : 0, callers: summed([callers], ({ caller }) => caller).sort((a, b) => b.share - a.share),
  };
}

/** A shard as all servers together see it: queues and counts add up, of the rest the worst counts. */
function shedShard(rows) {
  const worst = (field, pick) => (values) => (known(values, field).length ? pick(...known(values, field)) : undefined);
  return {
    ...rows[0], overloaded: rows.some((row) => row.overloaded), queue: summed([rows.map((row) => row.queue)], () => "")[0],
    classes: grouped(rows.flatMap((row) => row.classes), (one) => one.class).map((same) => ({
      ...same[0], overloaded: same.some((one) => one.overloaded), pressure: most(same, "pressure"), ratio: worst("ratio", Math.min)(same),
      p95_ms: worst("p95_ms", Math.max)(same), normal_p95_ms: worst("normal_p95_ms", Math.max)(same), samples: total(same, "samples"),
    })),
    tiers: grouped(rows.flatMap((row) => row.tiers), (one) => one.tier).map((same) => ({
      ...same[0], penalised: same.some((one) => one.penalised), overloaded: same.some((one) => one.overloaded), penalty: most(same, "penalty"),
      penalty_above: most(same, "penalty_above"), waiting: total(same, "waiting"), oldest_ms: most(same, "oldest_ms"),
      shed: summed([same.map((one) => one.shed)], () => "")[0],
    })),
  };
}

/** By the beginning of a route: how the answers of several servers become one. */
const MERGES = {
  history: (answers) => ({
    ...overTime(answers, "series", ({ name, labels }) => `${name} ${JSON.stringify(labels)}`, ({ name }) => combination(name)),
    now_ms: Math.max(...answers.map(({ now_ms: now }) => now)),
  }),
  heat: (answers) => overTime(answers, "rows", ({ row }) => row, () => add),
  callers: (answers) => {
    const callers = summed(answers.map((answer) => answer.callers), ({ caller }) => caller);
    return { ...answers[0], callers: callers.sort((a, b) => b.ru - a.ru), total: Math.max(callers.length, ...answers.map(({ total }) => total ?? 0)) };
  },
};

MERGES.hot = (answers) => {
  const pods = answers.map(({ pod }) => pod);
  const rate = total(pods, "reads_rate");
  return {
    keys: grouped(answers.flatMap(({ keys }) => keys), ({ id }) => id).map(hotKey).sort((a, b) => b.rate - a.rate),
    pod: {
      ...summed([pods], () => "")[0], threshold_rate: Math.min(...pods.map((pod) => pod.threshold_rate)),
      saved_share: rate ? pods.reduce((sum, pod) => sum + pod.saved_share * pod.reads_rate, 0) / rate : 0,
    },
  };
};

MERGES.shed = (answers) => ({
  enabled: answers.some(({ enabled }) => enabled), episodes_total: total(answers, "episodes_total"), lag_ms: most(answers, "lag_ms"),
  shards: grouped(answers.flatMap(({ shards }) => shards), ({ shard }) => shard).map(shedShard).sort((a, b) => a.shard - b.shard),
  // Servers count their overloads by themselves.
  episodes: answers.flatMap(({ episodes }, at) => episodes.map((one) => ({ ...one, number: `${at}-${one.number}` }))).sort((a, b) => b.started_at - a.started_at),
});

/** Severities, the worst first. */
const RANKS = ["problem", "warning", "notice"];

/** What is wrong, as each server sees it: the same finding is shown once, since it was first seen. */
MERGES.diagnosis = (answers) => ({
  ...answers[0],
  findings: grouped(answers.flatMap(({ findings }) => findings), (one) => JSON.stringify([one.rule, one.subject])).map((same) => ({
    ...same[0], since_ms: Math.min(...same.map(({ since_ms: since }) => since)),
  })).sort((a, b) => RANKS.indexOf(a.severity) - RANKS.indexOf(b.severity) || a.since_ms - b.since_ms),
});

/** Why callers were refused, as all servers together did it; the text and example are of the last refusal. */
MERGES.why = (answers) => ({
  ...answers[0],
  reasons: grouped(answers.flatMap(({ reasons }) => reasons), (one) => JSON.stringify([one.caller, one.code, one.policy, one.shard])).map((same) => ({
    ...same.reduce((last, one) => (one.last_at_ms > last.last_at_ms ? one : last)), count: total(same, "count"),
  })),
});

/** Whose work keeps a shard busy, as all servers together ask it. */
const behindRow = (answers) => {
  const busy = total(answers, "busy");
  const sources = answers.flatMap((answer) => answer.sources.map((one) => ({ ...one, share: (one.share * answer.busy) / busy })));
  const signOf = (one) => JSON.stringify([one.caller, one.operation, one.namespace, one.pk, one.pk64]);
  return { ...answers[0], busy, ru_rate: total(answers, "ru_rate"), sources: summed([sources], signOf) };
};

/** Routes of which one server has the answer: the first that does. */
const ANYWHERE = /^why\/./;

function mergeOf(route) {
  const name = route.split("?")[0];
  if (ANYWHERE.test(name)) return ([first]) => first;
  if (/^heat\/./.test(name)) return behindRow;
  return Object.hasOwn(MERGES, name) ? MERGES[name] : null;
}

export class Fleet {
  constructor(onChange) {
    this.onChange = onChange;
    this.processes = [];
    this.chosen = ALL;
  }

  get isAlone() {
    return this.processes.length < 2;
  }

  get self() {
    return this.processes.find(({ is_self: isSelf }) => isSelf);
  }

  /** Reads which servers there are; silent where the token may not see it. */
  async refresh() {
    try {
      const { processes } = await get("admin/v1/fleet");
      const sign = (list) => JSON.stringify(list.map(({ id, state }) => [id, state]));
      const isNews = sign(processes) !== sign(this.processes);
      this.processes = processes;
      // One that was started anew is another process.
      const isThere = this.chosen === ALL || processes.some(({ id }) => id === this.chosen);
      if (!isThere) this.chosen = ALL;
      if (isNews) this.onChange();
    } catch {
      // The next read says what is wrong.
    }
  }

  /** What has happened to the other servers since a cursor, and their cursors; nothing where one server is shown. */
  async events(since) {
    if (this.isAlone || this.chosen !== ALL) return { events: [], cursors: [] };
    const { processes } = await get(`admin/v1/fleet/events?since=${encodeURIComponent(since)}`);
    const others = processes.filter(({ process, status }) => !process.is_self && process.state === "live" && status === 200);
    // Changes, which a caller made, are the same on every server.
    const events = others.flatMap(({ process, answer }) => answer.events.filter(({ by }) => by === undefined)
      .map((event) => ({ ...event, id: `${process.id} ${event.id}`, server: process.about.name })));
    return { events, cursors: others.map(({ answer }) => answer.next) };
  }

  choose(id) {
    this.chosen = id;
  }

  /** Answers as the chosen server does, or for all of them where their answers can be made into one. */
  async read(path, options) {
    const route = path.replace(/^admin\/v1\//, "");
    const merge = this.chosen === ALL ? mergeOf(route) : null;
    const isHere = this.chosen === ALL ? !merge : this.chosen === this.self?.id;
    if (this.isAlone || isHere || route === path) return get(path, options);
    // Nothing follows what a server that is away said last.
    const chosen = this.processes.find(({ id }) => id === this.chosen);
    if (chosen?.state === "away" && path.includes("&since_ms=")) return { start_ms: 0, step_ms: 0, series: [] };
    const { processes } = await get(`admin/v1/fleet/${route}`, options);
    if (!merge) return answerOf(processes.find(({ process }) => process.id === this.chosen));
    const live = processes.filter(({ process, status }) => process.state === "live" && status === 200);
    // No server has it in memory; a server that is gone may have written it down.
    if (!live.length && ANYWHERE.test(route)) return get(path, options);
    return live.length ? merge(live.map(({ answer }) => answer)) : answerOf(processes[0]);
  }
}

/** The answer of one server, or what it refused. */
function answerOf(one) {
  if (one?.status === undefined) throw new ApiError(0, "This server is away and has not answered this before", one?.error ?? "");
  if (one.status === 200) return one.answer;
  const { title, detail } = one.answer ?? {};
  throw new ApiError(one.status, title ?? `Status ${one.status}`, detail ?? "", one.answer ?? {});
}
