// Elements of the page. Every text is set as text, never as HTML, after `visible` has written out what hides in it.

// As in gaflow/errors.py: a black flag with the tags of a region, or one character that controls or hides.
const FLAG_OR_CONTROL = new RegExp(
  "(\\u{1f3f4}[\\u{e0030}-\\u{e0039}\\u{e0061}-\\u{e007a}]{3,6}\\u{e007f})|" +
  "[\\0-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u061c\\u200e\\u200f\\u2028\\u2029\\u202a-\\u202e\\u2066-\\u206f\\ud800-\\udfff\\ufdd0-\\ufdef" +
  "\\ufff9-\\ufffb\\ufffe\\uffff\\u{e0000}-\\u{e00ff}\\u{e01f0}-\\u{e0fff}]", "gu");

export function visible(text) {
  return text.replace(/\r\n?/g, "\n").replace(FLAG_OR_CONTROL, (match, flag) => flag || escaped(match.codePointAt(0)));
}

function escaped(code) {
  const [letter, digits] = code < 256 ? ["x", 2] : code < 65536 ? ["u", 4] : ["U", 8];
  return "\\" + letter + code.toString(16).padStart(digits, "0");
}

export function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children.map(child => (typeof child === "string" ? visible(child) : child)));
  return node;
}

export function svgElement(tag, attributes = {}) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return node;
}

const withMinus = text => text.replace(/^-/, "−").replace(/^−(0(\.0*)?%?)$/, "$1"); // and no minus before nothing

export const number = value => withMinus(String(Number(value.toPrecision(4))));

export const percent = (share, digits = 1) => withMinus(`${(100 * share).toFixed(digits)}%`);

// Writes numbers of a column with equally many decimals: three digits of the largest.
export function decimalsFor(values) {
  const largest = Math.max(...values.map(Math.abs), 0);
  const decimals = largest > 0 ? Math.min(Math.max(2 - Math.floor(Math.log10(largest)), 0), 12) : 0;
  return value => withMinus(value.toFixed(decimals));
}

export function button(text, onClick, attributes = {}) {
  const node = element("button", {type: "button", ...attributes}, text);
  node.addEventListener("click", onClick);
  return node;
}

export function field(label, control) {
  return element("label", {class: "field"}, element("span", {}, label), control);
}

export function select(options, value = "", attributes = {}) {
  const node = element("select", attributes, ...options.map(([key, name]) => element("option", {value: key}, name)));
  node.value = value;
  return node;
}

// A section with a heading; what is added to it later goes below.
export function card(title, ...children) {
  return element("section", {class: "card", "aria-label": title}, element("h2", {}, title), ...children);
}

// A bar from 0 to `share` (-1 to 1); signed bars begin in the middle. Widths are set from here: the page's policy allows
// no style attributes.
export function bar(share, signed) {
  const track = element("span", {class: signed ? "bar signed" : "bar"});
  const part = element("i", {class: share < 0 ? "less" : "more"});
  const width = Math.min(Math.abs(share), 1) * (signed ? 50 : 100);
  part.style.width = `${width}%`;
  part.style.left = `${signed ? (share < 0 ? 50 - width : 50) : 0}%`;
  track.append(part);
  return track;
}

export function table(head, rows) {
  const content = cell => (cell instanceof Node ? cell : String(cell));
  const cells = row => row.map((cell, k) => element(k ? "td" : "th", k ? {} : {scope: "row"}, content(cell)));
  const top = element("tr", {}, ...head.map(name => element("th", {scope: "col"}, name)));
  const body = rows.map(row => element("tr", {}, ...cells(row)));
  return element("table", {}, element("thead", {}, top), element("tbody", {}, ...body));
}

// The texts of an attribution as spans, one for each run of tokens that the drawing shades. Offsets count characters,
// as Python does, not the 16-bit units of JavaScript.
function shadedText(att, data) {
  const sources = [[...att.text], [...(att.pair || "")]];
  const passages = [[], []];
  const ends = [0, 0];
  for (const run of data.runs) {
    const segment = att.segments[run[0]];
    const from = Math.min(...run.map(i => att.offsets[i][0]));
    const to = Math.max(...run.map(i => att.offsets[i][1]));
    passages[segment].push(sources[segment].slice(ends[segment], from).join(""));
    passages[segment].push(element("span", {}, sources[segment].slice(from, to).join("")));
    ends[segment] = to;
  }
  const parts = element("div");
  passages.forEach((passage, segment) => {
    if (!sources[segment].length) return;
    passage.push(sources[segment].slice(ends[segment]).join(""));
    parts.append(element("p", {class: "text", dir: "auto"}, ...passage));
  });
  return parts;
}

// The frame that mountFlow draws into; it has the parts of templates/flow.html of the static page.
export function flowFrame(att, data) {
  const options = data.names.map((name, k) => element("option", {value: k}, name));
  const choose = element("label", {}, "Flow ", element("select", {class: "choose"}, ...options));
  choose.hidden = data.names.length < 2;
  const back = element("button", {type: "button", class: "back", "aria-label": "layer below"}, "◀ ", element("span", {}, "layer below"));
  const on = element("button", {type: "button", class: "on", "aria-label": "layer above"}, element("span", {}, "layer above"), " ▶");
  const all = element("button", {type: "button", class: "all"}, "all layers");
  const layer = element("output", {class: "layer"}, "all layers");
  const steps = element("span", {class: "steps", role: "group", "aria-label": "Layer"}, back, layer, on, all);
  const shade = level => element("i", level ? {class: (level < 0 ? "n" : "p") + Math.abs(level)} : {});
  const strip = (name, levels) => element("span", {class: `strip ${name}`}, ...levels.map(shade));
  const levels = [...Array(data.levels + 1).keys()];
  const below = levels.slice(1).reverse().map(level => -level);
  const low = element("span", {class: "low"});
  const high = element("span", {class: "high"});
  const scale = element("span", {class: "scale"}, low, " ", strip("below", below), strip("", levels), " ", high);
  const svg = svgElement("svg", {class: "drawing", role: "group"});
  for (const name of ["heads", "edges", "nodes", "bars", "names"]) svg.append(svgElement("g", {class: name}));
  const help = "Point at a token, a node or a word to see where its flow goes; click to keep it. " +
    "Keys: ↑ ↓ other tokens, ← → other layers, Esc everything again.";
  return element("div", {class: "flow"},
    element("div", {class: "controls"}, choose, steps),
    element("p", {class: "legend"}, scale, " ", element("span", {class: "of"})),
    shadedText(att, data),
    element("p", {class: "says", "aria-live": "polite"}),
    element("div", {class: "scroll"}, svg),
    element("p", {class: "help note"}, help));
}
