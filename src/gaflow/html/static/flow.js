"use strict";
(() => {
  const page = document.querySelector("main"), svg = page.querySelector(".drawing"), one = name => page.querySelector(name);
  const data = JSON.parse(document.getElementById("flow-data").textContent), at = data.place, t = data.tokens.length;
  const spans = [...page.querySelectorAll(".text span:not(.unread)")];
  const group = name => svg.querySelector("." + name);
  let method = data.methods[0];
  let layer = null; // node layer that is looked at; null: all of them
  let kept = null; // {layer, tokens} that was clicked or focused
  let pointed = null; // {layer, tokens} below the pointer
  let paths = [], circles = [];

  const x = k => at.left + k * at.column, y = i => at.top + i * at.row;
  const percent = part => (100 * part).toFixed(1) + "%", figure = value => String(Number(value.toPrecision(4)));
  const sum = list => list.reduce((a, b) => a + b, 0);

  function put(parent, tag, attributes, text) {
    const made = document.createElementNS(svg.namespaceURI, tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    if (text !== undefined) made.textContent = text;
    parent.append(made);
    return made;
  }

  function draw() {
    const top = method.layers.length - 1, wide = top < 0 ? at.left + 20 : x(top) + at.names + 24;
    svg.setAttribute("width", wide);
    svg.setAttribute("viewBox", `0 0 ${wide} ${svg.getAttribute("height")}`);
    svg.setAttribute("aria-label", top < 0 ? `Scores of ${t} tokens` : `Flow through ${top + 1} layers of ${t} tokens`);
    for (const name of ["heads", "edges", "nodes", "bars", "names"]) group(name).replaceChildren();
    for (let k = 0; k <= top; k++) {
      put(group("heads"), "text", {x: x(k), y: at.top - 24}, k === 0 ? "input" : k === top ? "output" : k);
    }
    drawEdges();
    drawNodes();
    drawBars();
    drawNames(top);
  }

  function drawEdges() {
    paths = method.edges.map((each, k) => {
      const half = at.column / 2, made = [];
      for (let e = 0; e < each.length; e += 3) {
        const rise = (each[e] - each[e + 1]) * at.row;
        const curve = `M${x(k)} ${y(each[e + 1])}c${half} 0 ${half} ${rise} ${2 * half} ${rise}`;
        made.push(put(group("edges"), "path", {d: curve}));
      }
      return made;
    });
  }

  function drawNodes() {
    circles = method.layers.map((each, k) => each.map((_, i) => put(group("nodes"), "circle", {cx: x(k), cy: y(i)})));
    method.layers.forEach((each, k) => each.forEach((amount, i) => {
      const spot = put(group("nodes"), "circle", {class: "spot", cx: x(k), cy: y(i), r: Math.min(at.row / 2, 11)});
      spot.dataset.layer = k;
      spot.dataset.token = i;
    }));
  }

  function drawBars() {
    const largest = Math.max(...method.scores.map(Math.abs)) || 1, signed = Math.min(...method.scores) < 0;
    method.scores.forEach((score, i) => {
      const size = at.bar * Math.abs(score) / largest * (signed ? 0.5 : 1);
      const zero = at.left - 14 - (signed ? at.bar / 2 : at.bar);
      const place = {x: zero - (score < 0 ? size : 0), y: y(i - 0.3), width: size, height: 0.6 * at.row};
      const bar = put(group("bars"), "rect", score < 0 ? {class: "less", ...place} : place);
      put(bar, "title", {}, `${data.labels[i]}: ${figure(score)}`);
    });
  }

  function drawNames(top) {
    const names = group("names");
    names.setAttribute("role", "listbox");
    names.setAttribute("aria-label", "Tokens");
    data.labels.forEach((label, i) => {
      const said = `${label}, score ${figure(method.scores[i])}`;
      const name = put(names, "g", {role: "option", tabindex: i ? -1 : 0, "aria-label": said, "aria-selected": false});
      if (data.special[i]) name.classList.add("special");
      name.dataset.token = i;
      const left = at.left - 20 - at.bar;
      put(name, "rect", {x: 1.5, y: y(i) - at.row / 2 + 1, width: left - 3, height: at.row - 2, rx: 3});
      put(name, "text", {x: left - 4, y: y(i)}, label);
      if (top > 0) {
        const end = {x: x(top) + 16, y: y(i), "data-token": i, "data-layer": top};
        put(name, "text", end, label);
      }
      put(name, "title", {}, `${data.tokens[i]}: ${figure(method.scores[i])}`);
    });
  }

  // Where the flow of the chosen nodes comes from and goes to, each node dividing it as its shown edges are.
  function reach(chosen) {
    const parts = method.layers.map(() => new Float64Array(t));
    const carried = method.edges.map(each => new Float64Array(each.length / 3));
    for (const i of chosen.tokens) parts[chosen.layer][i] = method.layers[chosen.layer][i];
    const spread = (k, from, to, source, goal) => {
      const each = method.edges[k];
      for (let e = 0; e < each.length; e += 3) {
        const node = each[e + source], held = parts[from][node];
        if (!held) continue;
        const part = held * each[e + 2] / method.layers[from][node];
        parts[to][each[e + goal]] += part;
        carried[k][e / 3] = part;
      }
    };
    for (let k = chosen.layer; k < method.edges.length; k++) spread(k, k, k + 1, 1, 0);
    for (let k = chosen.layer - 1; k >= 0 && method.edges.length; k--) spread(k, k + 1, k, 0, 1);
    return {parts, carried};
  }

  function show() {
    const chosen = pointed || kept, flows = method.layers.length > 0;
    const found = chosen && flows ? reach(chosen) : null;
    paintEdges(found, chosen);
    paintNodes(found, chosen);
    paintText(chosen);
    [...group("names").children].forEach((name, i) => {
      const mine = Boolean(chosen && chosen.tokens.includes(i));
      name.classList.toggle("chosen", mine);
      name.setAttribute("aria-selected", mine);
    });
    [...group("heads").children].forEach((head, k) => head.classList.toggle("now", k === layer));
    const last = method.layers.length - 1;
    one(".layer").textContent = !flows ? "no layers" : layer === null ? "all layers" : name(layer);
    one(".back").disabled = !flows || layer === 0;
    one(".on").disabled = !flows || layer === last;
    one(".all").disabled = !flows || layer === null;
    one(".says").replaceChildren(...say(chosen, found));
  }

  const name = k => k === 0 ? "input (layer 0)" : k === method.layers.length - 1 ? `output (layer ${k})` : `layer ${k}`;

  function paintEdges(found, chosen) {
    const all = found ? found.carried : method.edges.map(each => each.filter((_, e) => e % 3 === 2));
    const held = found ? sum([...found.parts[chosen.layer]]) / 5 : 0; // or a thin trickle would look like a river
    const largest = Math.max(held, ...all.map(each => each.length ? Math.max(...each) : 0)) || 1;
    const leading = found ? all.map(least) : [];
    paths.forEach((each, k) => each.forEach((path, e) => {
      const part = all[k][e] / largest, near = layer === null || k === layer || k === layer - 1;
      const mine = Boolean(found) && all[k][e] > 0;
      // all that is kept would be too much to look at; layers that are looked at show more
      const some = Math.floor(data.still / (layer !== null && near ? 2 : paths.length));
      path.classList.toggle("weak", !mine && e < each.length - Math.max(some, 1));
      path.classList.toggle("mine", mine);
      const leads = mine && all[k][e] >= leading[k];
      path.setAttribute("stroke-width", Math.max(at.widest * part, leads ? 1 : at.thinnest).toFixed(2));
      const plain = (0.12 + 0.6 * Math.sqrt(part)) * (near ? 1 : 0.15);
      const dark = !found ? plain : mine ? Math.max(0.06 + 0.66 * Math.sqrt(part), leads ? 0.45 : 0) : 0.05;
      path.setAttribute("stroke-opacity", dark.toFixed(2));
    }));
  }

  // What the strongest few of a layer's edges carry at least: these are to be seen, however little it is.
  function least(carried) {
    const order = [...carried].filter(part => part > 0).sort((a, b) => b - a);
    return order.length ? order[Math.min(5, order.length - 1)] : Infinity;
  }

  function paintNodes(found, chosen) {
    const whole = found ? sum([...found.parts[chosen.layer]]) || 1 : 1e6;
    circles.forEach((each, k) => each.forEach((circle, i) => {
      const part = (found ? found.parts[k][i] : method.layers[k][i]) / whole, size = at.radius * Math.sqrt(part);
      circle.setAttribute("r", (size >= at.smallest ? size : 0).toFixed(2));
      circle.classList.toggle("mine", Boolean(found));
      circle.classList.toggle("far", !found && layer !== null && k !== layer);
    }));
    for (const ring of svg.querySelectorAll(".ring")) ring.remove();
    for (const i of found ? chosen.tokens : []) {
      put(group("nodes"), "circle", {class: "ring", cx: x(chosen.layer), cy: y(i), r: at.radius + 2});
    }
  }

  // The text has the shades of the layer that is looked at: its through-flow, or the method's scores.
  function paintText(chosen) {
    const flow = layer !== null && method.layers.length;
    const each = flow ? method.layers[layer].map(part => part / 1e6 * method.value) : method.scores;
    const scores = data.runs.map(run => sum(run.map(i => each[i]))), largest = Math.max(...scores.map(Math.abs), 0);
    const total = sum(each.map(Math.abs)), signed = Math.min(...each) < 0;
    spans.forEach((span, r) => {
      const level = largest ? Math.round(scores[r] / largest * data.levels) : 0;
      span.className = level ? (level < 0 ? "n" : "p") + Math.abs(level) : "";
      span.classList.toggle("chosen", Boolean(chosen && data.runs[r].some(i => chosen.tokens.includes(i))));
      const names = data.runs[r].map(i => data.tokens[i]).join(" ");
      span.title = `${figure(scores[r])} (${percent(total ? Math.abs(scores[r]) / total : 0)} of all): ${names}`;
    });
    one(".low").textContent = signed ? figure(-largest) : "0";
    one(".high").textContent = figure(largest);
    one(".below").hidden = !signed;
    const what = flow ? `flow through each token of ${name(layer)}` : "score per token";
    one(".of").textContent = what + "; the stronger the shade, the larger" + (signed ? "; dashed line: below 0" : "");
  }

  function say(chosen, found) {
    if (!chosen) return [method.says];
    const bold = document.createElement("b"), names = chosen.tokens.map(i => data.tokens[i]).join(" ");
    bold.textContent = `“${names}”`;
    const score = `score ${figure(sum(chosen.tokens.map(i => method.scores[i])))}`;
    if (!found) return [bold, `: ${score}. ${method.says}`];
    const held = sum([...found.parts[chosen.layer]]), last = method.layers.length - 1;
    const said = [bold, ` in ${name(chosen.layer)}: ${percent(held / 1e6)} of the flow (${score}).`];
    if (!held || !method.edges.length) return said;
    if (chosen.layer < last) said.push(` Of it, the output holds ${list(end(found.parts, chosen, 0), held)}.`);
    if (chosen.layer > 0) said.push(` Of it, the input gets ${list(end(found.parts, chosen, 1), held)}.`);
    const drawn = sum([...found.parts[chosen.layer < last ? last : 0]]) / held;
    if (method.ends.length && (chosen.layer === 0 || chosen.layer === last) && drawn < 0.9995) {
      said.push(` The lines carry ${percent(drawn)} of it from end to end; the rest goes by edges not shown.`);
    }
    return said;
  }

  // What the far end has of a chosen token: by all edges where the page knows that, else by those that are shown.
  function end(parts, chosen, down) {
    const last = method.layers.length - 1, near = down ? last : 0, shown = parts[down ? 0 : last];
    if (!method.ends.length || chosen.layer !== near) return {parts: shown, rest: "by edges not shown"};
    const known = new Float64Array(t);
    for (const i of chosen.tokens) {
      const each = method.ends[down][i];
      for (let e = 0; e < each.length; e += 2) known[each[e]] += each[e + 1] / 1e6 * method.layers[near][i];
    }
    return {parts: known, rest: "others"};
  }

  function list({parts, rest: missing}, held) {
    const order = [...parts.keys()].filter(i => parts[i] >= 5e-4 * held).sort((a, b) => parts[b] - parts[a] || a - b).slice(0, 5);
    const named = order.map(i => `“${data.labels[i]}” ${percent(parts[i] / held)}`);
    const rest = sum(order.map(i => parts[i])), lost = Math.max(held - sum([...parts]), 0);
    if (held - rest - lost > 5e-4 * held) named.push(`${percent((held - rest - lost) / held)} others`);
    if (lost > 5e-4 * held) named.push(`${percent(lost / held)} ${missing}`);
    return named.join(", ") || "nothing";
  }

  // Pointer, keys and controls

  function target(event) {
    const found = event.target instanceof Element ? event.target.closest("[data-token],.text span:not(.unread)") : null;
    if (!found) return null;
    const here = layer === null || !method.layers.length ? 0 : layer;
    if (!("token" in found.dataset)) return {layer: here, tokens: data.runs[spans.indexOf(found)] || []};
    return {layer: "layer" in found.dataset ? Number(found.dataset.layer) : here, tokens: [Number(found.dataset.token)]};
  }

  function focus(i) {
    const names = [...group("names").children];
    names.forEach((name, k) => name.setAttribute("tabindex", k === i ? 0 : -1));
    names[i].focus();
  }

  function step(by) {
    const last = method.layers.length - 1;
    if (last < 0) return;
    layer = layer === null ? (by > 0 ? 0 : last) : Math.min(Math.max(layer + by, 0), last);
    if (kept) kept = {...kept, layer};
    show();
  }

  page.addEventListener("pointerover", event => {
    const found = event.pointerType === "touch" ? null : target(event);
    if (JSON.stringify(found) === JSON.stringify(pointed)) return;
    pointed = found;
    show();
  });
  page.addEventListener("pointerleave", () => { pointed = null; show(); });
  page.addEventListener("click", event => {
    const found = target(event);
    if (!found) return;
    pointed = null;
    if (found.tokens.length) focus(found.tokens[0]);
    kept = found;
    show();
  });
  page.addEventListener("focusin", event => {
    if (!event.target.closest(".names")) return;
    kept = target(event);
    show();
  });
  page.addEventListener("keydown", event => {
    if (event.altKey || event.ctrlKey || event.metaKey || event.target.closest("select,summary")) return;
    const inside = event.target.closest(".names"), now = inside ? Number(event.target.dataset.token) : 0;
    const moves = {ArrowUp: now - 1, ArrowDown: now + 1, Home: 0, End: t - 1};
    if (event.key === "ArrowLeft" || event.key === "ArrowRight") step(event.key === "ArrowLeft" ? -1 : 1);
    else if (event.key === "Escape") { kept = pointed = layer = null; show(); }
    else if (inside && event.key in moves) focus(Math.min(Math.max(moves[event.key], 0), t - 1));
    else return;
    event.preventDefault();
  });
  one(".back").addEventListener("click", () => step(-1));
  one(".on").addEventListener("click", () => step(1));
  one(".all").addEventListener("click", () => { layer = null; show(); });
  one(".choose").addEventListener("change", event => { choose(Number(event.target.value)); });

  function choose(index) {
    method = data.methods[index];
    const last = method.layers.length - 1;
    if (layer !== null) layer = last < 0 ? null : Math.min(layer, last);
    if (kept) kept = {...kept, layer: Math.min(kept.layer, Math.max(last, 0))};
    pointed = null;
    for (const part of page.querySelectorAll("[data-method]")) part.hidden = Number(part.dataset.method) !== index;
    draw();
    show();
  }

  page.classList.add("live");
  one(".controls").hidden = false;
  one(".help").hidden = false;
  one(".choose").selectedIndex = 0; // browsers keep what was chosen before a page is loaded again
  choose(0);
})();
