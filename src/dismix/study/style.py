"""The look of the study's page: light and dark, phone and print."""

STYLE = """
:root { color-scheme: light dark; --ink: #1b1f27; --soft: #586174; --line: #d9dee6; --paper: #fff;
  --card: #f5f7fa; --none: #7b8494; --mixup: #c26a12; --dismix: #1d5fd1; --yes: #15803d;
  --no: #b42318; --maybe: #a15c07 }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ef; --soft: #9aa4b5; --line: #343b47;
  --paper: #14171d; --card: #1d222b; --none: #9aa4b5; --mixup: #f0a050; --dismix: #7fb0ff;
  --yes: #4ade80; --no: #f87171; --maybe: #f0b35a } }
* { box-sizing: border-box }
html { -webkit-text-size-adjust: 100% }
body { margin: 0 auto; max-width: 920px; padding: 0 1.1rem 3rem; background: var(--paper);
  color: var(--ink); font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif }
h1 { font-size: clamp(1.4rem, 5vw, 2rem); line-height: 1.2; margin: 1.6rem 0 .2rem }
h2 { font-size: 1.22rem; margin: 2.4rem 0 .3rem; line-height: 1.25 }
h3 { font-size: 1rem; margin: 1.3rem 0 .3rem }
p { margin: .4rem 0; max-width: 72ch } .soft, figcaption { color: var(--soft) }
.lead { color: var(--soft); margin: 0 0 1.1rem }
.verdict { border-left: 6px solid var(--tone); background: var(--card); border-radius: 10px;
  padding: 1rem 1.2rem; margin: 1rem 0 }
.verdict strong.head { display: block; font-size: clamp(1.35rem, 5.5vw, 1.9rem); line-height: 1.2;
  color: var(--tone) }
.verdict ul { margin: .6rem 0 0; padding-left: 1.15rem } .verdict li { margin: .3rem 0 }
.yes { --tone: var(--yes) } .no { --tone: var(--no) } .maybe { --tone: var(--maybe) }
.note { border-left: 3px solid var(--maybe); padding-left: .8rem }
.forest { margin: .9rem 0 .3rem; border: 1px solid var(--line); border-radius: 10px;
  padding: .7rem .9rem .5rem }
.forest .row { margin: .55rem 0 .9rem; break-inside: avoid }
.forest .says { display: flex; flex-wrap: wrap; justify-content: space-between; gap: 0 1rem }
.forest .says b { color: var(--tone) } .forest .says span { font-variant-numeric: tabular-nums }
.track { position: relative; height: 34px; margin-top: .15rem }
.track > * { position: absolute; print-color-adjust: exact; -webkit-print-color-adjust: exact }
.track .zero { top: 0; bottom: 0; width: 2px; margin-left: -1px; background: var(--ink) }
.track .worth { top: 0; bottom: 0; border-left: 2px dotted var(--soft) }
.track .bar { top: 8px; height: 10px; border-radius: 5px; background: var(--tone); opacity: .4 }
.track .mean { top: 4px; width: 6px; height: 18px; margin-left: -3px; border-radius: 3px;
  background: var(--tone) }
.track .fold { top: 26px; width: 8px; height: 8px; margin-left: -4px; border-radius: 50%;
  border: 2px solid var(--tone) }
.axis { position: relative; height: 1.4rem; border-top: 1px solid var(--line); font-size: .8rem;
  color: var(--soft); font-variant-numeric: tabular-nums }
.axis span { position: absolute; transform: translateX(-50%); top: .1rem; white-space: nowrap }
.sides { display: flex; justify-content: space-between; font-size: .85rem; color: var(--soft) }
.t-none { --tone: var(--none) } .t-mixup { --tone: var(--mixup) }
.t-dismix { --tone: var(--dismix) }
.scroll { overflow-x: auto; margin: .7rem 0 }
table { border-collapse: collapse; font-size: .92rem; font-variant-numeric: tabular-nums }
th, td { padding: .32rem .75rem; text-align: right; border-bottom: 1px solid var(--line);
  vertical-align: top; white-space: nowrap }
th:first-child, td:first-child { text-align: left; padding-left: 0 } thead th { color: var(--soft);
  font-weight: 600 }
td small { display: block; color: var(--soft); font-size: .8rem } td.best { font-weight: 700 }
td.best small { font-weight: 400 } td b.name { color: var(--tone) }
.tiles { display: grid; gap: .7rem; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr));
  margin: .8rem 0 }
.tile { background: var(--card); border-radius: 10px; padding: .7rem .9rem }
.tile b { display: block; font-size: 1.45rem; line-height: 1.2 }
.tile small { color: var(--soft); display: block; line-height: 1.35 }
.mixes { display: grid; gap: .8rem; grid-template-columns: repeat(auto-fill, minmax(250px, 1fr));
  margin: .9rem 0 }
.mix { background: var(--card); border-radius: 10px; padding: .6rem .7rem .55rem; margin: 0;
  break-inside: avoid }
.mix .pictures { display: grid; grid-template-columns: repeat(4, 1fr); gap: .3rem }
.mix .pictures div { font-size: .72rem; text-align: center; color: var(--soft); line-height: 1.3 }
.mix img, .mix .empty { width: 100%; aspect-ratio: 1; border-radius: 5px; display: block;
  object-fit: cover } .mix .empty { border: 1px dashed var(--line); display: grid;
  place-items: center; font-size: .68rem }
.mix .made img { outline: 3px solid var(--dismix); outline-offset: -1px }
.mix .made { color: var(--dismix); font-weight: 600 }
.mix figcaption { font-size: .82rem; margin-top: .4rem; line-height: 1.35 }
.mix figcaption b { color: var(--ink) } .copy { color: var(--no); font-weight: 600 }
.spent { display: flex; height: 1.5rem; border-radius: 6px; overflow: hidden; margin: .6rem 0 .2rem;
  print-color-adjust: exact; -webkit-print-color-adjust: exact }
.spent i { background: var(--tone); min-width: 2px }
.spent .gen, .keys .gen { background: repeating-linear-gradient(
  135deg, var(--dismix) 0 6px, color-mix(in srgb, var(--dismix) 55%, var(--paper)) 6px 12px) }
.keys { display: flex; flex-wrap: wrap; gap: .1rem 1.1rem; font-size: .85rem; color: var(--soft) }
.keys i { display: inline-block; width: .8rem; height: .8rem; border-radius: 3px;
  background: var(--tone); margin-right: .35rem; vertical-align: -1px;
  print-color-adjust: exact; -webkit-print-color-adjust: exact }
code { white-space: nowrap; font-size: .92em }
ol, ul { max-width: 74ch; padding-left: 1.3rem } li { margin: .25rem 0 }
pre { background: var(--card); padding: .7rem 1rem; border-radius: 8px; overflow-x: auto;
  font-size: .85rem; white-space: pre-wrap; overflow-wrap: anywhere }
footer { margin-top: 2.5rem; border-top: 1px solid var(--line); padding-top: .7rem;
  color: var(--soft); font-size: .88rem }
@media (max-width: 560px) { th, td { padding: .3rem .26rem } table { font-size: .86rem }
  thead th { white-space: normal } td small { font-size: .7rem } .scroll { margin-right: -.6rem } }
@media print { body { max-width: none; padding: 0; font-size: 11pt } h2 { break-after: avoid }
  .verdict, .forest, table, .tile { break-inside: avoid } }
"""
