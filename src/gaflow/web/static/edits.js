// Changes to the network of an explanation, with undo and redo.
//
// An edit is {kind, value}. Kinds are arguments of /solve. Of some there is one at most, and a later one replaces it.

import {EDGES} from "./results.js";

const ONCE = ["groups", "epsilon", "sources", "targets"];
export const IN_THE_MODEL = ["cut_edges", "cut_nodes", "skip_layers"]; // what can be removed from the model too

export class Edits {
  constructor(list = []) {
    this.past = [];
    this.list = Array.isArray(list) ? list.filter(edit => edit && edit.kind) : [];
    this.future = [];
  }

  value(kind) {
    const found = this.list.find(edit => edit.kind === kind);
    return found ? found.value : undefined;
  }

  // `value` null takes the edit of this kind away. `together`: the edit before it was the same gesture, undone as one.
  add(kind, value, together = false) {
    if (!(together && this.value(kind) !== undefined)) this.past.push(this.list);
    this.future = [];
    const others = ONCE.includes(kind) ? this.list.filter(edit => edit.kind !== kind) : this.list;
    this.list = value === null ? others : [...others, {kind, value}];
  }

  remove(index) {
    this.past.push(this.list);
    this.future = [];
    this.list = this.list.filter((_, k) => k !== index);
  }

  clear() {
    this.past.push(this.list);
    this.future = [];
    this.list = [];
  }

  undo() {
    if (!this.past.length) return;
    this.future.push(this.list);
    this.list = this.past.pop();
  }

  redo() {
    if (!this.future.length) return;
    this.past.push(this.list);
    this.list = this.future.pop();
  }

  // The body of a request that solves the network of result `id` with these changes.
  body(id) {
    const body = {id, cut_edges: [], cut_nodes: [], skip_layers: [], widen: [], edges: EDGES};
    for (const {kind, value} of this.list) {
      if (kind === "groups" && Array.isArray(value)) {
        body.groups = value.map(group => group.tokens);
        body.group_names = value.map(group => group.name);
      } else if (Array.isArray(body[kind])) body[kind].push(value);
      else body[kind] = value;
    }
    return body;
  }

  // The part of them that can be asked of the model itself.
  modelBody(id) {
    const body = {id, cut_edges: [], cut_nodes: [], skip_layers: []};
    for (const {kind, value} of this.list) if (IN_THE_MODEL.includes(kind)) body[kind].push(value);
    return body;
  }
}

export function wordsOf({kind, value}, labels) {
  const name = token => `“${labels[token] ?? token}”`;
  if (kind === "cut_edges") return `Cut the edge ${name(value[2])} → ${name(value[1])}, layer ${value[0]}`;
  if (kind === "widen") return `Widened ${value[3]}×: ${name(value[2])} → ${name(value[1])}, layer ${value[0]}`;
  if (kind === "cut_nodes") return `Cut the node ${name(value[1])}, layer ${value[0]}`;
  if (kind === "skip_layers") return `Skipped layer ${value}`;
  if (kind === "sources") return `Flow starts only at ${value.map(name).join(", ")}`;
  if (kind === "targets") return `Flow ends only at ${value.map(name).join(", ")}`;
  if (kind === "epsilon") return `Barrier ${value.toExponential(0)}`;
  if (kind === "groups" && Array.isArray(value)) {
    return `Joined: ${value.map(group => group.name || group.tokens.map(token => labels[token]).join(" ")).join("; ")}`;
  }
  return `Tokens joined into ${value}s`;
}
