// Data: the folders and files that the server was started with. Rows open on the page Explain.
//
// Link: `run`, `view` (rows or words), the filters `method`, `wrong`, `error`, `special`, `contains`, and `offset`; for
// words `length`, `minimum` and `class`.

import {get} from "./api.js";
import {bar, button, element, field, percent, select} from "./elements.js";
import {fragment, remember} from "./link.js";
import {attempt, latest, server} from "./shell.js";
import {shadeClass, textOf} from "./shading.js";

const COUNT = 25; // rows of a page
const LEVELS = 16; // shades on either side of 0
const SNIPPET = 160; // characters of a text
const WORDS = 40;
const begin = latest();

let room = null;
let values = {};
let run = null;

export function prepare(section) {
  room = section;
}

export async function show(linked) {
  values = linked;
  document.title = "Data · gaflow";
  const heading = element("div", {class: "intro"}, element("h1", {}, "Data"));
  if (!server.runs.length) {
    heading.append(element("p", {class: "note"}, "This server was started without data. Name the folder of a run, or a saved " +
      "attribution, and its rows appear here:"), element("pre", {}, "gaflow attribute reviews.csv -o run\ngaflow serve --open run --open dog.safetensors"));
    room.replaceChildren(heading);
    return;
  }
  heading.append(element("p", {class: "note"}, "What this server was started with. Click on a row to see why."));
  const list = element("ul", {class: "list runs"}, ...server.runs.map(runItem));
  const place = element("div", {class: "run"});
  room.replaceChildren(heading, list, place);
  run = server.runs.find(({name}) => name === values.run) || server.runs.find(isRun);
  if (!run || !isRun(run)) return;
  values.run = run.name;
  for (const link of list.querySelectorAll("a")) if (link.dataset.run === run.name) link.setAttribute("aria-current", "true");
  await showRun(place);
}

const isRun = ({kind}) => kind === "run" || kind === "files";

function runItem(item) {
  const facts = {
    run: () => `${item.texts} texts · ${item.methods.join(", ")}${item.finished ? "" : " · not finished"}`,
    attribution: () => "a saved attribution",
    files: () => "a folder of files",
    unreadable: () => `cannot be read: ${item.problem}`,
  }[item.kind]();
  const target = item.kind === "attribution" ? fragment("explain", {run: item.name}) : fragment("data", {run: item.name});
  const name = item.kind === "unreadable" ? element("b", {}, item.name) : element("a", {href: target, "data-run": item.name}, item.name);
  return element("li", {}, name, element("span", {class: "soft"}, facts));
}

async function showRun(place) {
  const view = values.view === "words" ? "words" : "rows";
  const tab = (key, name) => {
    const node = button(name, () => { values = {...values, view: key === "rows" ? "" : key, offset: ""}; attempt(() => showRun(place)); }, {role: "tab", "data-view": key});
    node.setAttribute("aria-selected", key === view);
    return node;
  };
  const methods = run.methods || [];
  if (!values.method && methods.length) [values.method] = methods;
  const method = select(methods.length ? methods.map(name => [name, name]) : [["", "all"]], values.method || "", {class: "method"});
  method.addEventListener("change", () => { values = {...values, method: method.value, offset: ""}; attempt(() => showRun(place)); });
  const content = element("div", {class: "content", "aria-live": "polite"});
  const filters = element("div", {class: "fields filters"}, field("Method", method));
  place.replaceChildren(element("h2", {}, run.name), element("div", {class: "tabs", role: "tablist", "aria-label": "Views"}, tab("rows", "Rows"), tab("words", "Words")), filters, content);
  remember("data", values);
  if (view === "rows") await rowsView(filters, content);
  else await wordsView(filters, content);
}

// Rows

async function rowsView(filters, content) {
  const wrong = element("input", {type: "checkbox", class: "wrong"});
  wrong.checked = Boolean(values.wrong);
  const errors = [["", "any certificate"], ["1e-12", "error above 1e-12"], ["1e-9", "error above 1e-9"], ["1e-6", "not converged: above 1e-6"]];
  const error = select(errors, values.error || "", {class: "error"});
  const specials = [["", "any"], ["0.25", "25% or more"], ["0.5", "50% or more"], ["0.75", "75% or more"]];
  const special = select(specials, values.special || "", {class: "special"});
  const contains = element("input", {type: "search", class: "contains", placeholder: "any", maxlength: 200});
  contains.value = values.contains || "";
  filters.append(element("label", {class: "check"}, wrong, " Wrong predictions only"), field("Certificate", error),
    field("Share of special tokens", special), field("Text contains", contains));
  const update = () => {
    values = {...values, wrong: wrong.checked ? "1" : "", error: error.value, special: special.value, contains: contains.value, offset: ""};
    attempt(() => fillRows(content));
  };
  for (const control of [wrong, error, special, contains]) control.addEventListener("change", update);
  await fillRows(content);
}

async function fillRows(content) {
  const isLatest = begin();
  remember("data", values);
  content.classList.add("waiting");
  try {
    const parameters = new URLSearchParams({offset: values.offset || 0, count: COUNT});
    const names = {method: "method", wrong: "wrong", error: "least_error", special: "least_special", contains: "contains"};
    for (const [name, parameter] of Object.entries(names)) if (values[name]) parameters.set(parameter, values[name]);
    const {rows, offset, more} = await get(`runs/${encodeURIComponent(run.name)}/rows?${parameters}`);
    if (!isLatest()) return;
    const step = (words, to, isPossible) => {
      const node = button(words, () => { values.offset = to ? String(to) : ""; attempt(() => fillRows(content)); });
      node.disabled = !isPossible;
      return node;
    };
    const pager = element("p", {class: "buttons pager"}, step("Earlier", Math.max(0, offset - COUNT), offset > 0), step("Later", offset + COUNT, more),
      element("span", {class: "note"}, rows.length ? `rows ${offset + 1} to ${offset + rows.length} that pass the filters` : ""));
    content.replaceChildren(rows.length ? rowTable(rows) : element("p", {class: "note"}, "No row passes these filters."), pager);
  } finally {
    if (isLatest()) content.classList.remove("waiting");
  }
}

function rowTable(rows) {
  const head = ["row", "text", "explained", "probability", "predicted", "true", "special", "error"];
  const body = rows.map(row => {
    const link = fragment("explain", {run: run.name, row: row.row, method: row.method});
    const text = element("a", {href: link, class: "row-link"}, row.scores ? shadedSnippet(row) : snippet(row.text));
    const isWrong = row.gold_label !== null && row.gold_label !== row.prediction;
    const cells = [
      element("td", {class: "cell-text"}, text), element("td", {}, row.error || row.label || "–"),
      element("td", {class: "number"}, row.probability === null ? "–" : percent(row.probability)),
      element("td", {class: isWrong ? "is-wrong" : ""}, row.prediction || "–"), element("td", {}, row.gold_label || "–"),
      element("td", {class: "number"}, row.special_share === null ? "–" : percent(row.special_share, 0)),
      element("td", {class: "number"}, row.certificate_error === null ? "–" : row.certificate_error.toExponential(0)),
    ];
    const line = element("tr", {}, element("th", {scope: "row", class: "number"}, String(row.row ?? "–")), ...cells);
    line.addEventListener("click", event => { if (!event.target.closest("a")) location.hash = link; });
    return line;
  });
  const names = head.map(name => element("th", {scope: "col"}, name));
  return element("div", {class: "scroll"}, element("table", {class: "rows-table"}, element("thead", {}, element("tr", {}, ...names)), element("tbody", {}, ...body)));
}

const snippet = text => ([...text].length > SNIPPET ? `${[...text].slice(0, SNIPPET).join("")}…` : text);

function shadedSnippet(row) {
  const largest = Math.max(...row.scores.map(Math.abs), 0);
  const units = [];
  row.scores.forEach((score, i) => {
    const [start, end] = row.offsets[i];
    const last = units[units.length - 1];
    const isOrdinary = !row.segments || row.segments[i] === 0;
    if (isOrdinary && end > start && end <= SNIPPET && !(last && start < last.end)) units.push({segment: 0, start, end, score});
  });
  const box = textOf({text: snippet(row.text), pair: ""}, units, (unit, text) => element("span", {class: shadeClass(unit.score, largest, LEVELS)}, text));
  return box.firstChild || box;
}

// Words

async function wordsView(filters, content) {
  const length = select([["1", "single words"], ["2", "up to two"], ["3", "up to three"]], values.length || "1", {class: "length"});
  const minimum = element("input", {type: "number", min: 1, max: 1000000, class: "minimum"});
  minimum.value = values.minimum || "3";
  filters.append(field("Words together", length), field("In at least so many texts", minimum));
  const update = () => {
    values = {...values, length: length.value === "1" ? "" : length.value, minimum: minimum.value};
    attempt(() => fillWords(content));
  };
  for (const control of [length, minimum]) control.addEventListener("change", update);
  await fillWords(content);
}

async function fillWords(content) {
  const isLatest = begin();
  remember("data", values);
  content.classList.add("waiting");
  try {
    const parameters = new URLSearchParams({length: values.length || 1, minimum: values.minimum || 3, top: WORDS});
    if (values.method) parameters.set("method", values.method);
    const answer = await get(`runs/${encodeURIComponent(run.name)}/corpus?${parameters}`);
    if (isLatest()) drawWords(answer, content);
  } finally {
    if (isLatest()) content.classList.remove("waiting");
  }
}

function drawWords({classes, texts}, content) {
  const names = Object.keys(classes);
  if (!names.length) {
    content.replaceChildren(element("p", {class: "note"}, "No word occurs in so many texts. Lower the number of texts."));
    return;
  }
  const all = names.flatMap(name => [...classes[name].for, ...classes[name].against]);
  const largest = Math.max(...all.flatMap(row => [row.share, row.low, row.high].map(value => Math.abs(value || 0)))) || 1;
  const parts = names.map(name => {
    const tables = [["for", `Words for ${name}`], ["against", `Words against ${name}`]].filter(([side]) => classes[name][side].length)
      .map(([side, title]) => element("div", {}, element("h3", {}, title), wordTable(classes[name][side], largest)));
    return element("div", {class: "word-class"}, ...tables);
  });
  content.replaceChildren(element("p", {class: "note"}, `Mean share of the scores of their text, over ${texts} texts; the line is its 95% ` +
    "interval, which takes texts as independent. Lift: how much more of the scores than of the words."), element("div", {class: "word-classes"}, ...parts));
}

function wordTable(rows, largest) {
  const body = rows.map(row => {
    const drawn = bar(row.share / largest, true);
    if (row.low !== null) {
      const range = element("u", {class: "range"});
      range.style.left = `${50 + 50 * row.low / largest}%`;
      range.style.width = `${50 * (row.high - row.low) / largest}%`;
      drawn.append(range);
    }
    const name = element("details", {}, element("summary", {}, element("bdi", {}, row.words)),
      element("ul", {class: "examples"}, ...row.examples.map(exampleItem)));
    const interval = row.low === null ? "–" : `${percent(row.low)} to ${percent(row.high)}`;
    const numbers = [percent(row.share), interval, String(row.texts), row.lift.toFixed(1)];
    return element("tr", {}, element("th", {scope: "row"}, row.examples.length ? name : element("bdi", {}, row.words)), element("td", {class: "cell-bar"}, drawn),
      ...numbers.map(text => element("td", {class: "number"}, text)));
  });
  const names = ["word", "", "share", "interval", "texts", "lift"].map(name => element("th", {scope: "col"}, name));
  return element("div", {class: "scroll"}, element("table", {class: "words-table"}, element("thead", {}, element("tr", {}, ...names)), element("tbody", {}, ...body)));
}

function exampleItem(example) {
  const text = element("bdi", {}, example.before, element("b", {}, example.match), example.after);
  if (example.row === null) return element("li", {}, text);
  const link = fragment("explain", {run: run.name, row: example.row, method: values.method});
  return element("li", {}, element("a", {href: link}, text));
}
