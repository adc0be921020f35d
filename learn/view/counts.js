// The pages of learn/view/view: what was counted, and what it costs.
"use strict";

// ---- Small tools ---------------------------------------------------------------------------
const escapes = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;"};
const esc = text => String(text).replace(/[&<>"]/g, c => escapes[c]);
const whole = n => Math.round(n).toLocaleString("en-US");
const short = n => n === 0 ? "" : n < 100000 ? whole(n) : n < 1e7 ? (n / 1e3).toFixed(0) + "k" :
  (n / 1e6).toFixed(0) + "M";
const one = n => Number.isInteger(+n.toFixed(1)) ? n.toFixed(0) : n.toFixed(1);
const percent = x => Math.round(100 * x) + "%";
const popcount = mask => { let n = 0; for (; mask; mask = (mask & mask - 1) >>> 0) ++n; return n; };
const plural = (n, word, show = one) => show(n) + " " + word +
  (show(n) === "1" ? "" : word.endsWith("ch") ? "es" : "s");
const enough = (n, show = one) => show(n) + (show(n) === "1" ? " is enough" : " are enough");
const lanesOf = mask => [...Array(32).keys()].filter(lane => mask >>> lane & 1);
const colour = lane => `hsl(${lane * 47 % 360} ${lane % 2 ? 55 : 75}% var(--lane-l))`;
const text = (x, y, words, kind = "") => `<text x="${x}" y="${y}" class="${kind}">${esc(words)}</text>`;
const rect = (x, y, w, h, kind, more = "", title = "") =>
  `<rect x="${x}" y="${y}" width="${w}" height="${h}" class="${kind}" ${more}>` +
  (title ? `<title>${esc(title)}</title>` : "") + "</rect>";
const svg = (w, h, inside, label) =>
  `<svg viewBox="0 0 ${w} ${h}" role="img" aria-label="${esc(label)}">${inside}</svg>`;

// ---- What was counted ------------------------------------------------------------------------
const accesses = ["load", "store", "atomic", "ldmatrix", "cp_async"];
const events = {copy_commit: "commits its copies", copy_wait: "waits for copies", mma: "mma",
  numbered_barrier: "numbered barrier", barrier: "barrier", shuffle: "shuffle", vote: "vote",
  lanes_wait: "__syncwarp"};
const names = ["executions", "lanes", "partial", "requests", "sectors", "bytes", "needed", "used",
  "sharedRequests", "turns", "conflicts"];
const isAccess = line => accesses.includes(line.kind);
const empty = Object.fromEntries(names.map(name => [name, 0]));
const add = (sum, line) => names.forEach((name, i) => { sum[name] = (sum[name] || 0) + line.n[i]; });
// The lines of a file: {number: {warps, lanes, idle, ...sums of its accesses, all: [instruction]}}.
function linesOf(kernel, file) {
  const lines = {};
  for (const [number, [warps, lanes]] of Object.entries(kernel.executions[file] || {}))
    lines[number] = {warps, idle: 1 - lanes / (32 * warps), all: []};
  kernel.lines.forEach((line, index) => {
    for (const [f, number] of line.at) {
      if (f !== file) continue;
      const to = lines[number] ||= {warps: 0, idle: 0, all: []};
      to.all.push(index);
      if (isAccess(line)) add(to, line);
      to.warps = Math.max(to.warps, line.n[0]);
    }
  });
  for (const l of Object.values(lines)) {
    if (l.executions) l.idle = 1 - l.lanes / (32 * l.executions);
    l.accesses = accessesOf(kernel, l.all.map(i => kernel.lines[i]));
  }
  return lines;
}
// "load of tile", or of 4 bytes where the memory has no name.
function accessOf(kernel, line) {
  const [s] = line.samples, begin = line.kind.replace("_", ".");
  const known = s && (s[5].match(/^(.+)\[\d+\](.*)$/) || s[5].match(/^byte \d+ of (\w+)()$/));
  const name = !s ? "" : s[4] >= 0 ? kernel.names[s[4]][0] : known ? known[1] + known[2] : "";
  return begin + (name ? ` of ${name}` : line.width ? ` of ${plural(line.width, "byte")}` : "");
}
// Groups instructions by access: copies of one, as in an unrolled loop, are added up.
function accessesOf(kernel, instructions) {
  const alike = {};
  for (const line of instructions.filter(isAccess)) {
    const own = {line, words: accessOf(kernel, line)};
    add(own, line);
    const same = alike[[own.words, sectorsOf(own), turnsOf(own)]] ||= {...own, ...empty};
    add(same, line);
  }
  return Object.values(alike);
}
const share = (part, of) => of ? part / of : 0;
const turnsLeast = l => l.turns - l.conflicts;
// The cost of a request, and the minimum: "32 / 4".
const pair = (is, least, requests) => requests ? `${one(is / requests)} / ${one(least / requests)}` : "";
const sectorsOf = l => pair(l.sectors, l.needed, l.requests);
const turnsOf = l => pair(l.turns, turnsLeast(l), l.sharedRequests);
// How the first kept execution's lanes lie, in words.
function pattern(line, sample) {
  if (!sample) return "";
  const at = addresses(sample), on = lanesOf(sample[3]), width = line.width;
  if (on.length < 2) return "one lane alone";
  const steps = new Set(on.slice(1).map((lane, i) => (at[lane] - at[on[i]]) / (lane - on[i])));
  const past = at[on[0]] % 32;
  if (steps.size > 1) return "";
  const step = [...steps][0];
  if (step === 0) return "all lanes at one address";
  if (step === width) return sample[4] < 0 && past ?
    `neighbours, but they begin ${past} bytes past a sector` : "neighbours";
  return `lanes are ${step} bytes apart`;
}
const place = sample => sample[5].replace(/ made by cudaMalloc$/, "");
function addresses(sample) {
  const on = lanesOf(sample[3]), [first, rest] = sample[6], at = {};
  on.forEach((lane, i) => { at[lane] = first + (Array.isArray(rest) ? rest[i] : i * rest); });
  return at;
}

// ---- What it costs ---------------------------------------------------------------------------
// A cost is what the launches could save: sectors, turns, or executions by whole warps. Its colour
// depends on its share of the kernel's total, so that a line executed once per block stays pale.
// The total of turns includes sectors, since conflicts matter little if few accesses are to shared
// memory.
const spared = {sectors: n => n.sectors - n.needed, turns: n => n.conflicts};
function workOf(kernel) {
  const sum = {...empty};
  kernel.lines.filter(isAccess).forEach(line => add(sum, line));
  const lines = Object.values(kernel.executions).flatMap(file => Object.values(file));
  return {sectors: sum.sectors, turns: sum.sectors + sum.turns, lanes: lines.reduce((n, [warps]) => n + warps, 0), sum};
}
const grades = {sectors: [.05, .005], turns: [.05, .005], lanes: [.2, .05]};
function grade(name, cost, work) {
  const [bad, warn] = grades[name], part = share(cost, work[name]);
  return part >= bad ? "bad" : part >= warn ? "warn" : "";
}
const idleCost = l => l.idle * (l.executions || l.warps);
// The access of a line that costs most.
const worstAccess = (l, name, of) => l.accesses.filter(a => a[of]).reduce((worst, a) => !worst ||
  spared[name](a) > spared[name](worst) || spared[name](a) === spared[name](worst) &&
  a[name] > worst[name] ? a : worst, null);
// Lists of the lines that cost most, of all kernels: {sectors, turns, lanes: [{kernel, file, number,
// words, cost, share, grade}]}. An instruction counts for its line in the main file, or in another
// file, if it is in a function there that isn't inlined.
function findings(version) {
  const lists = {sectors: [], turns: [], lanes: []};
  version.kernels.forEach((kernel, at) => {
    const {main} = version, work = workOf(kernel);
    const home = line => (line.at.find(a => a[0] === main) || line.at[0] || [main])[0];
    for (const file of new Set([main, ...kernel.lines.map(home)]))
      addFindings(lists, work, {kernel: at, file}, linesOf(kernel, file), file === main,
        line => isAccess(line) && home(line) === file, kernel);
  });
  for (const list of Object.values(lists)) list.sort((a, b) => b.cost - a.cost);
  return lists;
}
function addFindings(lists, work, where, lines, isMain, isHere, kernel) {
  // Instructions of a line with the same words are one item.
  const put = (name, cost, number, words) => {
    let item = lists[name].find(x => x.kernel === where.kernel && x.file === where.file &&
      x.number === number && x.words === words);
    if (!item) lists[name].push(item = {...where, number, words, cost: 0});
    item.cost += cost, item.grade = grade(name, item.cost, work);
    item.share = share(item.cost, work[name]);
  };
  for (const [number, l] of Object.entries(lines)) {
    const here = l.all.map(i => kernel.lines[i]).filter(isHere);
    for (const line of here) {
      const n = {}, how = pattern(line, line.samples[0]);
      add(n, line);
      const begin = `${accessOf(kernel, line)}: `, end = how && how !== "neighbours" ? `; ${how}` : "";
      if (spared.sectors(n) > 0)
        put("sectors", spared.sectors(n), number, `${begin}touches ` +
          `${plural(n.sectors / n.requests, "sector")} where ${one(n.needed / n.requests)} hold what it ` +
          `needs${end}`);
      if (spared.turns(n))
        put("turns", spared.turns(n), number, `${begin}${plural(n.turns / n.sharedRequests, "turn")} where ` +
          `${enough(turnsLeast(n) / n.sharedRequests)}${end}`);
    }
    if (idleCost(l) > .01 * work.lanes && (isMain || here.length))
      put("lanes", idleCost(l), number, Math.abs(l.idle - .5) < .005 ?
        "half of the lanes take no part" : `${percent(l.idle)} of the lanes take no part`);
  }
}
// Sectors and turns come first: idle lanes are the worst finding only if there is no other.
const worstBy = (by, lists, fits = () => true) => [...lists.sectors, ...lists.turns].filter(fits)
  .sort((a, b) => b[by] - a[by])[0] || lists.lanes.find(fits);
const worstKernel = lists => (worstBy("cost", lists) || {kernel: 0}).kernel;
const worstLine = (lists, kernel, file) => worstBy("share", lists, x => x.kernel === kernel &&
  (file === undefined || x.file === file));
const plainName = kernel => kernel.name.replace(/\bsimt_\w+::/g, "");
