//! The style sheet of pages: one column on a phone, two of charts where there is space; light,
//! dark, paper.

use crate::plot::colour;

pub(super) fn sheet() -> String {
    format!("{PAGE}{}", colour::style())
}

const PAGE: &str = "\
:root{color-scheme:light dark;--ink:#1a1a1a;--faint:#5c5c5c;--paper:#fff;--panel:#f5f6f8;\
--line:#dcdfe4;--link:#005ea2}\
@media screen and (prefers-color-scheme:dark){:root{--ink:#e8e8e8;--faint:#a8a8a8;--paper:#16181c;\
--panel:#1f2228;--line:#3a3d44;--link:#7cc0f0}}\
*{box-sizing:border-box}\
body{margin:0 auto;padding:16px;max-width:1240px;background:var(--paper);color:var(--ink);\
font:16px/1.5 system-ui,-apple-system,\"Segoe UI\",\"DejaVu Sans\",sans-serif;\
overflow-wrap:anywhere}\
h1{font-size:1.7rem;line-height:1.25;margin:.3em 0 .1em}\
h2{font-size:1.3rem;margin:2.2em 0 .5em;padding-top:.5em;border-top:1px solid var(--line)}\
h3{font-size:1rem;margin:0 0 .3em}\
p{max-width:72ch;margin:.5em 0}\
a{color:var(--link)}\
.subtitle,footer,figcaption,.state{color:var(--faint)}\
.lead{font-size:1.1rem;font-weight:600;max-width:72ch;background:var(--panel);padding:.7em 1em;\
border-left:5px solid #0072b2;border-radius:3px}\
nav ul{list-style:none;display:flex;flex-wrap:wrap;gap:.2em 1.2em;padding:0;margin:.8em 0}\
.figures{display:grid;gap:24px;grid-template-columns:repeat(auto-fit,minmax(min(100%,480px),1fr))}\
figure{margin:0;min-width:0;max-width:640px;break-inside:avoid}\
svg.fills{position:absolute}\
figure svg{display:block;width:100%;height:auto}\
figcaption{font-size:.875rem;margin:.3em 0}\
.view svg{cursor:crosshair;touch-action:pan-y}\
.tip{min-height:1.5em;max-width:none;margin:0;font-size:.875rem;color:var(--faint);\
font-variant-numeric:tabular-nums}\
.o{white-space:nowrap}\
.legend{list-style:none;display:flex;flex-wrap:wrap;gap:.1em 1.1em;padding:0;margin:.2em 0;\
font-size:.875rem}\
.legend li{display:flex;align-items:center;gap:.45em}\
.legend svg{width:20px;height:12px;flex:none}\
dl{display:grid;gap:0 32px;grid-template-columns:repeat(auto-fill,minmax(min(100%,480px),1fr));\
margin:.8em 0}\
dl div{display:flex;gap:1em;border-bottom:1px solid var(--line);padding:.25em 0}\
dt{color:var(--faint);flex:0 0 38%;min-width:0}dd{margin:0;flex:1 1 62%;min-width:0}\
.scroll{overflow-x:auto;max-height:26em;overflow-y:auto;margin:.6em 0}\
table{border-collapse:collapse;font-size:.875rem;font-variant-numeric:tabular-nums}\
caption{text-align:left;color:var(--faint);padding:.3em 0}\
th,td{padding:.2em .8em .2em 0;text-align:left;border-bottom:1px solid var(--line);\
vertical-align:top;overflow-wrap:normal}\
td{max-width:60ch;white-space:nowrap}\
.long{min-width:13em;white-space:normal;overflow-wrap:anywhere}\
.number{text-align:right;white-space:nowrap}\
summary{cursor:pointer;color:var(--link);font-size:.875rem}\
pre{background:var(--panel);padding:.7em 1em;border-radius:3px;white-space:pre-wrap;\
overflow-wrap:anywhere}\
footer{margin-top:3em;font-size:.875rem}\
:focus-visible{outline:2px solid var(--link);outline-offset:2px}\
@media screen and (max-width:480px){th,td{padding-right:.55em}table{font-size:.8125rem}}\
@media print{body{max-width:none;padding:0;font-size:10pt}nav,.tip{display:none}\
.scroll{max-height:none;overflow:clip}table{font-size:7pt;width:100%}\
th,td{padding-right:.4em;white-space:normal}\
.figures{grid-template-columns:1fr 1fr}a{color:inherit;text-decoration:none}}";
