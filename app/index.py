"""The page that the browser opens: Streamlit's, with our script before all others."""

from __future__ import annotations

import re
from functools import cache
from hashlib import blake2b
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from latentcode.app.menu import LANGUAGE, PAGES

SCRIPT = "history.js"
SKIP = ('<a href="#pages" id="skip" style="position:fixed;left:50%;top:-9rem;z-index:1000000;'
        'padding:.5rem .8rem;background:#fff;color:#0072b2;border-radius:0 0 8px 8px">'
        'To the pages</a>')
"""The first stop of the keyboard, seen there alone."""


@cache
def _script() -> str:
    return files("latentcode.app").joinpath(SCRIPT).read_text(encoding="utf-8")


@cache
def index() -> str:
    """Return Streamlit's page, in which history.js is run before Streamlit is."""
    page = files("streamlit").joinpath("static", "index.html").read_text(encoding="utf-8")
    version = blake2b(_script().encode(), digest_size=8).hexdigest()
    page = re.sub("(<body[^>]*>)", rf"\1\n    {SKIP}", page, count=1)
    return page.replace("<head>", f'<head>\n    <script src="./{SCRIPT}?v={version}" '
                        f'data-later="{plotly()}"></script>', 1)


def plotly() -> str:
    """Return the address of the part of Streamlit's script that draws charts of Plotly; "" if it
    has none of that name.

    A browser takes a second for it, and Streamlit asks for it with the first chart.
    """
    scripts = files("streamlit").joinpath("static", "static", "js")
    found = (file.name for file in scripts.iterdir()
             if file.name.startswith("PlotlyChart.") and file.name.endswith(".js"))
    return next((f"./static/js/{name}" for name in found), "")


async def _page(_: Request) -> Response:
    return Response(index(), media_type="text/html", headers={"cache-control": "no-cache"})


async def _history(_: Request) -> Response:
    return Response(_script(), media_type="text/javascript",
                    headers={"cache-control": "no-cache"})


ROUTES = (Route("/", _page), *(Route(f"/{name}", _page) for name, *_ in (*PAGES, *LANGUAGE)),
          Route(f"/{SCRIPT}", _history))
"""For the server."""
