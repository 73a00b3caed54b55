"""The page's stylesheet: light and dark as the reader's system is, and light on paper."""

CSS = """
:root { color-scheme: light dark; --ground: #fdfdfb; --ink: #1b1d21; --soft: #626873; --rule: #e3e3dd;
  --band: #f3f3ee; --line: #1d5fc4; --raw: #8db1e8; --good: #14723f; --bad: #b8321f; --busy: #1d5fc4;
  --change: #7a5c00; --inside: #ffffff;
  --boot0: #d5d0e3; --boot1: #c0b8d6; --boot2: #aba0c9; --boot3: #9688bb; --boot4: #8170ad; --boot5: #6c589e;
  --boot6: #584581; }
@media screen and (prefers-color-scheme: dark) { :root { --ground: #15171b; --ink: #e7e8ea; --soft: #9aa1ad;
  --rule: #2b2f37; --band: #1c1f25; --line: #74a9ff; --raw: #44669f; --good: #56c98b; --bad: #ff8371;
  --busy: #74a9ff; --change: #e0b64a; --inside: #10131a;
  --boot0: #3a3550; --boot1: #4a4366; --boot2: #5b527b; --boot3: #6c6191; --boot4: #8074a6; --boot5: #968bba;
  --boot6: #aca3cf; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "Liberation Sans", sans-serif; }
main { max-width: 1088px; margin: 0 auto; padding: 48px 24px 32px; }
header p { margin: 0; color: var(--soft); }
h1 { font-size: 34px; line-height: 1.2; letter-spacing: -.015em; margin: 4px 0 8px; overflow-wrap: anywhere; }
h1.long { font-size: 22px; letter-spacing: 0; }
h2 { font-size: 19px; letter-spacing: -.005em; margin: 52px 0 4px; break-after: avoid; }
.note { color: var(--soft); margin: 0 0 12px; font-size: 14px; }
.good { color: var(--good); } .bad { color: var(--bad); } .busy { color: var(--busy); } .quiet { color: var(--soft); }
dl { margin: 0; } dt { color: var(--soft); font-size: 14px; } dd { margin: 0; }
.figures { display: grid; grid-template-columns: repeat(4, 1fr); gap: 24px 32px; margin-top: 32px; padding-top: 24px;
  border-top: 1px solid var(--rule); }
.figures dd { font-size: 25px; line-height: 1.25; letter-spacing: -.01em; font-variant-numeric: tabular-nums; }
.figures small { display: block; font-size: 14px; letter-spacing: 0; color: var(--soft); }
.pairs { display: grid; grid-template-columns: max-content 1fr max-content 1fr; gap: 4px 24px; font-size: 15px; }
.pairs dt { font-size: 15px; } .pairs dd { overflow-wrap: anywhere; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 15px; font-variant-numeric: tabular-nums; }
caption { text-align: left; color: var(--soft); font-size: 14px; padding-bottom: 8px; }
th { font-weight: 500; color: var(--soft); text-align: left; font-size: 14px; }
th, td { padding: 7px 20px 7px 0; border-bottom: 1px solid var(--rule); vertical-align: top; }
table.compact { width: auto; } table.compact :is(th, td) { padding-right: 44px; }
table.compact tr > :last-child { padding-right: 0; } .scroll ~ .note { margin: 10px 0 0; }
.right { text-align: right; white-space: nowrap; } tr > :last-child { padding-right: 0; }
.id { font-family: ui-monospace, "SF Mono", Menlo, Consolas, "Liberation Mono", monospace; font-size: 13.5px;
  white-space: nowrap; }
td .id, td .state { white-space: nowrap; } td.why { min-width: 11em; overflow-wrap: anywhere; }
p .id { overflow-wrap: anywhere; white-space: normal; }
footer { margin-top: 56px; padding-top: 16px; border-top: 1px solid var(--rule); color: var(--soft); font-size: 14px; }
figure { margin: 0; break-inside: avoid; }
svg { display: block; width: 100%; height: auto; overflow: visible; } svg.narrow { display: none; }
svg text { font-size: 12px; fill: var(--soft); font-variant-numeric: tabular-nums; }
svg .end { text-anchor: end; } svg .middle { text-anchor: middle; }
svg .value { font-size: 14px; font-weight: 600; fill: var(--ink); paint-order: stroke; stroke: var(--ground);
  stroke-width: 4px; stroke-linejoin: round; }
svg .node { font-family: ui-monospace, Menlo, Consolas, "Liberation Mono", monospace; }
.grid { stroke: var(--rule); } .base { stroke: var(--soft); }
polyline { fill: none; stroke-linejoin: round; } .raw { stroke: var(--raw); stroke-width: 1; }
.mean, .each { stroke: var(--line); stroke-width: 2; } .dot { fill: var(--line); }
.mark { fill: var(--ground); stroke: var(--line); stroke-width: 2; }
.band { fill: var(--band); } path.fault, rect.failed { fill: var(--bad); } path.change { fill: var(--change); }
line.fault { stroke: var(--bad); stroke-dasharray: 3 3; } line.change { stroke: var(--change); stroke-dasharray: 3 3; }
.training { fill: var(--line); } svg .inside { fill: var(--inside); font-weight: 600; }
.boot0 { fill: var(--boot0); } .boot1 { fill: var(--boot1); } .boot2 { fill: var(--boot2); }
.boot3 { fill: var(--boot3); } .boot4 { fill: var(--boot4); } .boot5 { fill: var(--boot5); }
.boot6 { fill: var(--boot6); }
.legend { display: flex; flex-wrap: wrap; gap: 2px 18px; margin: 8px 0 0; padding: 0; list-style: none;
  color: var(--soft); font-size: 14px; }
.legend svg { display: inline-block; width: 14px; height: 12px; margin-right: 6px; vertical-align: -1px; }
@media screen and (max-width: 700px) {
  main { padding: 28px 20px; } h1 { font-size: 27px; } h2 { margin-top: 40px; }
  .figures { grid-template-columns: 1fr 1fr; gap: 20px; } .pairs { grid-template-columns: max-content 1fr; }
  svg.wide { display: none; } svg.narrow { display: block; } }
@media print { main { padding: 0; max-width: none; } body { font-size: 12px; } h2 { margin-top: 28px; }
  .scroll { overflow: visible; } table { font-size: 11px; } th, .note, td .id, .id { font-size: 10.5px; }
  th, td { padding: 5px 10px 5px 0; } td.why { min-width: 6em; }
  td .id, td.id { white-space: normal; overflow-wrap: anywhere; }
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact; } tr { break-inside: avoid; } }
"""
