// The page: navigation, time range, theme, token, and what is said of the connection.

import { get, hasToken, send, useToken } from "./api.js";
import { recolour, zoom } from "./chart.js";
import { ask, badge, choice, h, select, setText } from "./dom.js";
import { ago, time } from "./format.js";
import { ALL, Fleet } from "./fleet.js";
import { RANGES } from "./history.js";
import { Events, Live } from "./live.js";
import { callers } from "./views/callers.js";
import { events as eventsView } from "./views/events.js";
import { heat } from "./views/heat.js";
import { hot } from "./views/hot.js";
import { loads } from "./views/loads.js";
import { overload } from "./views/overload.js";
import { overview } from "./views/overview.js";
import { quotas } from "./views/quotas.js";
import { storage } from "./views/storage.js";
import { why } from "./views/why.js";

const VIEWS = [
  ["overview", "Overview", overview],
  ["callers", "Callers", callers],
  ["heat", "Heat map", heat],
  ["hot", "Hot keys", hot],
  ["quotas", "Quotas", quotas],
  ["overload", "Overload", overload],
  ["storage", "Storage", storage],
  ["loads", "Loads", loads],
  ["events", "Events", eventsView],
  ["why", "Why", why],
];

const byId = (id) => document.getElementById(id);
const main = byId("main");
const problems = byId("problems");
const state = { view: null, asking: false, lastGood: null, data: {}, errors: {} };

/** What views may do with the rest of the page. */
const page = {
  go: (hash) => {
    location.hash = hash;
  },
  range: () => live.range,
  refresh: (...names) => live.refresh(...names),
  events: () => events.all,
  diagnosis: () => state.diagnosis,
  eventsError: () => events.error,
  flash,
  /** Sends a change; returns its answer, or null after having said what is wrong. */
  change: async (method, path, options, done) => {
    try {
      const answer = await send(method, path, options);
      if (done) flash(done, "good");
      return answer ?? {};
    } catch (error) {
      flash(error.message, "bad");
      return null;
    }
  },
  read: (path, options) => fleet.read(path, options),
  simulate: (policy) => send("POST", "admin/v1/quotas/simulate", { body: { policy }, timeout: 60_000 }),
};

/** How often the servers of the fleet are read, in milliseconds. */
const FLEET_EVERY = 5_000;

const fleet = new Fleet(showFleet);
const live = new Live({ read: (path, options) => fleet.read(path, options), onData: show, onState: showConnection });
const events = new Events((all, fresh) => {
  for (const event of fresh) flash(`${event.kind}: ${event.subject}`, "info");
  if (events.error?.needsToken) showConnection([events.error], false);
  if (state.view) state.view.update(state.data, state.errors);
}, (since) => fleet.events(since));

/** How often it is asked what is wrong, in milliseconds. */
const DIAGNOSIS_EVERY = 2_000;
/** Findings that are shown until all are asked for. */
const findingsShown = () => (matchMedia("(max-width: 720px)").matches ? 1 : 3);
const SEVERITIES = { problem: "bad", warning: "warn", notice: "info" };

/** Asks what is wrong or unusual. The last answer stays while the server is away. */
async function diagnose() {
  if (document.hidden) return;
  const { diagnosed } = state;
  let found;
  try {
    found = await fleet.read("admin/v1/diagnosis");
  } catch (error) {
    if (error.isAway) return;
  }
  // Another server or token was chosen meanwhile.
  if (diagnosed !== state.diagnosed) return;
  state.diagnosis = found;
  showFindings(found?.findings ?? []);
}

/** Asks anew: findings belong to one server and one token. */
function diagnoseAnew() {
  state.diagnosed = (state.diagnosed ?? 0) + 1;
  state.diagnosis = undefined;
  showFindings([], false);
  diagnose();
}

/** The banner of all views: what is wrong, since when, and what to do; a click leads to where it is seen. */
function showFindings(findings, isWhole = state.hasAllFindings) {
  state.hasAllFindings = isWhole;
  const place = byId("findings");
  const sign = JSON.stringify([findings, isWhole]);
  if (place.sign === sign) return;
  place.sign = sign;
  const shown = isWhole ? findings : findings.slice(0, findingsShown());
  const line = ({ severity, sentence, advice, since_ms: since, view }) => h("a", { class: `finding ${SEVERITIES[severity] ?? "info"}`, href: `#/${view}` },
    badge(severity, SEVERITIES[severity] ?? "info"),
    h("span", {}, h("b", { text: sentence }), advice ? h("span", { class: "advice", text: ` · ${advice}` }) : null),
    h("span", { class: "since" }, "since ", h("time", { title: new Date(since).toString(), text: time(since) })));
  const rest = findings.length - shown.length;
  const focused = [...place.children].indexOf(document.activeElement);
  place.replaceChildren(...shown.map(line), ...(rest > 0 ? [h("button", { type: "button", class: "small", text: `${rest} more`, on: { click: () => showFindings(state.diagnosis.findings, true) } })] : []));
  place.children[focused]?.focus();
}

/** Shows which servers there are to choose from; nothing where there is one. */
function showFleet() {
  const nameOf = ({ about, is_self: isSelf, state }) => `${about.name}${isSelf ? " (this)" : ""}${state === "away" ? " (away)" : ""}`;
  const options = [[ALL, `All ${fleet.processes.length} servers`], ...fleet.processes.map((process) => [process.id, nameOf(process)])];
  byId("fleet").replaceChildren(...(fleet.isAlone ? [] : [select("Server", options, fleet.chosen, (id) => {
    fleet.choose(id);
    live.forget();
    diagnoseAnew();
  })]));
}

/** Learns what the token may change: `all`, `some` namespaces, or `none`. The style sheet hides the controls that the token may not use. */
async function learnGrants() {
  try {
    const { grants } = await get("admin/v1/tokens/self");
    const admin = grants.filter((grant) => /^(\*|.*\badmin\b.*):/.test(grant));
    document.body.dataset.may = admin.some((grant) => grant.endsWith(":*")) ? "all" : admin.length ? "some" : "none";
  } catch {
    // The next read says what is wrong.
  }
}

function show(data, errors) {
  Object.assign(state, { data, errors });
  const texts = [...new Set(Object.values(errors).filter((error) => error.status !== 401 && !error.isAway).map(String))];
  showProblems(texts, Object.values(errors).some(({ status }) => status === 403));
  state.view.update(data, errors);
}

/** Says what is wrong, anew only where that has changed. */
function showProblems(texts, isForbidden) {
  const sign = JSON.stringify([texts, isForbidden]);
  if (problems.sign === sign) return;
  problems.sign = sign;
  problems.replaceChildren(...texts.map((text) => h("p", { class: "problem", role: "alert", text: text.replace(/^Error: /, "") })));
  if (isForbidden) problems.append(h("button", { type: "button", text: "Use another token", on: { click: () => askForToken("") } }));
}

function showConnection(errors, hasRead) {
  const away = errors.find((error) => error.isAway);
  const unknown = errors.find((error) => error.needsToken);
  if (!away && !unknown && hasRead) state.lastGood = Date.now();
  document.body.classList.toggle("is-away", Boolean(away));
  const since = state.lastGood ? `; numbers of ${time(state.lastGood)}` : "";
  setText(byId("connection-text"), away ? `${away.title}, trying again${since}` : unknown ? "Token needed" : "Live");
  byId("connection").className = `connection ${away ? "bad" : unknown ? "warn" : "good"}`;
  if (unknown) askForToken(hasToken() ? unknown.detail || unknown.title : "");
}

async function askForToken(problem) {
  if (state.asking) return;
  state.asking = true;
  const answer = await ask({
    title: "This server needs a token",
    about: [
      "One with the permission observe sees everything and changes nothing; changes need admin.",
      h("p", { class: "hint", text: "It is kept in the memory of this page, until it is closed or loaded anew." }),
      problem ? h("p", { class: "problem", role: "alert", text: problem }) : null,
    ],
    fields: [{ name: "token", label: "Token", type: "password", autocomplete: "off", spellcheck: "false", required: true }],
    action: "Use it",
    dismiss: null,
  });
  state.asking = false;
  if (answer) useToken(answer.token.trim());
  learnGrants();
  diagnoseAnew();
  events.start();
  fleet.refresh();
  live.refresh();
}

function flash(text, kind = "info") {
  const note = h("div", { class: `flash ${kind}`, role: kind === "bad" ? "alert" : "status" },
    h("span", { text }), h("button", { type: "button", "aria-label": "Dismiss", text: "×", on: { click: () => note.remove() } }));
  byId("flashes").append(note);
  while (byId("flashes").children.length > 4) byId("flashes").firstChild.remove();
  setTimeout(() => note.remove(), kind === "bad" ? 15_000 : 6_000);
}

function route() {
  const [name, ...rest] = location.hash.replace(/^#\/?/, "").split("/");
  const [key, title, make] = VIEWS.find(([view]) => view === name) ?? VIEWS[0];
  let argument = null;
  try {
    argument = rest.length ? decodeURIComponent(rest.join("/")) : null;
  } catch {
    argument = rest.join("/");
  }
  state.view?.leave?.();
  state.view = make(page, argument);
  Object.assign(state, { data: {}, errors: {} });
  showProblems([], false);
  byId("title").textContent = state.view.title ?? title;
  document.title = `${state.view.title ?? title} · Umbo`;
  for (const link of byId("nav").querySelectorAll("a")) {
    if (link.dataset.view === key) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  byId("nav").querySelector("[aria-current]").scrollIntoView({ block: "nearest", inline: "nearest" });
  byId("range").hidden = state.view.series === undefined && !state.view.hasRange;
  main.replaceChildren(state.view.element);
  main.scrollTop = 0;
  live.show(state.view);
}

/** A button that goes through the themes: as the system has it, light, dark. */
function themeButton() {
  const themes = ["auto", "light", "dark"];
  const name = h("span", { text: "auto" });
  const button = h("button", {
    type: "button", title: "Change the theme", "aria-label": "Theme: auto",
    on: {
      click: () => {
        const theme = themes[(themes.indexOf(name.textContent) + 1) % themes.length];
        setText(name, theme);
        button.setAttribute("aria-label", `Theme: ${theme}`);
        if (theme === "auto") delete document.documentElement.dataset.theme;
        else document.documentElement.dataset.theme = theme;
        recolour();
      },
    },
  }, h("span", { class: "half", "aria-hidden": "true" }), name);
  return button;
}

function begin() {
  byId("nav").append(...VIEWS.map(([name, title], at) => h("a", { href: `#/${name}`, "data-view": name, title: `Key ${(at + 1) % 10}` }, title)));
  byId("range").append(choice("Time range", Object.entries(RANGES).map(([range, { text }]) => [range, text]), live.range, (range) => {
    zoom();
    live.setRange(range);
  }));
  byId("theme").append(themeButton());
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", recolour);
  window.addEventListener("hashchange", route);
  document.addEventListener("keydown", (event) => {
    const isTyping = event.target.closest("input, textarea, select, dialog") || event.ctrlKey || event.metaKey || event.altKey;
    const view = /^\d$/.test(event.key) && VIEWS[(Number(event.key) + 9) % 10];
    if (view && !isTyping) page.go(`#/${view[0]}`);
  });
  byId("skip").addEventListener("click", (event) => {
    event.preventDefault();
    main.focus();
  });
  get("./").then((info) => setText(byId("version"), `${info.name} ${info.version}`)).catch(() => {});
  setInterval(() => {
    for (const element of document.querySelectorAll("[data-ago]")) setText(element, ago(Number(element.dataset.ago)));
  }, 1_000);
  fleet.refresh();
  setInterval(() => document.hidden || fleet.refresh(), FLEET_EVERY);
  learnGrants();
  diagnose();
  setInterval(diagnose, DIAGNOSIS_EVERY);
  route();
  events.start();
}

begin();
