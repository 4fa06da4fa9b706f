// Texts with shaded words. Offsets count characters, as Python does, not the 16-bit units of JavaScript.

import {element, number, percent} from "./elements.js";

export function shadeClass(value, largest, levels) {
  const level = largest > 0 ? Math.round(Math.max(-1, Math.min(1, value / largest)) * levels) : 0;
  return level ? (level < 0 ? "n" : "p") + Math.abs(level) : "";
}

export const sumOfSizes = values => values.reduce((sum, value) => sum + Math.abs(value), 0) || 1;

// The texts of an attribution; `span(unit, text)` makes what stands for each unit {start, end, segment}.
export function textOf(att, units, span) {
  const sources = [[...att.text], [...(att.pair || "")]];
  const passages = [[], []];
  const ends = [0, 0];
  for (const unit of units) {
    const source = sources[unit.segment];
    passages[unit.segment].push(source.slice(ends[unit.segment], unit.start).join(""));
    passages[unit.segment].push(span(unit, source.slice(unit.start, unit.end).join("")));
    ends[unit.segment] = unit.end;
  }
  const box = element("div", {class: "passages"});
  passages.forEach((passage, segment) => {
    if (!sources[segment].length) return;
    passage.push(sources[segment].slice(ends[segment]).join(""));
    box.append(element("p", {class: "text", dir: "auto"}, ...passage));
  });
  return box;
}

export function shadedWords(att, levels) {
  const scores = att.words.map(word => word.score);
  const largest = Math.max(...scores.map(Math.abs), 0);
  const total = sumOfSizes(scores);
  return textOf(att, att.words, (word, text) => {
    const title = `${number(word.score)} (${percent(Math.abs(word.score) / total)} of all words)`;
    return element("span", {class: shadeClass(word.score, largest, levels), title}, text);
  });
}

// The scale of shades, from the largest score below 0, if there is one, to the largest above.
export function legend(scores, levels, words) {
  const largest = Math.max(...scores.map(Math.abs), 0);
  const signed = Math.min(...scores, 0) < 0;
  const first = signed ? -levels : 0;
  const strip = element("span", {class: "strip"});
  for (let level = first; level <= levels; level += signed ? 2 : 1) {
    strip.append(element("i", {class: shadeClass(level, levels, levels)}));
  }
  const scale = element("span", {class: "scale"}, number(signed ? -largest : 0), strip, number(largest));
  return element("p", {class: "legend"}, scale, element("span", {}, words));
}

