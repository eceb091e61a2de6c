"""The first page as one file that needs no server: of the same script, style and data."""

from __future__ import annotations

import json

from latentcode.app.assets import text_of
from latentcode.app.data.moves import read_stored
from latentcode.app.moves.view import view

EXPORT = "export default function"
"""How the function begins that a script of a component is: nobody imports it here."""
PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:">
<title>What codes do · latentcode</title>
<style>
:root {color-scheme: light dark; --st-text-color: #1B2530; --st-background-color: #FFFFFF;
  --st-secondary-background-color: #F4F6F8; --st-border-color: #DDE3E8;
  --st-primary-color: #0072B2;}
@media (prefers-color-scheme: dark) {:root {--st-text-color: #E4E9EE;
  --st-background-color: #12171D; --st-secondary-background-color: #1B222B;
  --st-border-color: #323C47; --st-primary-color: #56B4E9;}}
body {margin: 0 auto; max-width: 80rem; padding: 1rem; box-sizing: border-box; font-size: 15px;
  background: var(--st-background-color); color: var(--st-text-color);
  font-family: Inter, 'Segoe UI', 'Helvetica Neue', 'DejaVu Sans', sans-serif;}
html {font-size: 15px;}
a {color: var(--st-primary-color);}
footer {margin-top: 1.2rem; font-size: .82rem; opacity: .8;}
%(style)s
</style>
</head>
<body>
<main id="page"></main>
<footer>Every answer here is stored. <code>latentcode explore</code> opens this page on your
machine, with any other problem, <a href="index.html">and everything else</a>.</footer>
<script type="application/json" id="data">%(data)s</script>
<script>
'use strict';
%(script)s
const data = JSON.parse(document.getElementById('data').textContent);
const first = data.tasks[0], asked = new URLSearchParams(location.search);
const state = { task: first.name, kind: data.kinds[0].name, put: 'codes', drop: '', problem: 0 };
const among = (key, names) => { if (names.includes(asked.get(key))) state[key] = asked.get(key); };
among('task', data.tasks.map(task => task.name));
among('kind', data.kinds.map(kind => kind.name));
among('put', ['codes', 'values']);
const task = data.tasks.find(one => one.name === state.task);
const moves = task.moves.filter(move => !task.sites.length || move.site === state.put);
state.drop = moves[0].place;
among('drop', ['nothing', ...moves.map(move => move.place)]);
if (data.problems[state.task].some(one => String(one.number) === asked.get('problem')))
    state.problem = Number(asked.get('problem'));
show({ data: { ...data, state, alone: true, turn: 0 },
       parentElement: document.getElementById('page'),
       setTriggerValue: (_, { turn, ...now }) => history.replaceState(
           null, '', `?${new URLSearchParams(now)}`) });
</script>
</body>
</html>
"""


def static_page() -> str:
    """Return the page, with every stored state, as HTML that asks no other address for anything."""
    script = text_of("latentcode.app.assets", "parts.js") + text_of(__name__, "moves.js")
    assert script.count(EXPORT) == 1
    # Text in a script element ends at the first `</`, whatever stands around it.
    data = json.dumps(view(read_stored()), ensure_ascii=False).replace("</", "<\\/")
    return PAGE % {"style": text_of(__name__, "moves.css"), "data": data,
                   "script": script.replace(EXPORT, "const show = function")}
