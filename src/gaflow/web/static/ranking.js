// The scores as bars, before and after changes, with the interval over all maximum flows if it is known.
//
// Rows stay in place while their bars move, so that a change can be followed.

import {ranks, rankCorrelation} from "./align.js";
import {element, number} from "./elements.js";

const LISTED = 14;

export function ranking() {
  const body = element("div", {class: "ranking", role: "table", "aria-label": "Scores before and after"});
  const verdict = element("p", {class: "verdict", "aria-live": "polite"});
  const box = element("div", {}, verdict, body);
  let rows = new Map(); // token -> elements of its row
  let order = "";

  // `before` is null where tokens were joined; `ranges` is {low, high} or null.
  function show({labels, before, after, ranges, words}) {
    verdict.textContent = words;
    const earlier = before || after;
    const sizes = after.map((score, i) => Math.max(Math.abs(score), Math.abs(earlier[i])));
    const listed = [...after.keys()].sort((a, b) => Math.abs(earlier[b]) - Math.abs(earlier[a]) || a - b).slice(0, LISTED);
    for (const token of [...after.keys()].sort((a, b) => sizes[b] - sizes[a]).slice(0, 4)) {
      if (!listed.includes(token)) listed.push(token); // what has risen from far below
    }
    const bounds = ranges ? [...ranges.low, ...ranges.high] : [];
    const least = Math.min(0, ...after, ...earlier, ...bounds);
    const most = Math.max(0, ...after, ...earlier, ...bounds);
    const place = value => (most > least ? 100 * (value - least) / (most - least) : 0);
    const ranksBefore = before && ranks(before);
    const ranksAfter = ranks(after);
    const isOpen = ranges ? openOrders(after, ranges) : [];
    const key = listed.map(token => `${token} ${labels[token]}`).join("\n");
    if (key !== order) {
      order = key;
      rows = new Map(listed.map(token => [token, newRow(labels[token])]));
      body.replaceChildren(...[...rows.values()].map(row => row.element));
    }
    for (const token of listed) {
      const row = rows.get(token);
      const score = after[token];
      row.bar.className = score < 0 ? "less" : "more";
      row.bar.style.left = `${place(Math.min(score, 0))}%`;
      row.bar.style.width = `${place(Math.max(score, 0)) - place(Math.min(score, 0))}%`;
      row.tick.hidden = !before || before[token] === score;
      row.tick.style.left = `${place(earlier[token])}%`;
      row.zero.style.left = `${place(0)}%`;
      row.zero.hidden = least === 0;
      row.range.hidden = !ranges;
      if (ranges) {
        row.range.style.left = `${place(ranges.low[token])}%`;
        row.range.style.width = `${place(ranges.high[token]) - place(ranges.low[token])}%`;
        row.range.title = `between ${number(ranges.low[token])} and ${number(ranges.high[token])} in all maximum flows`;
      }
      row.value.textContent = before && before[token] !== score ? `${number(earlier[token])} → ${number(score)}` : number(score);
      const moved = before && ranksBefore[token] !== ranksAfter[token];
      row.rank.textContent = moved ? `${ranksBefore[token]} → ${ranksAfter[token]}` : String(ranksAfter[token]);
      row.open.hidden = !isOpen[token];
    }
  }

  return {element: box, show};
}

function newRow(label) {
  const bar = element("i", {class: "more"});
  const tick = element("u", {class: "tick", title: "before"});
  const zero = element("u", {class: "zero"});
  const range = element("u", {class: "range"});
  const track = element("span", {class: "track", role: "cell"}, bar, zero, tick, range);
  const open = element("span", {class: "open-order", title: "Another maximum flow may order this token otherwise."}, "order open");
  const value = element("span", {class: "number", role: "cell"});
  const rank = element("span", {class: "rank", role: "cell"});
  const name = element("span", {class: "name", role: "rowheader"}, element("bdi", {}, label), open);
  return {element: element("div", {class: "line", role: "row"}, rank, name, track, value), bar, tick, zero, range, value, rank, open};
}

// Tokens whose interval overlaps that of a neighbour in the ranking: their order may be arbitrary.
function openOrders(scores, {low, high}) {
  const order = [...scores.keys()].sort((a, b) => scores[b] - scores[a]);
  const slack = 1e-9 * Math.max(...high.map(Math.abs), ...low.map(Math.abs), 0);
  const isOpen = scores.map(() => false);
  for (let k = 1; k < order.length; k++) {
    const [upper, lower] = [order[k - 1], order[k]];
    if (high[lower] > low[upper] + slack && high[lower] - low[lower] + high[upper] - low[upper] > slack) {
      isOpen[upper] = isOpen[lower] = true;
    }
  }
  return isOpen;
}

// How steady the ranking is, in words.
export function stability(before, after) {
  const correlation = rankCorrelation(before, after);
  if (correlation === null) return "";
  const first = ranks(before);
  const second = ranks(after);
  const kept = first.filter((rank, i) => rank <= 5 && second[i] <= 5).length;
  return `Stability: rank correlation ${correlation.toFixed(2)}, ${kept} of the ${Math.min(5, before.length)} strongest stay`;
}
