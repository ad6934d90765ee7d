// What changed and what broke: the events of the server, as a list and as a view.

import { badge, h, select, setText, Table } from "../dom.js";
import { time } from "../format.js";
import { eventKind, eventWords } from "../live.js";

/** A list of events that is updated in place. */
export function eventList(label) {
  const list = h("ol", { class: "events", "aria-label": label });
  const empty = h("p", { class: "empty", text: "Nothing has changed yet." });
  return {
    element: h("div", {}, list, empty),
    update(events, error) {
      setText(empty, error ? `Events are not available: ${error.message}` : "Nothing has changed yet.");
      empty.hidden = events.length > 0;
      const sign = events.map(({ id }) => id).join();
      if (sign === list.sign) return;
      list.sign = sign;
      list.replaceChildren(...events.map((event) => h("li", {},
        badge(event.kind, eventKind(event)),
        h("span", { class: "event-text", text: eventWords(event) }),
        h("span", { class: "dim event-by", text: [event.by && `by ${event.by}`, event.server && `on ${event.server}`, event.reason && `“${event.reason}”`].filter(Boolean).join(", ") }),
        h("time", { class: "dim", "data-ago": event.at_ms, title: new Date(event.at_ms).toString(), text: time(event.at_ms) }))));
    },
  };
}

const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);

/** The fields of a value by their paths, like `match.caller`, as text; one without fields has an empty path. */
function fields(value, path = "") {
  if (value === undefined || value === null) return [];
  if (isObject(value)) return Object.entries(value).flatMap(([name, inner]) => fields(inner, path ? `${path}.${name}` : name));
  const show = (one) => (typeof one === "string" ? one : JSON.stringify(one));
  return [[path, Array.isArray(value) && !value.some(isObject) ? value.map(show).join(", ") : show(value)]];
}

/** A change as text: the fields that differ, each as `field: before → after`. */
export function difference(before, after) {
  const read = (text) => {
    if (typeof text !== "string") return text;
    try {
      return JSON.parse(text);
    } catch {
      return text;
    }
  };
  const [old, now] = [before, after].map((one) => new Map(fields(read(one))));
  const names = [...new Set([...old.keys(), ...now.keys()])].filter((name) => old.get(name) !== now.get(name));
  return names.map((name) => `${name && `${name}: `}${old.get(name) || "–"} → ${now.get(name) || "–"}`);
}

export function events(page) {
  const chosen = { kind: "", text: "" };
  const kinds = select("Kind", [["", "all kinds"]], "", (kind) => {
    chosen.kind = kind;
    view.update();
  });
  const filter = h("input", {
    type: "search", placeholder: "Filter", "aria-label": "Filter events",
    on: { input: () => { chosen.text = filter.value.toLowerCase(); view.update(); } },
  });
  const table = new Table({
    label: "Events", key: ({ id }) => id, empty: "Nothing has changed yet.", limit: 500, stacked: true,
    columns: [
      { name: "at", title: "When", class: "nowrap", text: ({ at_ms: at }) => time(at) },
      { name: "kind", title: "What", sign: ({ kind }) => kind, node: (event) => badge(event.kind, eventKind(event)) },
      { name: "subject", title: "Subject", class: "mono wrap", text: ({ subject }) => subject ?? "" },
      { name: "text", title: "In words", class: "wrap", text: ({ text }) => text ?? "" },
      { name: "by", title: "By", class: "wrap", text: ({ by }) => by ?? "" },
      { name: "server", title: "Server", class: "wrap", text: ({ server }) => server ?? "" },
      { name: "reason", title: "Reason", class: "wrap", text: ({ reason }) => reason ?? "" },
      {
        name: "change", title: "Change", class: "wrap", sign: ({ id }) => String(id),
        node: ({ before, after }) => {
          const lines = difference(before, after).map((text) => h("div", { class: "mono", text }));
          return lines.length ? h("div", { class: "changes" }, lines) : [];
        },
      },
    ],
  });
  const view = {
    title: "Events",
    element: h("div", { class: "view" }, h("section", { class: "panel wide" },
      h("header", { class: "panel-head" }, h("h2", { text: "Events, newest first" }), h("div", { class: "tools" }, filter, kinds)), table.element)),
    needs: () => ({}),
    update() {
      const all = page.events();
      const error = page.eventsError();
      table.emptyText = error ? `Events are not available: ${error.message}` : "Nothing has changed yet.";
      const found = [...new Set(all.map(({ kind }) => kind))].sort();
      if (kinds.options.length !== found.length + 1) {
        kinds.replaceChildren(...["", ...found].map((kind) => h("option", { value: kind, text: kind || "all kinds", selected: kind === chosen.kind })));
      }
      const isWanted = (event) => (!chosen.kind || event.kind === chosen.kind)
        && (!chosen.text || JSON.stringify(event).toLowerCase().includes(chosen.text));
      table.update([...all].reverse().filter(isWanted));
    },
  };
  return view;
}
