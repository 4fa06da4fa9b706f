const NARROWEST = 44; // pixels between two layers; a drawing that is wider than the page then scrolls
const MOST_MOVING = 600; // edges that change by and by when they are pointed at; more of them would be slow

// Draws the flow of one text, and shows where it goes. The static page, the explorer and the notebook widget share it.
//
// mountFlow(page, data, options) draws into an element that has the parts of templates/flow.html. What it takes and
// tells counts in layers and tokens; a row of the drawing is a token, or a group of tokens of a long text.
// options:
//   pick: edges can be clicked
//   onPick({layer, tokens}) or onPick({edge}): a node was clicked, or an edge: [layer, i, j]. An edge between rows of
//     several tokens counts as the node below it
//   onSelect({method, layer, selected}): what is chosen has changed
//   open(groups): a promise of the methods between these groups of tokens; without it only rows in the data open
//   start ({method, layer, selected, opened}): where to begin, as state() told it; opened ({groups, methods}): rows
//     that are open at once, where `groups` is what openedGroups makes of those of state()
// It returns {state() (its `groups`: the tokens of the rows if some are open), select({layer, tokens} or null), leave(), mark(edges, name), focusLayer(k)}. After leave, another
// drawing can have the element. mark draws [{layer, i, j, capacity}, ...], widest first, in the
// style of the class `name` ("cut" if there is none) in place of those it drew before; focusLayer(null) shows all layers.
// data: tokens, labels (short tokens), special (0 or 1), all per token; runs (the tokens of each span of the text);
//   levels (shades on either side of 0); drawn_edges (before a row is pointed at); legends; methods; units.
// method: scores (per row); value of the flow; layers[k][i] (through-flow of row i in node layer k, 0 is the input);
//   edges[k] = [i, j, amount, ...] (from row i of layer k + 1 to row j of layer k, weakest first);
//   ends (see endOf); caption. Amounts are millionths of the flow.
// units, of a long text: kind ("word" or "sentence"); members (the tokens of each unit); names, labels; rows (how many
//   units each row has at first); methods (between these rows; data.methods then have tokens, but no edges);
//   opened (methods by "r" and the number of a row, or "u" and the number of a unit); left_out (what does not open).
export function mountFlow(page, data, options = {}) {
  const start = options.start || {};
  const svg = page.querySelector(".drawing");
  const spans = [...page.querySelectorAll(".text span:not(.unread)")];

  let methodNumber = start.method || 0;
  let rows = start.opened ? openedRows(data, start.opened.groups) : firstRows(data); // {tokens, label, name, special, key, parent, parts()}
  let rowOf = rowNumbers(); // of every token
  let methods = start.opened ? start.opened.methods : data.units ? data.units.methods : data.methods; // between the rows
  let method = methods[methodNumber];
  let layer = start.layer ?? null; // the node layer in focus; null: all of them
  let selected = start.selected || null; // {layer, tokens} that was clicked or focused
  let hovered = null; // {layer, tokens} below the pointer
  let turning = 0; // the latest rows that were asked for
  let paths = []; // SVG elements of the edges, per layer
  let circles = []; // SVG elements of the nodes, per node layer

  let layout = null;
  let narrow = false; // whether the page was when the drawing was laid out; to ask it takes a layout of the page

  const find = selector => page.querySelector(selector);
  const group = name => svg.querySelector("." + name);
  const percent = part => (100 * part).toFixed(1) + "%";
  const number = value => String(Number(value.toPrecision(4)));
  const sum = list => list.reduce((a, b) => a + b, 0);
  const lastLayer = () => method.layers.length - 1; // -1 without a flow

  function append(parent, tag, attributes, text) {
    const element = document.createElementNS(svg.namespaceURI, tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    if (text !== undefined) element.textContent = text;
    parent.append(element);
    return element;
  }

  // Layout, in pixels: tokens in rows with their scores as bars, node layers in columns, the input at the left.
  // Rows and columns are closer the more there are.
  function layOut() {
    const layerCount = Math.max(...data.methods.map(each => each.layers.length)) - 1;
    const row = rows.length <= 24 ? 24 : rows.length <= 64 ? 19 : 15;
    narrow = page.clientWidth < 520;
    const column = layerCount <= 6 ? (narrow ? 72 : 110) : layerCount <= 12 ? (narrow ? 60 : 72) : 48;
    const bar = narrow ? 48 : 84; // length of the longest bar
    const label = Math.max(40, ...labelWidths()) + (rows.some(row => row.parent) ? 16 : 0);
    const opener = data.units ? 22 : 0; // width of the marks that open rows
    const beside = opener + 2 * label + bar + 56; // what is not columns
    const fitting = Math.floor((find(".scroll").clientWidth - beside) / Math.max(layerCount, 1));
    return {
      row,
      column: Math.min(column, Math.max(fitting, NARROWEST)),
      bar,
      label,
      opener,
      left: opener + label + bar + 32, // of the input layer
      top: 44, // of the first token
      widestEdge: 0.5 * row,
      thinnestEdge: 0.3,
      radius: Math.min(7, 0.42 * row), // of a node that the whole flow goes through
      smallestRadius: 0.7, // of a node that is drawn
    };
  }
  const x = k => layout.left + k * layout.column;
  const y = i => layout.top + i * layout.row;

  // A narrow screen has the beginning of a label.
  function labelOf({label}) {
    const characters = [...label];
    return narrow && characters.length > 16 ? characters.slice(0, 15).join("").trim() + "…" : label;
  }

  function labelWidths() {
    const probe = append(group("names"), "g", {class: "chosen"}); // bold, as a selected token
    const labels = rows.map(row => append(probe, "text", {}, labelOf(row)));
    const widths = labels.map(label => label.getComputedTextLength()); // after all are there: then one layout is enough
    probe.remove();
    return widths;
  }

  // Drawing: what depends on the method alone

  function draw() {
    layout = layOut();
    const last = lastLayer();
    const width = last < 0 ? layout.left + 20 : x(last) + layout.label + 24;
    const height = layout.top + layout.row * rows.length;
    svg.setAttribute("width", width);
    svg.setAttribute("height", height);
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    const what = data.units ? `${rows.length} rows of words and sentences` : `${rows.length} tokens`;
    svg.setAttribute("aria-label", last < 0 ? `Scores of ${what}` : `Flow through ${last + 1} layers of ${what}`);
    for (const name of ["heads", "edges", "nodes", "bars", "names"]) group(name).replaceChildren();
    for (let k = 0; k <= last; k++) {
      const head = k === 0 ? "input" : k === last ? "output" : k;
      append(group("heads"), "text", {x: x(k), y: layout.top - 24}, head);
    }
    paths = method.edges.map(drawLayer);
    svg.classList.toggle("crowded", sum(paths.map(layerPaths => layerPaths.length)) > MOST_MOVING);
    drawNodes();
    drawBars();
    drawNames();
  }

  function drawLayer(edges, k) {
    const half = layout.column / 2;
    const drawn = [];
    for (let e = 0; e < edges.length; e += 3) {
      const rise = (edges[e] - edges[e + 1]) * layout.row;
      const curve = `M${x(k)} ${y(edges[e + 1])}c${half} 0 ${half} ${rise} ${2 * half} ${rise}`;
      const path = append(group("edges"), "path", {d: curve});
      if (options.pick) {
        path.dataset.edge = [k, edges[e], edges[e + 1]];
        const ends = `${rows[edges[e + 1]].label} → ${rows[edges[e]].label}`;
        append(path, "title", {}, `${ends}, layer ${k}: ${percent(edges[e + 2] / 1e6)} of the flow`);
      }
      drawn.push(path);
    }
    return drawn;
  }

  function drawNodes() {
    const nodes = group("nodes");
    circles = method.layers.map((amounts, k) => amounts.map((_, i) => append(nodes, "circle", {cx: x(k), cy: y(i)})));
    method.layers.forEach((amounts, k) => amounts.forEach((_, i) => {
      const spot = append(nodes, "circle", {class: "spot", cx: x(k), cy: y(i), r: Math.min(layout.row / 2, 11)});
      spot.dataset.layer = k;
      spot.dataset.token = rows[i].tokens[0];
    }));
  }

  // Bars end a little left of the input layer; bars of signed scores begin in the middle.
  function drawBars() {
    const largest = Math.max(...method.scores.map(Math.abs)) || 1;
    const signed = Math.min(...method.scores) < 0;
    const zero = layout.left - 14 - (signed ? layout.bar / 2 : layout.bar);
    method.scores.forEach((score, i) => {
      const width = layout.bar * Math.abs(score) / largest * (signed ? 0.5 : 1);
      const box = {x: score < 0 ? zero - width : zero, y: y(i - 0.3), width, height: 0.6 * layout.row};
      const bar = append(group("bars"), "rect", box);
      if (score < 0) bar.classList.add("less");
      append(bar, "title", {}, `${rows[i].label}: ${number(score)}`);
    });
  }

  function drawNames() {
    const names = group("names");
    const right = layout.left - 24 - layout.bar;
    names.setAttribute("role", "listbox");
    names.setAttribute("aria-label", data.units ? "Rows" : "Tokens");
    rows.forEach((row, i) => {
      const score = number(method.scores[i]);
      const [token] = row.tokens;
      const hint = opens(row) ? ", Enter opens it" : row.parent ? ", Backspace closes its row" : "";
      const attributes = {role: "option", tabindex: i ? -1 : 0, "aria-selected": false};
      const name = append(names, "g", {...attributes, "aria-label": `${row.label}, score ${score}${hint}`});
      if (row.special) name.classList.add("special");
      name.dataset.token = token;
      append(name, "rect", {x: 1.5, y: y(i) - layout.row / 2 + 1, width: right + 1, height: layout.row - 2, rx: 3});
      const place = data.units ? {x: layout.opener + (row.parent ? 16 : 4), class: "first"} : {x: right};
      append(name, "text", {...place, y: y(i)}, labelOf(row));
      if (lastLayer() > 0) {
        const end = {x: x(lastLayer()) + 16, y: y(i), "data-token": token, "data-layer": lastLayer()};
        append(name, "text", end, labelOf(row));
      }
      append(name, "title", {}, `${row.name}: ${score}`);
      if (data.units) drawOpener(name, row, i);
    });
  }

  // A mark before a row that opens, and a line along the rows that an opened one became.
  function drawOpener(name, row, i) {
    if (row.parent) append(name, "path", {class: "inside", d: `M${layout.opener + 6} ${y(i) - layout.row / 2}v${layout.row}`});
    if (!opens(row)) return;
    const opener = append(name, "g", {class: "opener"});
    append(opener, "rect", {x: 0, y: y(i) - layout.row / 2, width: layout.opener + 4, height: layout.row});
    append(opener, "path", {d: `M10 ${y(i) - 5}l7 5l-7 5z`});
    append(opener, "title", {}, `open ${row.parts().length} ${row.units.length > 1 ? `${data.units.kind}s` : "tokens"}`);
  }

  // Where the flow of the chosen tokens comes from and goes to: every node divides it in proportion to its edges.
  function trace(choice) {
    const parts = method.layers.map(() => new Float64Array(rows.length));
    const carried = method.edges.map(edges => new Float64Array(edges.length / 3));
    for (const i of rowsOf(choice)) parts[choice.layer][i] = method.layers[choice.layer][i];

    function spread(k, from, to, near, far) { // near, far: where an edge keeps its token in layers `from` and `to`
      const edges = method.edges[k];
      for (let e = 0; e < edges.length; e += 3) {
        const node = edges[e + near];
        if (!parts[from][node]) continue;
        const part = parts[from][node] * edges[e + 2] / method.layers[from][node];
        parts[to][edges[e + far]] += part;
        carried[k][e / 3] = part;
      }
    }

    for (let k = choice.layer; k < method.edges.length; k++) spread(k, k, k + 1, 1, 0);
    for (let k = Math.min(choice.layer, method.edges.length) - 1; k >= 0; k--) spread(k, k + 1, k, 0, 1);
    return {parts, carried, amount: sum([...parts[choice.layer]])};
  }

  // Painting: what depends on the layer in focus and on the chosen tokens

  function show() {
    const choice = hovered || selected;
    const last = lastLayer();
    const traced = choice && last >= 0 ? trace(choice) : null;
    paintEdges(traced);
    paintNodes(traced, choice);
    paintText(choice);
    const chosenRows = new Set(choice ? rowsOf(choice) : []);
    page.classList.toggle("several", chosenRows.size > 1);
    [...group("names").children].forEach((name, i) => {
      const chosen = chosenRows.has(i);
      name.classList.toggle("chosen", chosen);
      paint(name, {"aria-selected": String(chosen)});
    });
    [...group("heads").children].forEach((head, k) => head.classList.toggle("now", k === layer));
    find(".layer").textContent = last < 0 ? "no layers" : layer === null ? "all layers" : layerName(layer);
    find(".back").disabled = last < 0 || layer === 0;
    find(".on").disabled = last < 0 || layer === last;
    find(".all").disabled = last < 0 || layer === null;
    find(".says").replaceChildren(...describe(choice, traced));
  }

  function layerName(k) {
    if (k === 0) return "input (layer 0)";
    return k === lastLayer() ? `output (layer ${k})` : `layer ${k}`;
  }

  function paintEdges(traced) {
    const amounts = traced ? traced.carried : method.edges.map(edges => edges.filter((_, e) => e % 3 === 2));
    const least = traced ? traced.amount / 5 : 0; // or a thin trickle would look like a river
    const largest = Math.max(least, ...amounts.flatMap(layerAmounts => [...layerAmounts])) || 1;
    paths.forEach((layerPaths, k) => {
      const near = layer === null || k === layer || k === layer - 1;
      // all stored edges would be too many to look at; layers in focus show more of them
      const drawn = Math.max(Math.floor(data.drawn_edges / (layer !== null && near ? 2 : paths.length)), 1);
      const leading = traced ? leadingAmount(amounts[k]) : Infinity;
      layerPaths.forEach((path, e) => {
        const amount = amounts[k][e];
        const mine = Boolean(traced) && amount > 0;
        const leads = mine && amount >= leading;
        const strength = Math.sqrt(amount / largest);
        let opacity = (0.12 + 0.6 * strength) * (near ? 1 : 0.15);
        if (traced) opacity = mine ? Math.max(0.06 + 0.66 * strength, leads ? 0.45 : 0) : 0.05;
        const width = Math.max(layout.widestEdge * amount / largest, leads ? 1 : layout.thinnestEdge);
        const name = mine ? "mine" : e < layerPaths.length - drawn ? "weak" : "";
        paint(path, {class: name, "stroke-width": width.toFixed(2), "stroke-opacity": opacity.toFixed(2)});
      });
    });
  }

  // Sets attributes that are not so yet: most edges and nodes stay as they are when the pointer moves on, and browsers
  // look again at all that is set.
  function paint(element, attributes) {
    for (const [name, value] of Object.entries(attributes)) {
      if (element.getAttribute(name) !== value) element.setAttribute(name, value);
    }
  }

  // The smallest amount among the strongest few edges of a layer: these must be visible, however little they carry.
  function leadingAmount(carried) {
    const order = [...carried].filter(part => part > 0).sort((a, b) => b - a);
    return order.length ? order[Math.min(5, order.length - 1)] : Infinity;
  }

  function paintNodes(traced, choice) {
    const whole = traced ? traced.amount || 1 : 1e6;
    const amounts = traced ? traced.parts : method.layers;
    circles.forEach((layerCircles, k) => layerCircles.forEach((circle, i) => {
      const radius = layout.radius * Math.sqrt(amounts[k][i] / whole);
      const size = radius >= layout.smallestRadius ? radius.toFixed(2) : "0";
      const name = traced ? "mine" : layer !== null && k !== layer ? "far" : "";
      paint(circle, size === "0" ? {r: size} : {r: size, class: name});
    }));
    for (const ring of svg.querySelectorAll(".ring")) ring.remove();
    if (!traced) return;
    for (const i of rowsOf(choice)) {
      append(group("nodes"), "circle", {class: "ring", cx: x(choice.layer), cy: y(i), r: layout.radius + 2});
    }
  }

  // The text is shaded by the layer in focus: by its through-flow, or else by the method's scores.
  function paintText(choice) {
    const flow = layer !== null && lastLayer() >= 0;
    const ofTokens = data.methods[methodNumber];
    const scores = flow ? ofTokens.layers[layer].map(part => part / 1e6 * ofTokens.value) : ofTokens.scores;
    const runScores = data.runs.map(run => sum(run.map(i => scores[i])));
    const largest = Math.max(...runScores.map(Math.abs), 0);
    const total = sum(scores.map(Math.abs)) || 1;
    const signed = Math.min(...scores) < 0;
    spans.forEach((span, r) => {
      const run = data.runs[r];
      const level = largest ? Math.round(runScores[r] / largest * data.levels) : 0;
      const shade = level ? (level < 0 ? "n" : "p") + Math.abs(level) : "";
      const isChosen = Boolean(choice && run.some(i => choice.tokens.includes(i)));
      const tokens = run.map(i => data.tokens[i]).join(" ");
      const title = `${number(runScores[r])} (${percent(Math.abs(runScores[r]) / total)} of all scores): ${tokens}`;
      paint(span, {class: [shade, isChosen ? "chosen" : ""].filter(Boolean).join(" "), title});
    });
    find(".low").textContent = signed ? number(-largest) : "0";
    find(".high").textContent = number(largest);
    find(".below").hidden = !signed;
    const words = signed ? data.legends.signed : data.legends.positive;
    find(".of").textContent = flow ? words.replace(/^[^;]*/, `flow through each token of ${layerName(layer)}`) : words;
  }

  function describe(choice, traced) {
    if (!choice) return [method.caption];
    const tokens = document.createElement("b");
    tokens.textContent = `“${rowsOf(choice).map(i => rows[i].name).join(" ")}”`;
    const score = `score ${number(sum(rowsOf(choice).map(i => method.scores[i])))}`;
    if (!traced) return [tokens, `: ${score}. ${method.caption}`];
    const {parts, amount} = traced;
    const last = lastLayer();
    const sentences = [tokens, ` in ${layerName(choice.layer)}: ${percent(amount / 1e6)} of the flow (${score}).`];
    if (!amount || !method.edges.length) return sentences;
    if (choice.layer < last) sentences.push(` Of it, the output holds ${listEnd(endOf(parts, choice, 0), amount)}.`);
    if (choice.layer > 0) sentences.push(` Of it, the input gets ${listEnd(endOf(parts, choice, 1), amount)}.`);
    const atEnd = choice.layer === 0 || choice.layer === last;
    const drawn = sum([...parts[choice.layer < last ? last : 0]]) / amount;
    if ((data.units || method.ends.length) && atEnd && drawn < 0.9995) {
      sentences.push(` The lines carry ${percent(drawn)} of it from end to end; the rest goes by edges not shown.`);
    }
    return sentences;
  }

  // The parts of the chosen tokens' flow at the output (direction 0) or at the input (1). For tokens at the opposite
  // end, method.ends[direction][i] = [token, millionths of i's flow, ...] counts all edges; else only stored ones count.
  function endOf(parts, choice, direction) {
    const last = lastLayer();
    const near = direction ? last : 0;
    if (data.units || !method.ends.length || choice.layer !== near) {
      return {parts: parts[direction ? 0 : last], missing: "by edges not shown"};
    }
    const exact = new Float64Array(rows.length);
    for (const i of choice.tokens) {
      const pairs = method.ends[direction][i];
      for (let e = 0; e < pairs.length; e += 2) exact[pairs[e]] += pairs[e + 1] / 1e6 * method.layers[near][i];
    }
    return {parts: exact, missing: "others"};
  }

  function listEnd({parts, missing}, amount) {
    const threshold = 5e-4 * amount;
    const order = [...parts.keys()].filter(i => parts[i] >= threshold).sort((a, b) => parts[b] - parts[a] || a - b);
    const named = order.slice(0, 5);
    const list = named.map(i => `“${rows[i].label}” ${percent(parts[i] / amount)}`);
    const lost = Math.max(amount - sum([...parts]), 0);
    const others = amount - sum(named.map(i => parts[i])) - lost;
    if (others > threshold) list.push(`${percent(others / amount)} others`);
    if (lost > threshold) list.push(`${percent(lost / amount)} ${missing}`);
    return list.join(", ") || "nothing";
  }

  // Pointer, keys and controls

  function choiceAt(event) {
    const element = event.target instanceof Element ? event.target.closest("[data-token],.text span:not(.unread)") : null;
    if (!element) return null;
    const current = layer === null || lastLayer() < 0 ? 0 : layer;
    if (!("token" in element.dataset)) return {layer: current, tokens: wholeRows(data.runs[spans.indexOf(element)] || [])};
    const tokens = wholeRows([Number(element.dataset.token)]);
    return {layer: "layer" in element.dataset ? Number(element.dataset.layer) : current, tokens};
  }

  function focusRow(i) {
    const names = [...group("names").children];
    names.forEach((name, k) => name.setAttribute("tabindex", k === i ? 0 : -1));
    names[i].focus();
  }

  function step(by) {
    const last = lastLayer();
    if (last < 0) return;
    if (layer === null) layer = by > 0 ? 0 : last;
    else layer = Math.min(Math.max(layer + by, 0), last);
    if (selected) selected = {...selected, layer};
    show();
    told();
  }

  function switchTo(index) {
    methodNumber = index;
    method = methods[index];
    const last = lastLayer();
    if (layer !== null) layer = last < 0 ? null : Math.min(layer, last);
    if (selected) selected = {...selected, layer: Math.min(selected.layer, Math.max(last, 0))};
    hovered = null;
    for (const part of page.querySelectorAll("[data-method]")) part.hidden = Number(part.dataset.method) !== index;
    draw();
    show();
  }

  const listening = new AbortController();
  const listen = (element, name, action) => element.addEventListener(name, action, {signal: listening.signal});

  listen(page, "pointerover", event => {
    const choice = event.pointerType === "touch" ? null : choiceAt(event);
    if (JSON.stringify(choice) === JSON.stringify(hovered)) return;
    hovered = choice;
    show();
  });
  listen(page, "pointerleave", () => { hovered = null; show(); });
  listen(page, "click", event => {
    if (!(event.target instanceof Element)) return;
    const edge = options.pick && event.target.closest("[data-edge]");
    if (edge) {
      options.onPick(pickedEdge(...edge.dataset.edge.split(",").map(Number)));
      return;
    }
    const choice = choiceAt(event);
    if (!choice) return;
    hovered = null;
    if (event.target.closest(".opener")) {
      open(rows[rowsOf(choice)[0]]);
      return;
    }
    if (choice.tokens.length) focusRow(rowsOf(choice)[0]);
    selected = choice;
    show();
    told();
    if (options.onPick) options.onPick(choice);
  });
  listen(page, "focusin", event => {
    if (!event.target.closest(".names")) return;
    selected = choiceAt(event);
    show();
    told();
  });
  listen(page, "keydown", event => {
    if (event.altKey || event.ctrlKey || event.metaKey || event.target.closest("select,summary,input")) return;
    const inList = event.target.closest(".names");
    const row = inList ? rowOf[event.target.dataset.token] : 0;
    const moves = {ArrowUp: row - 1, ArrowDown: row + 1, Home: 0, End: rows.length - 1};
    if (event.key === "ArrowLeft") step(-1);
    else if (event.key === "ArrowRight") step(1);
    else if (event.key === "Escape") { selected = hovered = layer = null; show(); told(); }
    else if (inList && event.key in moves) focusRow(Math.min(Math.max(moves[event.key], 0), rows.length - 1));
    else if (inList && [" ", "Enter"].includes(event.key) && opens(rows[row])) open(rows[row]);
    else if (inList && event.key === "Backspace" && rows[row].parent) close(rows[row].parent);
    else return;
    event.preventDefault();
  });
  listen(find(".back"), "click", () => step(-1));
  listen(find(".on"), "click", () => step(1));
  listen(find(".all"), "click", () => { layer = null; show(); told(); });
  listen(find(".choose"), "change", event => { switchTo(Number(event.target.value)); told(); });

  page.classList.add("live");
  page.classList.toggle("by-units", Boolean(data.units));
  for (const name of [".controls", ".says", ".help"]) find(name).hidden = false;
  find(".choose").selectedIndex = methodNumber; // browsers restore the choice of a page loaded again
  switchTo(methodNumber);
  if (data.units) showOpened();

  // Marks edges, such as those of a cut; those that are not drawn otherwise are added.
  function mark(edges, name = "cut") {
    for (const path of svg.querySelectorAll(`.edges .${name}`)) path.remove();
    const capacities = new Map(); // between rows
    for (const {layer: k, i, j, capacity} of edges) {
      if (k < 0 || k >= lastLayer()) continue;
      const place = [k, rowOf[i], rowOf[j]].join();
      capacities.set(place, (capacities.get(place) || 0) + capacity);
    }
    const largest = Math.max(...capacities.values());
    const half = layout.column / 2;
    for (const [place, capacity] of capacities) {
      const [k, i, j] = place.split(",").map(Number);
      const rise = (i - j) * layout.row;
      const width = Math.max(layout.widestEdge * capacity / largest, 1).toFixed(2);
      const curve = `M${x(k)} ${y(j)}c${half} 0 ${half} ${rise} ${2 * half} ${rise}`;
      append(group("edges"), "path", {class: name, d: curve, "stroke-width": width});
    }
  }

  function focusLayer(k) {
    layer = k === null || lastLayer() < 0 ? null : Math.min(Math.max(k, 0), lastLayer());
    show();
  }

  // Rows

  function rowNumbers() {
    const numbers = [];
    rows.forEach((row, i) => { for (const token of row.tokens) numbers[token] = i; });
    return numbers;
  }

  function rowsOf(choice) {
    return [...new Set(choice.tokens.map(token => rowOf[token]))];
  }

  function wholeRows(tokens) {
    return rowsOf({tokens}).flatMap(i => rows[i].tokens);
  }

  function pickedEdge(k, i, j) {
    const ends = [...rows[i].tokens, ...rows[j].tokens];
    return ends.length === 2 ? {edge: [k, ...ends]} : {layer: k, tokens: rows[j].tokens};
  }

  function opens(row) {
    return row.tokens.length > 1 && Boolean(options.open || (data.units && data.units.opened && data.units.opened[row.key]));
  }

  // The rows with one of them opened. A page of data alone knows each row only opened by itself, so others close.
  function open(row) {
    const inside = row.parent && !options.open ? [row.parent, row] : [row];
    let opened = options.open ? rows : firstRows(data);
    for (const part of inside) {
      opened = opened.flatMap(other => (other.key === part.key ? part.parts() : [other]));
    }
    turnTo(opened, row.key, row.tokens);
  }

  function close(parent) {
    const within = row => row && (row.key === parent.key || within(row.parent));
    const first = rows.findIndex(row => within(row.parent));
    const closed = rows.filter(row => !within(row.parent));
    closed.splice(first, 0, parent);
    turnTo(closed, parent.parent ? parent.parent.key : null, parent.tokens);
  }

  // Draws other rows, once their flow is there, and selects `tokens`; `key` is of the row that is opened in the data.
  async function turnTo(newRows, key, tokens) {
    turning += 1;
    const turn = turning;
    const first = firstRows(data);
    const isFirst = newRows.length === first.length && newRows.every((row, i) => row.key === first[i].key);
    let newMethods = data.units.methods;
    if (!isFirst && options.open) {
      page.setAttribute("aria-busy", true);
      try {
        newMethods = await options.open(newRows.map(row => row.tokens));
      } catch (problem) {
        find(".says").textContent = `The row does not open: ${problem.detail || problem.message || problem}`;
        return;
      } finally {
        page.removeAttribute("aria-busy");
      }
    } else if (!isFirst) {
      newMethods = data.units.opened[key];
    }
    if (turn !== turning) return;
    rows = newRows;
    rowOf = rowNumbers();
    methods = newMethods;
    selected = hovered = null;
    switchTo(methodNumber);
    showOpened();
    focusRow(rowOf[tokens[0]]);
    selected = {layer: layer ?? 0, tokens};
    show();
    told();
  }

  // What the rows are, and which of them are open; each of these has a button that closes it.
  function showOpened() {
    let line = find(".opened");
    if (!line) {
      line = document.createElement("p");
      line.className = "opened note";
      find(".scroll").before(line);
    }
    const {members, kind, left_out} = data.units;
    const plain = members.length - sum(data.special);
    const parts = [`${plain} ${kind}s in ${data.units.rows.length} rows, those with little flow joined. `];
    if (plain <= data.units.rows.length) parts[0] = `Drawn by ${kind}. `;
    const open = [];
    for (const row of rows) {
      for (let parent = row.parent; parent; parent = parent.parent) if (!open.includes(parent)) open.push(parent);
    }
    if (!open.length) parts.push(`Click on ▸ to open a row. ${left_out || ""}`);
    for (const row of open) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = `▾ close “${row.label}”`;
      button.addEventListener("click", () => close(row));
      parts.push(button, " ");
    }
    line.replaceChildren(...parts);
  }

  function told() {
    if (options.onSelect) options.onSelect(state());
  }

  function state() {
    const groups = rows.some(row => row.parent) ? rows.map(row => row.tokens) : null;
    return {method: methodNumber, layer, selected, groups};
  }

  function select(choice) {
    selected = choice && {...choice, tokens: wholeRows(choice.tokens)};
    show();
  }

  return {mark, focusLayer, select, state, leave: () => listening.abort()};
}

// The groups of tokens that rows are, if a drawing begins with those of another one of the same text opened.
export const openedGroups = (data, groups) => openedRows(data, groups).map(row => row.tokens);

// The rows that a drawing begins with, opened where `groups` are smaller.
function openedRows(data, groups) {
  const isOpen = row => groups.some(group => group.length < row.tokens.length && row.tokens.includes(group[0]));
  const split = row => (isOpen(row) ? row.parts().flatMap(split) : [row]);
  return firstRows(data).flatMap(split);
}

// The rows that a drawing begins with: tokens, or the rows of units.
function firstRows(data) {
  if (!data.units) return data.tokens.map((_, token) => tokenRow(data, token, null));
  let first = 0;
  return data.units.rows.map((count, number) => {
    const row = unitsRow(data, first, count, `r${number}`, null);
    first += count;
    return row;
  });
}

function tokenRow(data, token, parent) {
  const label = data.labels[token];
  return {tokens: [token], units: [], label, name: data.tokens[token], special: data.special[token], key: `t${token}`, parent};
}

// A row of one unit opens into its tokens, and one of several into units.
function unitsRow(data, first, count, key, parent) {
  const {members, names, labels, kind} = data.units;
  const units = [...Array(count).keys()].map(k => first + k);
  const tokens = units.flatMap(unit => members[unit]);
  if (tokens.length === 1) return tokenRow(data, tokens[0], parent);
  const one = count === 1;
  const row = {tokens, units, special: data.special[tokens[0]], parent};
  row.key = one ? `u${first}` : key;
  row.label = one ? labels[first] : `⋯ ${count} ${kind}s`;
  row.name = one ? names[first] : `${labels[first]} … ${labels[first + count - 1]}`;
  row.parts = () => (one ? tokens.map(token => tokenRow(data, token, row)) : units.map(unit => unitsRow(data, unit, 1, "", row)));
  return row;
}
