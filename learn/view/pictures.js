// The pages of learn/view/view: pictures of addresses, fragments, and a block's warps.
// ---- Pictures --------------------------------------------------------------------------------
// Global memory: a row for each touched cache line of 128 bytes, in it 4 sectors of 8 words.
function drawGlobal(line, sample, lane) {
  const at = addresses(sample), words = new Map, sectors = new Set, left = 92, w = 15, h = 17;
  for (const l of lanesOf(sample[3]))
    for (let word = Math.floor(at[l] / 4); word <= Math.floor((at[l] + line.width - 1) / 4); ++word) {
      if (!words.has(word)) words.set(word, []);
      words.get(word).push(l), sectors.add(Math.floor(word / 8));
    }
  const rows = [...new Set([...sectors].map(s => Math.floor(s / 4)))].sort((a, b) => a - b);
  const begin = rows[0] * 128, last = {};
  let inside = "", y = 4;
  rows.forEach((row, i) => {
    if (i && row !== rows[i - 1] + 1) y += 4;
    inside += text(left - 6, y + 12, "+" + (row * 128 - begin).toLocaleString("en-US"), "end");
    for (let s = 0; s < 4; ++s) {
      const sector = row * 4 + s, x = left + s * (8 * w + 5), hit = sectors.has(sector);
      inside += rect(x, y, 8 * w, h - 2, hit ? "sector" : "sector idle", "",
        `sector at +${sector * 32 - begin}: ` + (hit ? "moved" : "not touched"));
      for (let k = 0; hit && k < 8; ++k) {
        const lanes = words.get(sector * 8 + k);
        if (!lanes) continue;
        const own = lanes.includes(lane);
        inside += rect(x + k * w, y, w, h - 2, "word" + (own ? " own" : ""),
          `fill="${colour(lanes[0])}" data-lanes="${lanes}"`, `lane${lanes.length > 1 ? "s" : ""} ` +
          `${lanes.join(", ")}: +${(sector * 8 + k) * 4 - begin}`) + text(x + k * w + w / 2, y + 11,
          lanes.length === 1 ? lanes[0] : "×" + lanes.length, "in");
      }
    }
    y += h;
  });
  const used = words.size * 4, key = `<p class="key"><span>number: the lane; ×n: n lanes</span>` +
    `<span><i class="w"></i>moved, but not asked for</span></p>`;
  return svg(left + 4 * (8 * w + 5), y + 4, inside, `${sectors.size} sectors`) + key +
    `<p class="note">A row is a cache line of 128 bytes, a frame in it a sector of 32. ` +
    `${plural(sectors.size, "sector")} of ${plural(rows.length, "cache line")}, from ` +
    `${esc(place(sample))}.</p>`;
}
// Shared memory: a column for each bank, a row for each turn.
function drawShared(line, sample, lane) {
  const at = addresses(sample), left = 50, w = 16, h = 18;
  const together = line.width <= 4 ? 32 : line.width <= 8 ? 16 : 8;
  let inside = "", y = 18, turns = 0;
  for (let bank = 0; bank < 32; ++bank) inside += text(left + bank * w + w / 2, 11, bank, "mid");
  for (let first = 0; first < 32; first += together) {
    const banks = Array.from({length: 32}, () => new Map);
    for (let l = first; l < first + together; ++l) {
      if (at[l] === undefined) continue;
      for (let word = Math.floor(at[l] / 4); word <= Math.floor((at[l] + line.width - 1) / 4); ++word) {
        const bank = banks[word % 32];
        bank.set(word, [...bank.get(word) || [], l]);
      }
    }
    const most = Math.max(...banks.map(bank => bank.size));
    for (let turn = 0; turn < most; ++turn, y += h, ++turns) {
      inside += text(left - 6, y + 12, "turn " + (turns + 1), "end");
      banks.forEach((bank, b) => {
        const cell = [...bank][turn], x = left + b * w;
        if (!cell) { inside += rect(x, y, w, h - 2, "bank none"); return; }
        const [word, lanes] = cell, kind = "t" + (turn === 0 ? 1 : turn === 1 ? 2 : turn < 4 ? 3 : 4);
        inside += rect(x, y, w, h - 2, `bank ${kind}` + (lanes.includes(lane) ? " own" : ""),
          `data-lanes="${lanes}" data-bank="${b}"`, `bank ${b}, byte ${word * 4}, lane` +
          `${lanes.length > 1 ? "s" : ""} ${lanes.join(", ")}`) + text(x + w / 2, y + 12,
          lanes.length === 1 ? lanes[0] : "×" + lanes.length, "in");
      });
    }
    y += 4;
  }
  const key = `<p class="key"><span>number: the lane; ×n: n lanes, one word</span>` +
    `<span><i style="background:var(--t1)"></i>first turn</span><span>` +
    `<i style="background:var(--t2)"></i><i style="background:var(--t3)"></i>` +
    `<i style="background:var(--t4)"></i>a conflict: waits for the bank</span></p>`;
  return svg(left + 32 * w + 2, y + 2, inside, `${turns} turns`) + key + `<p class="note">` +
    `${plural(turns, "turn")} of 32 banks of 4 bytes` + (together < 32 ?
    `; with ${line.width} bytes per lane, ${together} lanes go at once` : "") + ".</p>";
}
// A matrix, with the lane that holds each element: kernels/cuda/ptx.cuh.
function matrix(x, y, rows, columns, label, holder, lane) {
  const size = 16;
  let inside = text(x, y - 5, label), frames = "";
  for (let r = 0; r < rows; ++r)
    for (let c = 0; c < columns; ++c) {
      const [l, where] = holder(r, c), own = l === lane ? " own" : "";
      inside += rect(x + c * size, y + r * size, size, size, "word" + own, `fill="${colour(l)}" ` +
        `data-lanes="${l}"`, `${label.split(" ")[0]}[${r}][${c}]: lane ${l}, ${where}`) +
        text(x + c * size + size / 2, y + r * size + 11, l, "in");
      if (own) frames += rect(x + c * size, y + r * size, size, size, "frame");
    }
  return inside + frames;
}
const half = odd => odd ? "upper half" : "lower half";
function drawMma(lane) {
  const d = (r, c) => [r % 8 * 4 + (c >> 1), `d[${(r >> 3) * 2 + c % 2}]`];
  const a = (r, c) => [r % 8 * 4 + (c % 8 >> 1), `a[${(r >> 3) + (c >> 3) * 2}], ${half(c % 2)}`];
  const b = (r, c) => [c * 4 + (r % 8 >> 1), `b${r >> 3}, ${half(r % 2)}`];
  return svg(540, 586, matrix(2, 310, 16, 16, "A 16x16", a, lane) +
    matrix(290, 22, 16, 8, "B 16x8", b, lane) + matrix(290, 310, 16, 8, "D 16x8, fp32", d, lane),
    "the fragments of an mma") + `<p class="note">D += A B, by a warp. Each number is the lane that ` +
    `holds the element; of A and B a register holds two.</p>`;
}
function drawLdmatrix(line, lane) {
  let inside = "";
  for (let m = 0; m < 4; ++m)
    inside += matrix(2 + m * 136, 22, 8, 8, `r[${m}] from lanes ${8 * m}-${8 * m + 7}`, (r, c) =>
      line.transposed ? [c * 4 + (r >> 1), half(r % 2)] : [r * 4 + (c >> 1), half(c % 2)], lane);
  return svg(546, 154, inside, "who gets what of an ldmatrix") + `<p class="note">Who gets what: four ` +
    `matrices of 8x8, a row of 16 bytes from each lane's address` +
    `${line.transposed ? "; transposed" : ""}.</p>`;
}

// ---- A timeline of a block's warps -------------------------------------------------------------
const parts = [["g", "global memory, 4 sectors", s => Math.ceil(s[3] / 4)],
  ["s", "shared memory, a turn", s => s[4]], ["m", "an mma", s => s[5]],
  ["x", "a shuffle or vote", s => s[6]]];
function drawTimeline(kernel, file, block, most) {
  const warps = kernel.timeline[block];
  if (!warps) return "";
  const rows = Object.entries(warps), next = rows.map(() => 0), left = 56, width = 900, h = 15;
  const bars = [], lines = [];
  let x = 0, barriers = 0, more = true;
  while (more && barriers < most) {
    more = false;
    const ends = rows.map(([warp, segments], i) => {
      let end = x;
      for (; next[i] < segments.length;) {
        const s = segments[next[i]++], [kind, at] = s;
        const place = (at.find(a => a[0] === file) || at[0])[1];
        for (const [name, words, cost] of parts) {
          const n = cost(s);
          if (n) bars.push([i, end, n, name, `warp ${warp}: ${n} (${words}), until ` +
            (kind === "end" ? "its end" : `line ${place}`)]), end += n;
        }
        if (kind === "barrier") { more = true; break; }
        if (kind !== "end") bars.push([i, end, 0, "copy", `warp ${warp}: ${events[kind]}, line ${place}`]);
      }
      return end;
    });
    const latest = Math.max(...ends);
    ends.forEach((end, i) => { if (end < latest) bars.push([i, end, latest - end, "w",
      `warp ${rows[i][0]} waits while the longest does ${latest - end} more`]); });
    x = latest, ++barriers;
    if (more) lines.push(x);
  }
  if (!x) return `<p class="note">No access and no exchange in this block.</p>`;
  const scale = width / x, across = n => (left + n * scale).toFixed(1);
  let inside = rows.map(([warp], i) => text(left - 6, i * h + 12, "warp " + warp, "end")).join("");
  for (const [i, begin, n, kind, words] of bars)
    inside += n ? rect(across(begin), i * h + 2, Math.max(n * scale, .3).toFixed(1), h - 4, kind, "", words) :
      `<path class="copy" d="M${across(begin)} ${i * h + 1}v${h - 2}"><title>${esc(words)}</title></path>`;
  for (const n of lines) inside += `<path class="wait" d="M${across(n)} 0V${rows.length * h}"/>`;
  return svg(left + width + 4, rows.length * h + 4, inside, "a timeline") + `<p class="key">` +
    parts.map(([name, words]) => `<span><i class="${name}"></i>${words}</span>`).join("") +
    `<span><i class="w"></i>waits for the block's other warps</span><span>dashed: a barrier; red: a ` +
    `wait for copies</span></p><p class="note">Lengths are what the warp issued, in these units; they ` +
    `are no time.${more ? ` The first ${barriers} stretches between barriers.` : ""}</p>`;
}
