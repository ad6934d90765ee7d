// Series over time as the history of the server answers them, found by name and label.

/** The ranges, and how often each is read anew, in milliseconds. */
export const RANGES = {
  "5m": { text: "5 min", every: 1_000 },
  "1h": { text: "1 h", every: 10_000 },
  "24h": { text: "24 h", every: 30_000 },
  "30d": { text: "30 d", every: 60_000 },
};

/** The last steps of the history, which are read again: they may not have been complete. */
const RENEWED = 3;
/** Fewest steps of a chart. */
const STEPS_MIN = 60;

export const OUTCOMES = ["served", "rejected", "shed", "refused", "failed"];

/** The names of the series of all outcomes, with a suffix. */
export const outcomes = (suffix = "") => OUTCOMES.map((name) => name + suffix);

/** Operations of operators and probes: the admin API, this page, health and metrics. */
const NOT_OF_SERVICES = ["admin", "service"];

/** What an outcome is called where there is room. */
export const OUTCOME_TEXT = {
  served: "served", rejected: "rejected (quota)", shed: "shed (overload)",
  refused: "refused (invalid)", failed: "failed",
};

export class History {
  constructor(answer) {
    this.start = answer?.start_ms ?? 0;
    this.step = answer?.step_ms ?? 1_000;
    this.list = answer?.series ?? [];
    this.length = Math.max(0, ...this.list.map(({ values }) => values.length));
  }

  /** From when on a newer answer is wanted: the last steps may have changed since. */
  get since() {
    return this.start + (this.length - RENEWED) * this.step;
  }

  /** This history, moved on by an answer that begins within it. */
  movedOnBy(answer) {
    const from = (answer.start_ms - this.start) / this.step;
    const added = Math.max(0, ...answer.series.map(({ values }) => values.length));
    if (answer.step_ms !== this.step || !Number.isInteger(from) || from < 0 || from > this.length || !added) return this;
    const sign = ({ name, labels }) => `${name} ${JSON.stringify(labels)}`;
    const fresh = new Map(answer.series.map((one) => [sign(one), one]));
    const known = new Map(this.list.map((one) => [sign(one), one]));
    const nothing = (length) => new Array(length).fill(null);
    const drop = Math.max(0, from + added - this.length);
    const series = [...new Map([...known, ...fresh]).values()].map((one) => {
      const [old, now] = [known.get(sign(one)), fresh.get(sign(one))];
      const kept = (old?.values ?? nothing(this.length)).slice(0, from);
      return { ...one, values: [...kept, ...(now?.values ?? nothing(added))].slice(drop) };
    });
    const isAlive = ({ values }) => values.some((value) => value !== null);
    return new History({ start_ms: this.start + drop * this.step, step_ms: this.step, series: series.filter(isAlive) });
  }

  /** The series of a name whose labels are the given ones. Requests of operators, like those of this page, are in none. */
  all(name, labels = {}) {
    const wanted = Object.entries(labels);
    const isOfServices = ({ labels: { operation } = {} }) => !NOT_OF_SERVICES.includes(operation);
    return this.list.filter((one) => one.name === name && isOfServices(one) && wanted.every(([label, value]) => String(one.labels?.[label]) === String(value)));
  }

  one(name, labels) {
    return this.all(name, labels)[0]?.values ?? [];
  }

  /** The sum of the series of a name; null where all are. */
  sum(name, labels) {
    return sum(this.all(name, labels).map(({ values }) => values));
  }

  /** The sum of the series of an outcome. What never happened has no series: it is 0 wherever anything is known. */
  outcome(name, labels) {
    const values = this.sum(name, labels);
    if (values.length) return values;
    const known = this.one("cpu").length ? this.one("cpu") : this.list[0]?.values ?? [];
    return known.map((value) => (value === null ? null : 0));
  }

  /** The greatest of the operations at each instant. */
  slowest(name) {
    return fold(this.all(name).map(({ values }) => values), Math.max);
  }

  /** The values of a label that any of the named series has, in order. */
  labels(names, label) {
    const found = new Set();
    for (const name of names) for (const { labels } of this.all(name)) if (labels?.[label] !== undefined) found.add(String(labels[label]));
    return [...found].sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
  }

  /** Steps at the beginning of which nothing is known, but for what keeps a chart from being narrow. */
  get unknown() {
    const first = Math.min(this.length, ...this.list.map(({ values }) => values.findIndex((value) => value !== null)).filter((at) => at >= 0));
    return Math.max(0, Math.min(first, this.length - STEPS_MIN));
  }

  /** What a chart takes: a young process has no empty past. */
  chart(series) {
    const { unknown } = this;
    return { start: this.start + unknown * this.step, step: this.step, series: series.map((one) => ({ ...one, values: one.values.slice(unknown) })) };
  }

  /** One series for each value of a label, at most `max`: those with the highest mean. The rest are left out. */
  byLabel(name, label, paint, { max = 8, text = (value) => value, filter = () => true } = {}) {
    const found = this.all(name).filter((one) => one.labels?.[label] !== undefined && filter(one.labels));
    const kept = [...found].sort((a, b) => mean(b.values) - mean(a.values)).slice(0, max);
    const inOrder = found.filter((one) => kept.includes(one));
    inOrder.sort((a, b) => String(a.labels[label]).localeCompare(String(b.labels[label]), "en", { numeric: true }));
    return inOrder.map((one, at) => ({ label: text(String(one.labels[label])), colour: paint(String(one.labels[label]), at), values: one.values }));
  }
}

function fold(lists, combine) {
  const length = Math.max(0, ...lists.map((values) => values.length));
  return Array.from({ length }, (_, at) => {
    let result = null;
    for (const values of lists) {
      const value = values[at] ?? null;
      if (value !== null) result = result === null ? value : combine(result, value);
    }
    return result;
  });
}

export const sum = (lists) => fold(lists, (a, b) => a + b);

export function mean(values) {
  let [total, samples] = [0, 0];
  for (const value of values) {
    if (value === null) continue;
    total += value;
    samples += 1;
  }
  return samples ? total / samples : 0;
}
