// Keeping a result: pinned to the shelf, copied as a call, or saved as a file.

import {download} from "./api.js";
import {button, element} from "./elements.js";
import {server, attempt} from "./shell.js";
import {pin} from "./shelf.js";

const FILES = [
  ["html", "Page"], ["flow", "Flow page"], ["svg", "SVG"], ["json", "JSON"], ["graph", "Graph JSON"],
  ["safetensors", "gaflow file"],
];
const CITATION = `@inproceedings{azarkhalili-libbrecht-2025-generalized,
  title = {Generalized Attention Flow: Feature Attribution for Transformer Models via Maximum Flow},
  author = {Azarkhalili, Behrooz and Libbrecht, Maxwell},
  booktitle = {Proceedings of the 63rd Annual Meeting of the Association for Computational Linguistics},
  year = {2025},
  pages = {19954--19974},
  doi = {10.18653/v1/2025.acl-long.980}
}`;

// `answer` is on display, `question` was asked, `edits` (or null) changed it, `title` names it on the shelf. `note` is in
// the link; `onNote` is told a new one.
export function keepTools({answer, question, edits, title, note, onNote}) {
  const copied = element("pre", {class: "copied", tabindex: 0, hidden: ""});
  const said = element("span", {class: "said", role: "status"});

  async function copy(text, what) {
    copied.textContent = text;
    copied.hidden = false;
    try {
      await navigator.clipboard.writeText(text);
      said.textContent = `${what} copied`;
    } catch { // a page that is not served safely may not write there
      getSelection().selectAllChildren(copied);
      said.textContent = "Selected below: press Ctrl C";
    }
  }

  async function save(kind) {
    const {content, name} = await download("export", {id: answer.id, kind});
    const address = URL.createObjectURL(content);
    element("a", {href: address, download: name}).click();
    setTimeout(() => URL.revokeObjectURL(address));
    said.textContent = `Saved ${name}`;
  }

  const words = element("input", {class: "note-text", maxlength: 300, placeholder: "A note for whoever opens the link", "aria-label": "Note"});
  words.value = note || "";
  words.addEventListener("input", () => onNote(words.value.trim()));
  const onShelf = () => {
    pin(words.value.trim() || title(), location.hash);
    said.textContent = "Pinned";
  };
  const hasFlow = Boolean(answer.attribution.layers && answer.drawing.methods.some(method => method.edges.length));
  const files = FILES.filter(([kind]) => kind !== "flow" || hasFlow);
  const copies = [
    button("Link", () => copy(location.href, "Link")),
    button("Python", () => copy(asPython(answer, question, edits), "Python")),
    button("Citation", () => copy(CITATION, "Citation")),
  ];
  if (!question.run) copies.splice(2, 0, button("Command line", () => copy(asCommand(answer, question), "Command")));
  return element("div", {class: "keep"},
    element("p", {class: "buttons"}, element("span", {class: "lead"}, "Keep"),
      words, button("Pin to the shelf", onShelf, {class: "pin"})),
    element("p", {class: "buttons copies"}, element("span", {class: "lead"}, "Copy"), ...copies),
    element("p", {class: "buttons files"}, element("span", {class: "lead"}, "Save"),
      ...files.map(([kind, name]) => button(name, () => attempt(() => save(kind)), {"data-kind": kind}))),
    said, copied);
}

// A string as Python and shells of POSIX read it.
const inPython = text => JSON.stringify(text).replace(/[\u007f-\uffff]/g, unit => {
  return "\\u" + unit.charCodeAt(0).toString(16).padStart(4, "0");
}).replace(/\\ud[89ab]..\\ud[c-f]../g, pair => `\\U${JSON.parse(`"${pair}"`).codePointAt(0).toString(16).padStart(8, "0")}`);
const inShell = text => `'${text.replaceAll("'", "'\\''")}'`;

function modelOf({model}) {
  const name = model || (server.models.length ? server.models[0].name : "");
  return name === "built-in" ? "" : name;
}

function asPython({attribution}, question, edits) {
  const lines = ["import gaflow", ""];
  if (question.run) {
    lines.push("# from the folder of the run", "from gaflow.jobs import read_attributions");
    const row = question.row ? ` if stored.row == ${Number(question.row)}` : "";
    lines.push(`att = next(stored.attribution() for stored in read_attributions(${inPython(question.run)})${row})`);
    if (!question.row) lines.splice(2, 2, `att = gaflow.load(${inPython(question.run)})`);
  } else {
    const model = modelOf(question);
    const text = inPython(question.text);
    const input = question.text_pair ? `(${text}, ${inPython(question.text_pair)})` : text;
    const target = question.target ? `, target=${inPython(question.target)}` : "";
    lines.push(`explainer = gaflow.Explainer(${model ? inPython(model) : ""})`);
    lines.push(`att = explainer(${input}, ${inPython(attribution.method)}${target})`);
  }
  if (edits && edits.list.length) lines.push(`att = att.edit(${editArguments(edits).join(", ")})`);
  lines.push("print(att.words())");
  return lines.join("\n");
}

function editArguments(edits) {
  const body = edits.body("");
  const tuple = values => `(${values.join(", ")})`;
  const rows = [];
  for (const kind of ["cut_edges", "cut_nodes"]) if (body[kind].length) rows.push(`${kind}=[${body[kind].map(tuple).join(", ")}]`);
  if (body.skip_layers.length) rows.push(`skip_layers=[${body.skip_layers.join(", ")}]`);
  if (body.widen.length) {
    const factors = new Map(); // of an edge that was widened several times
    for (const [layer, i, j, factor] of body.widen) factors.set(tuple([layer, i, j]), factor);
    rows.push(`widen={${[...factors].map(([edge, factor]) => `${edge}: ${factor}`).join(", ")}}`);
  }
  for (const kind of ["sources", "targets", "groups"]) if (body[kind]) rows.push(`${kind}=${JSON.stringify(body[kind])}`);
  if (body.epsilon) rows.push(`epsilon=${body.epsilon}`);
  return rows;
}

function asCommand({attribution}, question) {
  const parts = ["gaflow explain", inShell(question.text)];
  if (question.text_pair) parts.push("--pair", inShell(question.text_pair));
  const model = modelOf(question);
  if (model) parts.push("--model", inShell(model));
  parts.push("--method", inShell(attribution.method));
  if (question.target) parts.push("--target", inShell(question.target));
  return parts.join(" ");
}
