// What all pages share: the line for problems, the progress of work, and what the server has.

import {get, work} from "./api.js";
import {visible} from "./elements.js";

export const server = {models: [], methods: [], runs: [], version: ""};

export async function readServer() {
  const [{models}, {methods}, {runs}, {version}] = await Promise.all(["models", "methods", "runs", "health"].map(get));
  Object.assign(server, {models, methods, runs, version});
}

export function complain(problem) {
  const line = document.querySelector(".problem");
  for (const wrong of document.querySelectorAll("[aria-invalid]")) wrong.removeAttribute("aria-invalid");
  line.hidden = !problem;
  if (!problem) return;
  if (problem.status === 404 && problem.argument === "id") document.dispatchEvent(new Event("dropped"));
  line.textContent = visible(problem.detail || `The server does not answer (${problem.message || problem}).`);
  const wrong = document.querySelector(`.room:not([hidden]) [name="${CSS.escape(problem.argument || "")}"]`);
  if (wrong) {
    wrong.setAttribute("aria-invalid", "true");
    wrong.focus();
  }
  line.scrollIntoView({block: "nearest"});
}

// Runs an action that may fail, and says so if it does.
export async function attempt(action) {
  complain(null);
  try {
    return await action();
  } catch (problem) {
    complain(problem);
    return undefined;
  }
}

const stops = new Set(); // of the pieces of work under way

// Work of a model, with its progress in the header.
export async function watched(words, path, body) {
  const line = document.querySelector(".busy");
  const bar = line.querySelector("progress");
  let isStopped = false;
  let stopWork = null; // once the server has said how the work is called
  const stop = () => {
    isStopped = true;
    if (stopWork) stopWork();
  };
  stops.add(stop);
  line.hidden = false;
  bar.removeAttribute("value");
  line.querySelector(".busy-text").textContent = words;
  try {
    return await work(path, body, {
      progress: fraction => { if (fraction) bar.value = fraction; },
      started: stopper => {
        stopWork = stopper;
        if (isStopped) stopWork();
      },
    });
  } finally {
    stops.delete(stop);
    line.hidden = stops.size === 0;
  }
}

export function prepareShell() {
  document.querySelector(".stop").addEventListener("click", () => { for (const stop of stops) stop(); });
}

// Counts the calls of a page: `begin()` returns a function that tells whether its call is still the latest one.
export function latest() {
  let calls = 0;
  return () => {
    calls += 1;
    const call = calls;
    return () => call === calls;
  };
}
