// Elements and tables. Data reaches the document as text nodes and attributes alone, never as markup.

/** Makes an element. `properties` are attributes, but for `on` (listeners), `text` and `class`. */
export function h(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "on") {
      for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
    } else if (name === "text") {
      element.textContent = value;
    } else if (name === "value") {
      element.value = value;
    } else {
      element.setAttribute(name, value === true ? "" : String(value));
    }
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

/** Changes a text only where it differs, so that nothing flickers and a selection stays. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** A panel with a heading. `tools` stand at the right of the heading. */
export function panel(title, body, { tools = [], wide = false, id } = {}) {
  const heading = h("h2", { text: title });
  return h("section", { class: wide ? "panel wide" : "panel", id },
    h("header", { class: "panel-head" }, heading, h("div", { class: "tools" }, tools)), body);
}

/** A figure in a tile: a label, a number with its unit, and a line below. */
export class Tile {
  constructor(label, kind = "", title = "") {
    this.number = h("span", { class: "tile-number", text: "–" });
    this.unit = h("span", { class: "tile-unit" });
    this.note = h("div", { class: "tile-note" });
    this.element = h("div", { class: `tile ${kind}`, title },
      h("div", { class: "tile-label", text: label }),
      h("div", { class: "tile-value" }, this.number, this.unit), this.note);
  }

  show({ number, unit }, note = "") {
    setText(this.number, number);
    setText(this.unit, unit ? `\u2009${unit}` : "");
    setText(this.note, note);
  }
}

/** A row of buttons of which one is chosen. */
export function choice(label, options, chosen, onChange) {
  const buttons = options.map(([value, text, title]) => h("button", {
    type: "button", text, title, "aria-pressed": String(value === chosen), "data-value": value,
    on: {
      click: () => {
        for (const button of buttons) button.setAttribute("aria-pressed", String(button.dataset.value === value));
        onChange(value);
      },
    },
  }));
  return h("div", { class: "choice", role: "group", "aria-label": label }, buttons);
}

/** A labelled drop-down list. */
export function select(label, options, chosen, onChange) {
  const list = h("select", { "aria-label": label, on: { change: () => onChange(list.value) } },
    options.map(([value, text]) => h("option", { value, text, selected: value === chosen })));
  return list;
}

/** A word on a coloured ground: `good`, `bad`, `warn`, `info` or `plain`. */
export function badge(text, kind) {
  return h("span", { class: `badge ${kind}`, text });
}

/** What a cell of a table holds beside a number: a bar of a share of 1. */
export function bar(share, kind = "") {
  const fill = h("span", { class: "bar-fill" });
  fill.style.width = `${Math.max(0, Math.min(1, share || 0)) * 100}%`;
  return h("span", { class: `bar ${kind}`, "aria-hidden": "true" }, fill);
}

/**
 * A table that is updated in place and sorted by its heads.
 *
 * A column is {name, title, number, sort(row), text(row)} or has node(row) and sign(row) in the place of
 * `text`: the node is made anew only where the sign of its row changes. On a phone the rows of a `stacked` table are
 * blocks, and its columns lines in them.
 */
export class Table {
  constructor({ label, columns, key, sort, descending = true, empty = "Nothing here.", limit = 200, onRow, stacked = false }) {
    Object.assign(this, { columns, key, sort, descending, limit, onRow });
    this.rows = new Map();
    this.data = [];
    this.heads = columns.map((column) => this.head(column));
    this.body = h("tbody");
    this.empty = h("p", { class: "empty", text: empty });
    this.more = h("p", { class: "more" });
    this.table = h("table", { "aria-label": label, class: stacked ? "stacked" : undefined }, h("thead", {}, h("tr", {}, this.heads)), this.body);
    this.element = h("div", {}, h("div", { class: "scroll" }, this.table), this.empty, this.more);
    this.emptyText = empty;
    this.showSort();
    this.update([]);
    setText(this.empty, "Reading…");
  }

  head(column) {
    const classes = [column.number ? "number" : "", column.wide ? "wide-only" : ""].join(" ").trim();
    if (!column.sort) return h("th", { scope: "col", class: classes, text: column.title });
    const button = h("button", {
      type: "button", text: column.title, title: column.about ?? `Sort by ${column.title}`,
      on: {
        click: () => {
          this.descending = this.sort === column.name ? !this.descending : Boolean(column.number);
          this.sort = column.name;
          this.showSort();
          this.update(this.data);
        },
      },
    });
    return h("th", { scope: "col", class: classes }, button);
  }

  showSort() {
    this.columns.forEach((column, at) => {
      if (column.name === this.sort) this.heads[at].setAttribute("aria-sort", this.descending ? "descending" : "ascending");
      else this.heads[at].removeAttribute("aria-sort");
    });
  }

  sorted(data) {
    const column = this.columns.find(({ name }) => name === this.sort);
    if (!column) return data;
    const direction = this.descending ? -1 : 1;
    const compare = (a, b) => {
      const [x, y] = [column.sort(a), column.sort(b)];
      if (x === y) return 0;
      if (x === null || x === undefined) return 1;
      if (y === null || y === undefined) return -1;
      return (typeof x === "string" ? x.localeCompare(y) : x - y) * direction;
    };
    return [...data].sort(compare);
  }

  /** Rows keep their places while the pointer or the focus is in them: a button must not move away. */
  get isHeld() {
    const isPointedAt = matchMedia("(hover: hover)").matches && this.body.matches(":hover");
    return isPointedAt || this.body.contains(document.activeElement);
  }

  /** The rows that are shown, in their order. */
  shown(data) {
    const sorted = this.sorted(data).slice(0, this.limit);
    if (!this.isHeld) return sorted;
    const places = new Map([...this.rows.keys()].map((key) => [key, [...this.body.children].indexOf(this.rows.get(key).element)]));
    const place = (row) => places.get(this.key(row)) ?? Infinity;
    return sorted.sort((a, b) => (place(a) === place(b) ? 0 : place(a) - place(b)));
  }

  update(data) {
    this.data = data;
    const shown = this.shown(data);
    const kept = new Set();
    let before = this.body.firstChild;
    for (const row of shown) {
      const key = this.key(row);
      kept.add(key);
      const line = this.rows.get(key) ?? this.line(key);
      line.row = row;
      this.columns.forEach((column, at) => this.fill(column, line.cells[at], row));
      if (line.element === before) before = before.nextSibling;
      else this.body.insertBefore(line.element, before);
    }
    for (const [key, line] of this.rows) {
      if (kept.has(key)) continue;
      line.element.remove();
      this.rows.delete(key);
    }
    setText(this.empty, this.emptyText);
    this.empty.hidden = data.length > 0;
    this.table.hidden = data.length === 0;
    this.more.hidden = data.length <= this.limit;
    if (!this.more.hidden) setText(this.more, `${this.limit} of ${data.length} are shown; sort or filter for others.`);
  }

  line(key) {
    const cells = this.columns.map((column) => {
      const classes = [column.number ? "number" : "", column.wide ? "wide-only" : "", column.class ?? ""];
      return h("td", { class: classes.join(" ").trim(), "data-label": column.title });
    });
    const line = { cells, element: h("tr", {}, cells) };
    if (this.onRow) {
      line.element.classList.add("is-link");
      line.element.addEventListener("click", (event) => {
        if (!event.target.closest("button, a, input")) this.onRow(line.row);
      });
    }
    this.rows.set(key, line);
    return line;
  }

  fill(column, cell, row) {
    if (column.text) {
      setText(cell, column.text(row));
      return;
    }
    const sign = column.sign(row);
    if (cell.sign === sign) return;
    cell.sign = sign;
    cell.replaceChildren(...[column.node(row)].flat());
  }
}

/** A modal dialogue. Resolves to the values of its form, or to null where it is dismissed. */
export function ask({ title, about, fields = [], action = "OK", kind = "primary", dismiss = "Cancel" }) {
  return new Promise((resolve) => {
    const inputs = fields.map(({ name, label, value = "", type = "text", hint, ...more }) => {
      const id = `ask-${name}`;
      const input = type === "select"
        ? h("select", { id, name }, more.options.map(([key, text]) => h("option", { value: key, text, selected: key === value })))
        : h("input", { id, name, type, value, ...more });
      return { name, input, element: h("div", { class: "field" }, h("label", { for: id, text: label }), input, hint ? h("small", { text: hint }) : null) };
    });
    const cancel = dismiss && h("button", { type: "button", text: dismiss, on: { click: () => dialog.close("") } });
    const form = h("form", { method: "dialog" },
      h("h2", { id: "ask-title", text: title }),
      [about].flat().filter(Boolean).map((text) => (typeof text === "string" ? h("p", { text }) : text)),
      inputs.map(({ element }) => element),
      h("div", { class: "actions" }, cancel, h("button", { type: "submit", value: "yes", class: kind, text: action })));
    const dialog = h("dialog", { "aria-labelledby": "ask-title" }, form);
    dialog.addEventListener("close", () => {
      const values = Object.fromEntries(inputs.map(({ name, input }) => [name, input.value]));
      dialog.remove();
      resolve(dialog.returnValue === "yes" ? values : null);
    });
    document.body.append(dialog);
    dialog.showModal();
    const first = inputs[0]?.input ?? cancel;
    first?.focus();
  });
}
