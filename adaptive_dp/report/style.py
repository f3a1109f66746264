"""The style sheet of the page: light or dark, wide or narrow, and paper.

Tables become cards on a narrow screen. Paper is landscape, for the sake of the drawing.
"""

STYLE = """
:root{color-scheme:light dark;--bg:#f6f7f9;--card:#fff;--ink:#1f2937;--soft:#4b5563;--line:#d5dae1;
--accent:#0369a1;--tint:#e8f4fc;--rail:#c9dceb;--warn:#9f1239;--warn-bg:#ffe4e6}
@media screen and (prefers-color-scheme:dark){:root{--bg:#0e1116;--card:#14181f;--ink:#e5e7eb;
--soft:#b6bec9;--line:#353d49;--accent:#38bdf8;--tint:#0d2b3e;--rail:#274a61;--warn:#fecdd3;
--warn-bg:#5b1225}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--ink);line-height:1.5;
font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans",sans-serif}
main{max-width:1440px;margin:0 auto;padding:24px 20px 64px}
h1{font-size:1.05rem;margin:0 0 4px;color:var(--soft);font-weight:600}
h2{font-size:1.15rem;margin:0 0 12px}
section{background:var(--card);border:1px solid var(--line);border-radius:12px;padding:18px 20px;
margin:16px 0;overflow-wrap:anywhere}
.banner{background:var(--warn-bg);color:var(--warn);border:2px solid var(--warn);
border-radius:12px;padding:16px 20px;font-size:1.5rem;font-weight:700;text-align:center}
.claim{font-size:clamp(1.5rem,5vw,2.4rem);font-weight:700;margin:0 0 6px;line-height:1.2}
.claim span{white-space:nowrap;margin-right:.7em}
p,ul{margin:0 0 8px}ul{padding-left:1.2em}
.scroll{overflow-x:auto}
.scroll svg{display:block;max-width:100%;height:auto;min-width:min(100vw,900px)}
table{border-collapse:collapse;width:100%;font-size:.92rem;overflow-wrap:break-word}
td:first-child,td small{overflow-wrap:anywhere}table.cards>tbody>tr>td:first-child{min-width:8em}
th{text-align:left;white-space:nowrap;color:var(--soft);font-weight:600;font-size:.82rem}
th,td{padding:7px 12px 7px 0;border-bottom:1px solid var(--line);vertical-align:top}
.number{font-variant-numeric:tabular-nums;white-space:nowrap}
tr.best td{background:var(--tint)}tr.best td:first-child{box-shadow:inset 4px 0 var(--accent);
padding-left:12px}
tr.off td{color:var(--soft)}
small{display:block;color:var(--soft);font-size:.84rem}
.tag{display:inline-block;white-space:nowrap;
border:1px solid var(--accent);color:var(--accent);border-radius:99px;
padding:0 8px;font-size:.78rem;font-weight:600}
.bars{display:grid;grid-template-columns:minmax(6em,30%) 1fr max-content;gap:6px 12px;
align-items:center;font-size:.92rem}
.bars i{display:block;height:12px;border-radius:6px;background:var(--rail);overflow:hidden}
.bars b{display:block;height:100%;background:var(--accent);border-radius:6px}
details{margin:8px 0}summary{cursor:pointer;color:var(--accent);font-weight:600}
code,pre{font:.86rem/1.45 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
pre{overflow-x:auto;margin:8px 0 0;padding:12px;background:var(--bg);border-radius:8px}
table.cards td:last-child{min-width:6.5em}
table.matrix{width:auto}
table.matrix td{padding:3px 14px 3px 0;text-align:right;overflow-wrap:normal}
table.names>tbody>tr>td{text-align:left;overflow-wrap:anywhere;min-width:5em}
@media (max-width:720px){main{padding:12px 10px 40px}section{padding:14px}
table.cards thead{display:none}table.cards>tbody>tr{display:block;border:1px solid var(--line);
border-radius:8px;padding:8px 12px;margin:0 0 10px}
table.cards>tbody>tr>td{display:block;border:0;padding:3px 0;white-space:normal}
table.cards>tbody>tr>td::before{content:attr(data-label)": ";color:var(--soft);font-size:.82rem}
tr.best td{background:none}tr.best{background:var(--tint)}
tr.best td:first-child{box-shadow:none;padding-left:0}}
@page{size:landscape;margin:12mm}
@media print{html,body{background:#fff;font-size:9.5pt}main{max-width:none;padding:0}
*{print-color-adjust:exact;-webkit-print-color-adjust:exact}
section{border-width:1px 0 0;border-radius:0;padding:10pt 0 0;margin:0 0 12pt}
h2,thead{break-after:avoid}tr,li,.bars>*,.banner{break-inside:avoid}
.scroll{overflow:visible}.scroll svg{max-width:100%;max-height:120mm;height:auto}}
"""
