// What keeps a view up to date: reads of the API when they are due, none while the page is hidden.

import { get } from "./api.js";
import { History, RANGES } from "./history.js";

/** How often the reads that are due are begun, in milliseconds. */
const TICK = 1_000;
/** How often the whole history of a range is read, in milliseconds. */
const WHOLE = 60_000;
/** How long the server waits for an event before it answers that there is none, in seconds. */
const EVENT_WAIT = 20;
const EVENTS_MAX = 500;
/** How often the other servers are asked for events, in milliseconds. */
const OTHERS_EVERY = 1_500;
/** By how much clocks of servers may differ, in milliseconds. */
const CLOCKS = 60_000;
/** Ids of events that a millisecond has room for. */
const IDS = 1_024;

/** Reads what a view needs. `onData(data, errors)` is called after each round of reads. */
export class Live {
  /** `read` reads a path of the admin API. */
  constructor({ read, onData, onState }) {
    Object.assign(this, { get: read, onData, onState });
    this.range = "5m";
    this.generation = 0;
    document.addEventListener("visibilitychange", () => this.kick());
  }

  /** Begins to read for a view: `needs` by name {path, every}, and the names of its series. */
  show(view) {
    this.view = view;
    this.generation += 1;
    this.data = {};
    this.errors = {};
    this.read = {};
    this.kick();
  }

  /** Forgets what was read: another server answers from now on. */
  forget() {
    this.known = null;
    this.generation += 1;
    this.read = {};
    this.kick();
  }

  setRange(range) {
    this.range = range;
    this.refresh("history", "heat");
  }

  /** Makes reads due at once; all of them where none is named. */
  refresh(...names) {
    for (const name of names.length ? names : Object.keys(this.read)) delete this.read[name];
    this.kick();
  }

  needs() {
    const needs = { ...this.view.needs?.() };
    if (this.view.series) {
      const { every } = RANGES[this.range];
      needs.history = { path: `admin/v1/history?range=${this.range}&series=${this.view.series.join(",")}`, every, isHistory: true };
    }
    return needs;
  }

  kick() {
    clearTimeout(this.timer);
    if (!document.hidden && this.view) this.round();
  }

  /** Reads the history: the whole of it now and then, and in between what is new. */
  async history(path) {
    const now = performance.now();
    const before = this.known;
    if (before?.path === path && now - before.whole < WHOLE && before.history.length > 0) {
      const { whole, history } = before;
      this.known = { path, whole, history: history.movedOnBy(await this.get(`${path}&since_ms=${history.since}`)) };
    } else {
      this.known = { path, whole: now, history: new History(await this.get(path)) };
    }
    return this.known.history;
  }

  async round() {
    const { generation } = this;
    const now = performance.now();
    const due = Object.entries(this.needs()).filter(([name, { path, every }]) => {
      const before = this.read[name];
      return !before || before.path !== path || now - before.at >= every - TICK / 4;
    });
    for (const [name, { path }] of due) this.read[name] = { path, at: now };
    const results = await Promise.allSettled(due.map(([, need]) => (need.isHistory ? this.history(need.path) : this.get(need.path))));
    if (generation !== this.generation) return;
    due.forEach(([name, { path }], at) => {
      // A newer read of the same name is under way where the path has changed meanwhile.
      if (this.read[name] && this.read[name].path !== path) return;
      const result = results[at];
      if (result.status === "fulfilled") {
        this.data[name] = result.value;
        delete this.errors[name];
      } else {
        this.errors[name] = result.reason;
      }
    });
    this.onState(Object.values(this.errors), due.length > 0);
    this.onData(this.data, this.errors);
    clearTimeout(this.timer);
    if (!document.hidden) this.timer = setTimeout(() => this.round(), Math.max(100, TICK - (performance.now() - now)));
  }
}

/** The latest of some cursors, as far back as clocks may differ. */
function earlier(cursors) {
  const latest = (at) => Math.max(0, ...cursors.map((cursor) => Number(cursor.split("-")[at] ?? 0)));
  return `${latest(0)}-${Math.max(0, latest(1) - CLOCKS * IDS)}`;
}

/** Follows the events of the server, and those of `others`. `onEvents(all, fresh)` gets all that are known, oldest first. */
export class Events {
  constructor(onEvents, others) {
    Object.assign(this, { onEvents, others });
    this.all = [];
    this.next = null;
    this.run = 0;
    document.addEventListener("visibilitychange", () => (document.hidden ? this.stop() : this.start()));
  }

  start() {
    this.stop();
    this.follow(this.run);
    this.followOthers(this.run);
  }

  stop() {
    this.run += 1;
    this.abort?.abort();
  }

  /** Adds events and returns those that were not known. */
  add(events) {
    const known = new Set(this.all.map(({ id }) => id));
    const fresh = events.filter(({ id }) => !known.has(id));
    if (fresh.length) {
      const all = [...this.all, ...fresh].sort((a, b) => a.at_ms - b.at_ms);
      // Those of loads have a bound of their own, so that the others stay.
      const newest = (isOfLoads) => all.filter(({ kind }) => (kind === "load-changed") === isOfLoads).slice(-EVENTS_MAX);
      const kept = new Set([...newest(true), ...newest(false)]);
      this.all = all.filter((event) => kept.has(event));
    }
    return fresh;
  }

  async followOthers(run) {
    let cursors = null;
    while (run === this.run) {
      try {
        const answer = await this.others(cursors ? earlier(cursors) : "0");
        if (run !== this.run) return;
        const isFirst = cursors === null;
        // The servers that are asked may have become more.
        cursors = answer.cursors.length ? answer.cursors : null;
        const fresh = this.add(answer.events);
        if (fresh.length) this.onEvents(this.all, isFirst ? [] : fresh);
      } catch {
        // What the own server says of it is shown.
      }
      await new Promise((resolve) => setTimeout(resolve, OTHERS_EVERY));
    }
  }

  async follow(run) {
    while (run === this.run) {
      this.abort = new AbortController();
      try {
        const path = this.next === null ? "admin/v1/events" : `admin/v1/events?since=${encodeURIComponent(this.next)}&wait=${EVENT_WAIT}`;
        const answer = await get(path, { signal: this.abort.signal, timeout: (EVENT_WAIT + 10) * 1e3 });
        if (run !== this.run) return;
        const fresh = this.add(answer.events);
        const isFirst = this.next === null;
        this.next = answer.next;
        this.error = null;
        if (fresh.length || isFirst) this.onEvents(this.all, isFirst ? [] : fresh);
      } catch (error) {
        if (run !== this.run || error.name === "AbortError") return;
        this.error = error;
        this.onEvents(this.all, []);
        await new Promise((resolve) => setTimeout(resolve, error.status === 404 ? 60_000 : 2_000));
      }
    }
  }
}

const TROUBLE = new Set(["node-lost", "shard-lost", "overload-engaged", "trouble-began"]);
const RELIEF = new Set(["node-back", "shard-back", "overload-ended", "trouble-ended"]);

/** The colour of an event: trouble, the end of it, or a change. */
export function eventKind({ kind }) {
  if (TROUBLE.has(kind)) return "bad";
  return RELIEF.has(kind) ? "good" : "info";
}

/** The marks of events in charts. */
export function marks(events) {
  return events.map((event) => ({ at: event.at_ms, colour: `mark-${eventKind(event)}`, text: eventText(event) }));
}

export function eventText(event) {
  const by = event.by ? ` by ${event.by}` : "";
  return eventWords(event) + by + (event.server ? ` (${event.server})` : "");
}

/** What happened, and to what. */
export function eventWords({ kind, subject, text }) {
  const words = text || kind;
  return subject && !words.includes(subject) ? `${words}: ${subject}` : words;
}
