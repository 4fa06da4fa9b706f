// Which items of two lists belong together: the longest common subsequence.

// Returns [index in first or null, index in second or null], in the order of both texts.
export function align(first, second) {
  const rows = first.length;
  const columns = second.length;
  const length = Array.from({length: rows + 1}, () => new Uint32Array(columns + 1));
  for (let i = rows - 1; i >= 0; i--) {
    for (let j = columns - 1; j >= 0; j--) {
      length[i][j] = first[i] === second[j] ? length[i + 1][j + 1] + 1 : Math.max(length[i + 1][j], length[i][j + 1]);
    }
  }
  const pairs = [];
  let i = 0;
  let j = 0;
  while (i < rows && j < columns) {
    if (first[i] === second[j]) pairs.push([i++, j++]);
    else if (length[i + 1][j] >= length[i][j + 1]) pairs.push([i++, null]);
    else pairs.push([null, j++]);
  }
  while (i < rows) pairs.push([i++, null]);
  while (j < columns) pairs.push([null, j++]);
  return pairs;
}

// The rank of every value by size, 1 for the largest; of equal ones the earlier has the lower rank.
export function ranks(values) {
  const order = [...values.keys()].sort((a, b) => Math.abs(values[b]) - Math.abs(values[a]) || a - b);
  const places = [];
  order.forEach((item, rank) => { places[item] = rank + 1; });
  return places;
}

// Spearman's rank correlation of two lists; null for fewer than three items, or where one list is all the same.
export function rankCorrelation(first, second) {
  if (first.length < 3) return null;
  const a = meanRanks(first);
  const b = meanRanks(second);
  const middle = (first.length + 1) / 2;
  let product = 0;
  let squareA = 0;
  let squareB = 0;
  for (let k = 0; k < a.length; k++) {
    product += (a[k] - middle) * (b[k] - middle);
    squareA += (a[k] - middle) ** 2;
    squareB += (b[k] - middle) ** 2;
  }
  return squareA && squareB ? product / Math.sqrt(squareA * squareB) : null;
}

function meanRanks(values) {
  const order = [...values.keys()].sort((x, y) => values[x] - values[y]);
  const places = [];
  for (let from = 0; from < order.length;) {
    let to = from;
    while (to + 1 < order.length && values[order[to + 1]] === values[order[from]]) to += 1;
    for (let k = from; k <= to; k++) places[order[k]] = (from + to) / 2 + 1;
    from = to + 1;
  }
  return places;
}
