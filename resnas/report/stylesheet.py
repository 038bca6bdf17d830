"""The stylesheet of the report: one column, light or dark as the reader's system, tables that scroll, a print form."""

STYLESHEET = """
:root { color-scheme: light dark;
  --paper: #fbfbfa; --card: #ffffff; --ink: #1d2126; --soft: #5c636d; --line: #e3e4e6;
  --accent: #00619a; --wash: #eef3f7;
  --good: #00558a; --good-wash: #e2eff8; --maybe: #7a4b00; --maybe-wash: #fbefd9;
  --none: #5c636d; --none-wash: #eeeff1; }
@media (prefers-color-scheme: dark) { :root {
  --paper: #14171b; --card: #1a1e23; --ink: #e4e6e9; --soft: #9aa1ab; --line: #2d333a;
  --accent: #6cb8e6; --wash: #1b252e;
  --good: #8fcbf0; --good-wash: #12303f; --maybe: #f0c069; --maybe-wash: #3a2c12;
  --none: #a4abb4; --none-wash: #262b31; } }
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; scroll-behavior: smooth; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 17px/1.6 ui-sans-serif, system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
main { max-width: 62rem; margin: 0 auto; padding: 3.5rem 1.5rem 5rem; }
h1 { font-size: 2.1rem; line-height: 1.2; margin: 0 0 .4rem; letter-spacing: -.015em; overflow-wrap: anywhere; }
h2 { font-size: 1.4rem; line-height: 1.3; margin: 4rem 0 .6rem; letter-spacing: -.01em; }
h3 { font-size: 1.05rem; margin: 2rem 0 .3rem; overflow-wrap: anywhere; }
p, li, dd { max-width: 46rem; overflow-wrap: anywhere; }
p { margin: .6rem 0; }
a { color: var(--accent); text-underline-offset: .15em; }
code { font: .88em ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; }
.kicker { color: var(--soft); font-size: .85rem; margin: 0 0 .5rem; }
.question { color: var(--soft); font-size: 1.08rem; }
.answer { background: var(--wash); border-left: 4px solid var(--accent); border-radius: 0 8px 8px 0;
  padding: 1.2rem 1.5rem; margin: 2rem 0 1.2rem; }
.answer .finding { font-size: 1.15rem; line-height: 1.5; margin: 0 0 .6rem; }
.answer p, .answer li { max-width: none; }
.answer ul { margin: .6rem 0 0; padding-left: 1.1rem; }
.small, figcaption { color: var(--soft); font-size: .88rem; line-height: 1.5; }
nav { font-size: .92rem; color: var(--soft); }
nav a { margin-right: 1.1rem; white-space: nowrap; display: inline-block; padding: .15rem 0; }
figure { margin: 1.6rem 0 2.4rem; min-width: 0; }
figure h3 { margin: 0 0 .5rem; }
figcaption { max-width: 46rem; margin-top: .5rem; overflow-wrap: anywhere; }
.pair { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 24rem), 1fr)); gap: 1rem 2.5rem; }
.pair figure { margin: 1rem 0; }
.scroll { overflow-x: auto; margin: 1.2rem 0; border: 1px solid var(--line); border-radius: 8px;
  background: var(--card); }
.scroll:focus-visible { outline: 2px solid var(--accent); }
table { border-collapse: collapse; width: 100%; font-size: .88rem; line-height: 1.45; }
th { text-align: left; font-weight: 600; color: var(--soft); vertical-align: bottom; }
th, td { padding: .55rem .7rem; border-bottom: 1px solid var(--line); }
tbody tr:last-child td { border-bottom: 0; }
td { vertical-align: top; }
td .small { font-size: .95em; }
td.number { font-variant-numeric: tabular-nums; white-space: nowrap; }
td.name { min-width: 17rem; }
.first { white-space: nowrap; }
td.name .small, td.property .small { overflow-wrap: anywhere; }
td.property { min-width: 9rem; } td.member { padding-left: 1.8rem; white-space: nowrap; } td.direction { min-width: 8.5rem; }
.dot { display: inline-block; width: .65em; height: .65em; border-radius: 50%; margin-right: .5em;
  -webkit-print-color-adjust: exact; print-color-adjust: exact; }
.tag { display: inline-block; font-size: .78rem; color: var(--soft); border: 1px solid var(--line);
  border-radius: 99px; padding: 0 .6em; }
.verdict { display: inline-block; border-radius: 99px; padding: .05em .7em; font-weight: 600; white-space: nowrap; }
.verdict.supported { color: var(--good); background: var(--good-wash); }
.verdict.suggestive { color: var(--maybe); background: var(--maybe-wash); }
.verdict.noise { color: var(--none); background: var(--none-wash); font-weight: 400; }
td .verdict.noise { white-space: normal; border-radius: .8rem; min-width: 7.4rem; max-width: 8.5rem; }
details { margin: 1rem 0 2rem; }
summary { color: var(--accent); cursor: pointer; padding: .3rem 0; max-width: 46rem; }
.refusal { border: 1px dashed var(--line); border-radius: 8px; padding: .9rem 1.2rem; background: var(--card); }
dl { display: grid; grid-template-columns: minmax(9rem, 15rem) 1fr; gap: .5rem 1.5rem; }
dt { font-weight: 600; overflow-wrap: anywhere; }
dd { margin: 0; }
.js-plotly-plot text { user-select: text !important; -webkit-user-select: text !important; }
.js-plotly-plot .main-svg :not(.hoverlayer) > .hovertext text { fill: inherit; }
.xtick text, .ytick text, .g-xtitle text, .g-ytitle text, .legendtext, .colorbar text, .annotation-text { fill: var(--soft) !important; }
footer { margin-top: 4rem; }
@media (max-width: 40rem) {
  body { font-size: 16px; } main { padding: 2rem 1.1rem 3rem; } h1 { font-size: 1.65rem; } h2 { margin-top: 3rem; }
  .answer { padding: 1rem 1.1rem; } dl { grid-template-columns: 1fr; gap: .1rem; } dd { margin-bottom: .9rem; }
  td.name { min-width: 15rem; } }
@media print { :root { --paper: #fff; --card: #fff; --ink: #000; --soft: #444; --line: #ccc;
  --wash: #f5f5f5; --accent: #00517f; }
  body { font-size: 10.5pt; } main { max-width: none; padding: 0; } nav { display: none; }
  .scroll { overflow: visible; }
  table { font-size: 7.5pt; } td.name .first { white-space: normal; } th, td { padding: .25rem .35rem; }
  td.name, td.property, td.direction { min-width: 6rem; }
  td.number { white-space: normal; } h2 { margin-top: 2rem; } .pair { grid-template-columns: 1fr 1fr; } td .tag { font-size: 1em; }
  figure, tr, .answer, .refusal { break-inside: avoid; } h2, h3 { break-after: avoid; } }
"""

SCRIPT = """
function drawn() { return Array.from(document.querySelectorAll('.js-plotly-plot')); }
function fit(plot) {
  const entries = plot.data.filter(trace => trace.name && trace.showlegend !== false).length;
  const needed = document.documentElement.clientWidth < 480 && entries > 4 ? 80 + 40 * entries : 0;
  if (needed <= plot.layout.height) return Plotly.Plots.resize(plot);
  plot.style.height = needed + 'px';
  Plotly.relayout(plot, {height: needed}); }
addEventListener('load', () => drawn().forEach(fit));
addEventListener('beforeprint', () => document.querySelectorAll('details').forEach(one => one.open = true));
addEventListener('beforeprint', () => drawn().forEach(plot =>
  Plotly.relayout(plot, {width: plot.closest('.pair') ? 330 : 660})));
addEventListener('afterprint', () => drawn().forEach(plot => Plotly.relayout(plot, {width: null, autosize: true})));
"""
"""Figures take the width that is there once the whole page stands, and on a phone the height that their legend needs,
an entry a line; a printed page is narrower, and unfolds what is folded."""
