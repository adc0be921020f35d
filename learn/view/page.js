// The pages of learn/view/view: the source with its counts, and the reader's choices.
// ---- A version of a kernel: its source, lists, pictures ------------------------------------------
// The cell for the worst of a line's accesses: [words, title].
function worstCell(l, name, of, words, cell) {
  const worst = worstAccess(l, name, of);
  if (!worst) return [""];
  const differ = l.accesses.some(a => a[of] && words(a) !== words(worst));
  return [cell ? cell(worst) : (differ ? worst.line.kind.replace("_", ".") + " " : "") + words(worst),
    l.accesses.filter(a => a[of]).map(a => `${a.words}: ${words(a)} ${name} per request, in all ` +
      `${whole(a[name])} where ${enough(a[name] - spared[name](a), whole)}`).join("; ")];
}
const cost = (l, name) => l.accesses.reduce((n, a) => n + spared[name](a), 0);
// [head, title, (line, work) => [words, title, grade]]; narrow pages show `head` as the unit.
const columns = [
  ["line", "", () => ""],
  ["warps", "how often warps execute the line", l => [short(l.warps), `${whole(l.warps)} times`]],
  ["requests", "to global memory: a warp's access by one instruction",
    l => [short(l.requests || 0), l.requests ? `${whole(l.requests)} requests` : ""]],
  ["sectors /\u00a0needed", "sectors of 32 bytes that a request touches / that would hold what it asks for",
    (l, work) => [...worstCell(l, "sectors", "requests", sectorsOf),
      grade("sectors", cost(l, "sectors"), work)]],
  ["bytes used", "of the bytes in these sectors", l => worstCell(l, "sectors", "requests", sectorsOf,
    a => percent(a.used / (32 * a.sectors)))],
  ["turns /\u00a0needed", "turns in shared memory that a request takes / without bank conflicts",
    (l, work) => [...worstCell(l, "turns", "sharedRequests", turnsOf),
      grade("turns", cost(l, "turns"), work)]],
  ["lanes idle", "lanes that take no part", (l, work) => l.idle < .0005 ? [""] :
    [l.idle < .01 ? "<1%" : percent(l.idle), `of 32 lanes ${one(32 * (1 - l.idle))} take part`,
      grade("lanes", idleCost(l), work)]],
];
// The names that make counters prints, except for two that read like sums over requests.
const counterName = name => name.replace(/^sectors (read|written)$/, "distinct $&");
const threes = d => d[2] > 1 ? d.join(" × ") : d[1] > 1 ? `${d[0]} × ${d[1]}` : d[0];

class Pane {
  constructor(root, version, number) {
    Object.assign(this, {root, version, number, kernelAt: 0, lane: 0, most: 8});
    root.innerHTML = `<h2></h2><h3>Worst lines<span class="all"></span></h3><div class="worst"></div>
<div class="tabs kernels"></div><p class="facts"></p><div class="tiles"></div>
<div class="work"><div><div class="tabs files"></div><div class="scroll source"></div></div>
<div class="look" aria-live="polite"></div></div>
<h3>A block's warps, from barrier to barrier</h3><div class="bar"></div><div class="time"></div>`;
    this.part = name => root.querySelector(name);
    root.addEventListener("click", event => this.click(event));
    root.addEventListener("keydown", event => this.press(event));
    root.addEventListener("input", event => this.input(event));
    root.addEventListener("pointerover", event => {
      const lanes = event.target.dataset && event.target.dataset.lanes;
      const title = event.target.querySelector && event.target.querySelector("title");
      if (title && this.part(".says") && event.target.closest(".look"))
        this.part(".says").textContent = title.textContent;
      if (lanes !== undefined) this.hovered = +lanes.split(",")[0];
    });
    this.lists = findings(version);
    this.listWorst();
    this.show(worstKernel(this.lists));
  }
  get kernel() { return this.version.kernels[this.kernelAt]; }
  show(kernelAt, file) {
    const worst = worstLine(this.lists, kernelAt, file);
    file ??= worst ? worst.file : this.version.main;
    this.kernelAt = kernelAt, this.file = file;
    const k = this.kernel, c = k.counters, work = workOf(k);
    this.lines = linesOf(k, file);
    const tabs = (items, chosen, kind, first = 0, mark = () => "") => items.length < 2 ? "" :
      items.map((words, i) => [i, `<button data-${kind}="${i}" aria-pressed="${i === chosen}">` +
        `${esc(words)}${mark(i)}</button>`])
        .sort((a, b) => (b[0] === first) - (a[0] === first)).map(x => x[1]).join("");
    const mark = i => {
      const found = Object.values(this.lists).flat().filter(x => x.kernel === i && x.grade);
      const kind = found.some(x => x.grade === "bad") ? "bad" : "warn", n = found.length;
      return n ? ` <span class="mark ${kind}" title="${plural(n, "finding")}">${n}</span>` : "";
    };
    const {title, kernels} = this.version;
    this.part("h2").textContent = [versions.length > 1 ? title : "", kernels.length > 1 ? "" : plainName(k)]
      .filter(words => words).join(": ");
    this.part(".kernels").innerHTML = tabs(this.version.kernels.map(plainName), kernelAt, "kernel", 0, mark);
    this.part(".files").innerHTML = tabs(this.version.files.map(x => x.path), file, "file",
      this.version.main);
    const blocks = k.grid[0] * k.grid[1] * k.grid[2], all = k.kept.length === blocks;
    this.part(".facts").innerHTML = `<span class="soft">${plural(c.launches, "launch")} of ` +
      `${threes(k.grid)} block${blocks > 1 ? "s" : ""} of ${threes(k.block)} threads. Counts are of all blocks; ` +
      `addresses are kept of ${all ? "all blocks" : "blocks " + k.kept.join(", ")}` +
      `${c.launches > 1 ? " of the first launch" : ""}. ${esc(this.version.left_out || "")}</span>`;
    const requests = c["load requests"] + c["store requests"];
    const tiles = [["requests", requests], ["sectors requested", c["load sectors"] + c["store sectors"]],
      ["sectors needed", work.sum.needed], ["sectors per request", sectorsOf({...work.sum, requests})],
      ["distinct sectors, once per launch", c["sectors read"] + c["sectors written"], "what memory moves if the " +
        "L2 cache keeps what a launch has read"],
      ["shared requests", c["shared requests"]], ["turns", c["shared turns"]],
      ["conflicts", c["shared conflicts"] + c["ldmatrix conflicts"]],
      ["ldmatrix", c["ldmatrix requests"]], ["mma", c.mma], ["barriers", c.barriers],
      ["shuffles, votes", c.shuffles + c.votes], ["atomics", c.atomics], ["partial requests", c.partial]];
    this.part(".tiles").innerHTML = tiles.filter(t => t[1]).map(([word, n, title]) =>
      `<div class="tile${title ? ` wide" title="${esc(title)}` : ""}"><span>${word}</span>` +
      `<b>${typeof n === "number" ? whole(n) : n}</b></div>`).join("");
    const shown = columns.slice(1).filter(([, , value]) =>
      Object.values(this.lines).some(l => value(l, work)[0]));
    const rows = this.version.files[file].text.map((code, i) => {
      const l = this.lines[i + 1], cells = shown.map(([unit, , value]) => {
        const [words, title, kind] = l ? value(l, work) : [""];
        return `<td${words ? ` data-unit="${unit.split(" /")[0]}"` : ""}${words && kind ? ` class="${kind}"` : ""}${title ? ` title="${esc(title)}"` : ""}>${words}</td>`;
      });
      return `<tr${l ? ` class="has" tabindex="-1" data-line="${i + 1}"` : ""}><td class="no">${i + 1}</td>` +
        `${cells.join("")}<td style="--in:${Math.min(code.match(/^ */)[0].length, 12)}ch">${esc(code)}</td></tr>`;
    });
    this.part(".source").innerHTML = `<table class="code"><thead><tr>` + [columns[0], ...shown].map(([word, title]) =>
      `<th title="${esc(title)}">${word}</th>`).join("") + `<th>${esc(this.version.files[file].path)}</th>` +
      `</tr></thead><tbody>${rows.join("")}</tbody></table>`;
    const drawn = Object.keys(this.lines).find(n => this.lines[n].executions);
    this.choose(worst ? worst.number : drawn || Object.keys(this.lines)[0], false);
    this.block = k.kept[0];
    this.time();
  }
  // The worst lines of all kernels.
  listWorst() {
    const {kernels, files, main} = this.version;
    this.part(".all").textContent = kernels.length > 1 ? " of all kernels" : "";
    const heads = {sectors: "Global memory: excess sectors", turns: "Shared memory: extra turns from " +
      "bank conflicts", lanes: "Lanes that take no part: executions lost"};
    this.part(".worst").innerHTML = Object.entries(this.lists).map(([name, list]) => `<div><p class="soft">` +
      `${heads[name]}</p>` + (list.length ? `<ol data-list="${name}">` : `<p>none</p>`) +
      list.slice(0, 5).map(x => `<li><button data-line="${x.number}" data-in="${x.file}" ` +
      `data-of="${x.kernel}"><span class="mark ${x.grade}">${whole(x.cost)}</span><span><b>` +
      `${kernels.length > 1 ? esc(plainName(kernels[x.kernel])) + ", " : ""}line ${x.number}</b> ` +
      `${x.file === main ? "" : "of " + esc(files[x.file].path) + ", "}${esc(x.words)}</span></button></li>`)
        .join("") + (list.length ? "</ol>" : "") + "</div>").join("");
  }
  choose(number, scrolls = true) {
    if (!this.lines[number]) return;
    this.line = number;
    this.root.querySelectorAll("tr.chosen").forEach(row => {
      row.classList.remove("chosen"), row.tabIndex = -1;
    });
    const row = this.root.querySelector(`tr[data-line="${number}"]`);
    row.classList.add("chosen"), row.tabIndex = 0;
    if (scrolls) row.scrollIntoView({block: "nearest"});
    else {
      const box = row.closest(".source"), top = x => x.getBoundingClientRect().top;
      box.scrollTop += top(row) - top(box) - box.clientHeight / 3;
    }
    const all = this.lines[number].all.map(i => this.kernel.lines[i]);
    this.parts = [...all.filter(line => line.samples.length || line.kind === "mma"),
      ...all.filter(line => !line.samples.length && line.kind !== "mma")];
    const tooMany = line => Math.max(line.n[4] - line.n[6], line.n[10]);
    this.parts.sort((a, b) => tooMany(b) - tooMany(a));
    this.partAt = 0, this.wanted = {};
    this.look();
  }
  look() {
    const look = this.part(".look"), l = this.lines[this.line], line = this.parts[this.partAt];
    const costs = p => {
      const own = {};
      add(own, p);
      const words = own.requests ? sectorsOf(own) : turnsOf(own);
      return isAccess(p) && words ? `: ${words}` : "";
    };
    let html = `<h3>line ${this.line}: executed ${plural(l.warps, "time", whole)} by warps</h3>`;
    html += `<div class="tabs">` + this.parts.map((p, i) => `<button data-part="${i}" aria-pressed="` +
      `${i === this.partAt}">${esc(accessOf(this.kernel, p))}${costs(p)}</button>`).join("") + "</div>";
    if (!line) {
      look.innerHTML = html + `<p class="note">It accesses no memory and waits for no thread.</p>`;
      return;
    }
    const own = {};
    add(own, line);
    if (line.via.length > 1) html += `<p class="note">from ${line.via.slice().reverse().map(esc).join(" → ")}</p>`;
    const s = this.sample(line);
    html += `<p>${plural(own.executions, "time", whole)}` + (line.width ? `, ${plural(line.width, "byte")} per lane` : "") + ": " + (own.requests ?
      `${plural(own.sectors / own.requests, "sector")} per request` + (spared.sectors(own) > 0 ?
        ` where ${enough(own.needed / own.requests)}` : "") + `, ${percent(own.used / (32 * own.sectors))} ` +
      `of the bytes used` : own.sharedRequests ? `${plural(own.turns / own.sharedRequests, "turn")} each` :
      events[line.kind] || "") + (s && pattern(line, s) ? `; ${pattern(line, s)}` : "") + ".</p>";
    const select = (name, values, is) => `<label>${name}<select data-pick="${name}">` + values.map(v =>
      `<option${v === is ? " selected" : ""}>${v}</option>`).join("") + "</select></label>";
    const slider = `<label>lane <input type="range" min="0" max="31" value="${this.lane}" ` +
      `aria-label="lane"><output>${this.lane}</output></label>`;
    if (s) {
      const unique = values => [...new Set(values)].sort((a, b) => a - b), all = line.samples;
      html += `<div class="bar">` + select("block", unique(all.map(x => x[0])), s[0]) +
        select("warp", unique(all.filter(x => x[0] === s[0]).map(x => x[1])), s[1]) +
        select("execution", unique(all.filter(x => x[0] === s[0] && x[1] === s[1]).map(x => x[2])), s[2]) +
        slider + `</div><div class="picture">` + (s[4] < 0 ? drawGlobal : drawShared)(line, s, this.lane) +
        (line.kind === "ldmatrix" ? drawLdmatrix(line, this.lane) : "") + `</div><p class="says">` +
        esc(this.says(line, s)) + "</p>";
    } else if (line.kind === "mma") {
      html += `<div class="bar">${slider}</div><div class="picture">${drawMma(this.lane)}</div>` +
        `<p class="says"></p>`;
    }
    look.innerHTML = html;
  }
  sample(line) {
    const far = s => ["block", "warp", "execution"].reduce((sum, name, i) => sum +
      (this.wanted[name] === undefined ? 0 : Math.min(1e6, Math.abs(s[i] - this.wanted[name])) * 1e7 ** (2 - i)), 0);
    return line.samples.reduce((best, s) => !best || far(s) < far(best) ? s : best, null);
  }
  // The chosen lane's address, in words.
  says(line, s) {
    const at = addresses(s)[this.lane], first = lanesOf(s[3])[0];
    if (at === undefined) return `lane ${this.lane} takes no part`;
    const begin = `lane ${this.lane}: `;
    if (s[4] < 0) {
      const past = at - addresses(s)[first];
      return begin + `${past < 0 ? "" : "+"}${past} bytes from lane ${first}, which has ${place(s)}; byte ` +
        `${at % 32} of its sector`;
    }
    const [name, , size, extents] = this.kernel.names[s[4]];
    let index = Math.floor(at / size), words = "";
    for (const extent of extents.slice(1).reverse())
      words = `[${index % extent}]` + words, index = Math.floor(index / extent);
    return begin + (name ? `${name}[${index}]${words}` : `byte ${at} of the shared memory`) +
      `, bank ${Math.floor(at / 4) % 32}`;
  }
  time() {
    const k = this.kernel, pick = (name, values, is) => `<label>${name}<select data-time="${name}">` +
      values.map(v => `<option${v === is ? " selected" : ""}>${v}</option>`).join("") + "</select></label>";
    const bar = this.root.querySelectorAll(".bar");
    bar[bar.length - 1].innerHTML = pick("block", k.kept, this.block) +
      pick("barriers", [8, 32, 400], this.most);
    this.part(".time").innerHTML = `<div class="picture">` +
      drawTimeline(k, this.file, this.block, this.most) + "</div>";
  }
  click(event) {
    const on = name => event.target.closest(`[data-${name}]`);
    const cell = on("lanes");
    if (on("kernel")) this.show(+on("kernel").dataset.kernel);
    else if (on("file")) this.show(this.kernelAt, +on("file").dataset.file);
    else if (on("part")) this.partAt = +on("part").dataset.part, this.look();
    else if (on("line")) {
      const row = on("line"), {in: file, of: kernel} = row.dataset;
      if (kernel !== undefined && (+kernel !== this.kernelAt || +file !== this.file))
        this.show(+kernel, +file);
      this.choose(row.dataset.line);
      if (row.tagName === "BUTTON" || innerWidth < 1100 && getSelection().isCollapsed)
        this.part(".look").scrollIntoView({block: "nearest"});
      else row.focus({preventScroll: true});
    } else if (cell) this.lane = +cell.dataset.lanes.split(",")[0], this.look();
  }
  press(event) {
    const row = event.target.closest && event.target.closest("tr.has");
    const step = {ArrowDown: 1, ArrowUp: -1, j: 1, k: -1}[event.key];
    if (!row || !step) return;
    const all = [...this.root.querySelectorAll("tr.has")], to = all[all.indexOf(row) + step];
    event.preventDefault();
    if (to) this.choose(to.dataset.line), to.focus();
  }
  input(event) {
    const {pick, time} = event.target.dataset, value = +event.target.value;
    if (pick) {
      this.wanted[pick] = value, this.look();
      this.part(`[data-pick="${pick}"]`).focus();
    } else if (time) {
      this[time === "block" ? "block" : "most"] = value, this.time();
      this.part(`[data-time="${time}"]`).focus();
    } else if (event.target.type === "range") {
      this.lane = value, this.look();
      this.part("input[type=range]").focus();
    }
  }
}

// ---- The page ------------------------------------------------------------------------------------
// The counters of two versions, summed over their kernels.
function comparison([a, b]) {
  const sum = (version, name) => version.kernels.reduce((n, k) => n + k.counters[name], 0);
  const rows = Object.keys(a.kernels[0].counters).map(name => [name, sum(a, name), sum(b, name)])
    .filter(([, x, y]) => x || y);
  return `<table class="compare"><thead><tr><th></th><th>${esc(a.title)}</th><th>${esc(b.title)}</th>` +
    `<th>ratio</th></tr></thead><tbody>` + rows.map(([name, x, y]) => `<tr><th>${counterName(name)}</th><td>${whole(x)}` +
    `</td><td>${whole(y)}</td><td>${x ? (y / x).toFixed(2) : "-"}</td></tr>`).join("") + "</tbody></table>";
}
const {about, versions} = JSON.parse(document.getElementById("data").textContent);
const root = document.querySelector("main");
root.innerHTML = `<h1>${versions.map(v => esc(v.title)).join(" and ")}</h1><p class="soft">${esc(about)}</p>` +
  `<p class="note">Counted on a stand-in for CUDA, no GPU took part. A request is a warp's access by one ` +
  `instruction. Click a line, or move by the arrow keys, to see one warp's 32 addresses.</p>` +
  (versions.length > 1 ? comparison(versions) : "") +
  `<div class="panes ${versions.length > 1 ? "two" : "one"}"></div>`;
const panes = versions.map((version, i) => {
  const section = document.createElement("section");
  root.querySelector(".panes").append(section);
  return new Pane(section, version, i);
});
if (/^#L\d+$/.test(location.hash)) panes[0].choose(location.hash.slice(2));
