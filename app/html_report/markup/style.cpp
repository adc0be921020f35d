#include "app/html_report/markup/style.h"

namespace bv {

// The palette's six colours differ in lightness as well as in hue, for readers who don't see all
// hues; lines are told apart by their style, too.
constexpr std::string_view style = R"(
:root{--paper:#fff;--card:#f6f7f9;--ink:#16191d;--soft:#59616b;--rule:#d9dde2;--hit:0 95 170;
--miss:196 74 0;
--s0:#005faa;--s1:#c44a00;--s2:#007a58;--s3:#a03c92;--s4:#806200;--s5:#5b5f66;--bad:#b3001b}
@media (prefers-color-scheme:dark){:root{--paper:#14171b;--card:#1d2126;--ink:#e8eaed;
--soft:#a0a8b2;
--rule:#363c44;--hit:93 184 245;--miss:255 148 82;
--s0:#5db8f5;--s1:#ff9452;--s2:#3ad1a2;--s3:#eb9fda;--s4:#e3c04a;--s5:#c3c8cf;--bad:#ff8a93}}
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%}
body{margin:0;background:var(--paper);color:var(--ink);font:15px/1.45 system-ui,-apple-system,
"Segoe UI",Roboto,
"Noto Sans","DejaVu Sans",sans-serif}
main{max-width:1280px;margin:0 auto;padding:24px 20px 60px}
h1{font-size:26px;line-height:1.2;margin:0 0 6px;overflow-wrap:anywhere}
h1 span{font-weight:400;font-size:18px;color:var(--soft)}
h2{font-size:19px;margin:0 0 10px}
section{margin-top:36px}
p{margin:0 0 8px;overflow-wrap:anywhere}
.about,.note,figcaption span,.tile span{color:var(--soft)}
.note{max-width:75ch}
.bad{color:var(--bad);font-style:normal;font-weight:600}
.tiles{display:grid;grid-template-columns:repeat(auto-fill,minmax(148px,1fr));gap:10px;
margin-top:16px}
.tile{background:var(--card);border-radius:8px;padding:10px 12px}
.tile span{display:block;font-size:13px}
.tile b{display:block;font-size:21px;font-weight:600;line-height:1.3;
font-variant-numeric:tabular-nums}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,330px),1fr));gap:18px}
figure{margin:0}
.chart{display:flex;flex-direction:column;background:var(--card);border-radius:8px;
padding:12px 12px 6px;max-width:620px;
min-width:0}
.plot{position:relative;margin-top:auto}
svg{display:block;width:100%;height:auto;overflow:visible}
svg text{font-size:11.5px;fill:var(--soft)}
.end{text-anchor:end}.middle{text-anchor:middle}
.grid line,.rule{stroke:var(--rule);stroke-width:1}
.ticks line{stroke:var(--soft);stroke-width:1}
.curve{fill:none;stroke:currentColor;stroke-width:2;stroke-linejoin:round;stroke-linecap:round}
.line circle{fill:currentColor}
.faint .curve{stroke-width:1;opacity:.65}
.dense .curve{stroke-width:1}
.dashed .curve{stroke-dasharray:5 4}
.dotted .curve{stroke-dasharray:1 4}
.s0{color:var(--s0)}.s1{color:var(--s1)}.s2{color:var(--s2)}.s3{color:var(--s3)}.s4{
color:var(--s4)}.s5{color:var(--s5)}
path.lost{fill:none;stroke:var(--bad);stroke-width:1.6}
.legend{list-style:none;display:flex;flex-wrap:wrap;gap:2px 14px;margin:4px 0 2px;padding:0;
font-size:13px}
.legend li{display:flex;align-items:center;gap:6px;overflow-wrap:anywhere}
.legend svg{width:22px;height:10px;flex:none}
.swatch{display:inline-block;width:12px;height:12px;border-radius:3px;background:currentColor;
margin-right:8px;
vertical-align:-1px}
.cursor{stroke:var(--soft);stroke-width:1;stroke-dasharray:2 2}
.tip{position:absolute;top:0;pointer-events:none;background:var(--paper);
border:1px solid var(--rule);border-radius:6px;
padding:5px 8px;font-size:12.5px;line-height:1.4;white-space:nowrap;box-shadow:0 2px 8px #0003;
z-index:2;
font-variant-numeric:tabular-nums}
.scroll{overflow-x:auto}
.tall{max-height:520px;overflow-y:auto}
table{border-collapse:collapse;font-size:14px;font-variant-numeric:tabular-nums}
th,td{padding:4px 12px 4px 0;text-align:left;font-weight:400;border-bottom:1px solid var(--rule);
vertical-align:top}
thead th{color:var(--soft);font-size:13px;white-space:nowrap}
.tall thead th{position:sticky;top:0;background:var(--paper)}
.n{text-align:right;white-space:nowrap}
th,td{max-width:70ch;overflow-wrap:break-word}
.bar{width:clamp(80px,22vw,260px);height:12px;margin-top:4px}
.bar i{display:block;height:100%;min-width:1px;border-radius:2px;background:var(--s0)}
.halves{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,480px),1fr));
column-gap:36px}
.halves>*{min-width:0}
.halves>section:has(.small){grid-column:1/-1}
.matrix{border-spacing:2px;border-collapse:separate}
.matrix td,.matrix th{border:0;padding:0 6px;height:26px;vertical-align:middle;white-space:nowrap}
.matrix td{min-width:34px;text-align:center;border-radius:3px;font-size:13px}
.matrix thead th{vertical-align:bottom;padding:4px 0}
.matrix thead th div{writing-mode:vertical-rl;transform:rotate(180deg);margin:0 auto;
max-height:120px;overflow:hidden;
text-overflow:ellipsis}
.matrix tbody th{text-align:right;max-width:160px;overflow:hidden;text-overflow:ellipsis}
.matrix.small td{min-width:20px;height:20px;padding:0;font-size:10.5px}
.matrix.small th{height:20px;font-size:12px}
.hit{background:rgb(var(--hit)/var(--v))}
.miss{background:rgb(var(--miss)/var(--v))}
.full{color:var(--paper)}
.none{color:var(--rule)}
.map svg{min-width:640px;margin-top:6px}
.map text{font-size:9.5px}
.map rect{fill:var(--s0);fill-opacity:.35;stroke:var(--s0);stroke-width:.6}
.map rect:hover{fill-opacity:.8}
.turn{stroke:var(--ink);stroke-dasharray:4 3}
.pictures{display:grid;grid-template-columns:repeat(auto-fill,minmax(132px,1fr));gap:16px;
font-size:13px}
.pictures img,.pictures .lost{display:block;width:100%;max-width:160px;aspect-ratio:1;
object-fit:contain;border-radius:6px;
background:var(--card)}
.pictures figcaption{margin-top:6px;line-height:1.35;overflow-wrap:anywhere}
pre{background:var(--card);border-radius:8px;padding:12px;overflow-x:auto;font-size:13px;
white-space:pre-wrap;
overflow-wrap:anywhere;margin:0 0 14px}
summary{cursor:pointer;margin-bottom:8px}
:focus-visible{outline:2px solid var(--s0);outline-offset:2px}
@media (max-width:600px){main{padding:16px 14px 40px}h1{font-size:22px}.tiles{
grid-template-columns:1fr 1fr}
.pictures{grid-template-columns:1fr 1fr 1fr;gap:12px}
.pictures.small{grid-template-columns:1fr 1fr 1fr 1fr}.pictures img{max-width:none}}
@media print{.charts{display:block}.chart{break-inside:avoid;margin-bottom:12px}}
)";

// Coordinates are turned back into values, so that the page holds each number once.
constexpr std::string_view script = R"(
for (const svg of document.querySelectorAll('.chart svg[data-x]')) {
  const plot = svg.parentNode, name = svg.dataset.name;
  const box = svg.viewBox.baseVal;
  const [left, right, top, bottom] = svg.dataset.plot.split(' ').map(Number);
  const axis = text => {
    const [low, high, log] = text.split(' ').map(Number);
    return at => log ? low * (high / low) ** at : low + (high - low) * at;
  };
  const xAxis = axis(svg.dataset.x), yAxis = axis(svg.dataset.y);
  const curves = [...svg.querySelectorAll('.curve[data-name]')].map(path => ({
    name: path.dataset.name, color: getComputedStyle(path).stroke,
    points: [...path.getAttribute('d').matchAll(/[ML]([-\d.]+) ([-\d.]+)/g)]
      .map(m => [+m[1], +m[2]])
  })).filter(curve => curve.points.length);
  const xText = x => {
    const v = xAxis((x - left) / (right - left));
    return name === 'step' ? Math.round(v) : +v.toFixed(2);
  };
  const yText = y => {
    const v = yAxis((bottom - y) / (bottom - top));
    return Math.abs(v) >= 1000 ? v.toFixed(0) : +v.toPrecision(4);
  };
  const nearer = x => (a, b) => Math.abs(b[0] - x) < Math.abs(a[0] - x) ? b : a;
  let tip, cursor;
  const hide = () => { tip?.remove(); cursor?.remove(); tip = cursor = null; };
  const show = event => {
    const frame = svg.getBoundingClientRect(), scale = box.width / frame.width;
    const x = (event.clientX - frame.left) * scale;
    hide();
    if (x < left - 8 || x > right + 8) return;
    const nearest = curves.map(curve => curve.points.reduce(nearer(x)));
    const at = nearest.reduce(nearer(x))[0];
    cursor = document.createElementNS('http://www.w3.org/2000/svg', 'line');
    cursor.setAttribute('class', 'cursor');
    const ends = {x1: at, x2: at, y1: top, y2: bottom};
    for (const key in ends) cursor.setAttribute(key, ends[key]);
    svg.append(cursor);
    tip = document.createElement('div');
    tip.className = 'tip';
    tip.append(name + ' ' + xText(at));
    curves.forEach((curve, i) => {
      const line = document.createElement('div'), mark = document.createElement('i');
      mark.className = 'swatch';
      mark.style.color = curve.color;
      const [px, py] = nearest[i];
      const where = Math.abs(px - at) > 1 ? ' (' + name + ' ' + xText(px) + ')' : '';
      line.append(mark, curve.name + ': ' + yText(py) + where);
      tip.append(line);
    });
    plot.append(tip);
    const room = plot.clientWidth - tip.offsetWidth, to = at / scale + 10;
    tip.style.left = Math.max(0, to > room ? at / scale - tip.offsetWidth - 10 : to) + 'px';
  };
  svg.addEventListener('pointermove', show);
  svg.addEventListener('pointerdown', show);
  svg.addEventListener('pointerleave', hide);
}
)";

const std::string_view page_style = style, page_script = script;

}  // namespace bv
