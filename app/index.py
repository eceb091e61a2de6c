"""The page that the browser opens, Streamlit's with our script first, and the policy for all."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from functools import cache
from hashlib import blake2b
from importlib.resources import files
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from latentcode.app.settings import LANGUAGE, PAGES

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

SCRIPT = "history.js"
SKIP = ('<a href="#pages" id="skip" style="position:fixed;left:50%;top:-9rem;z-index:1000000;'
        'padding:.5rem .8rem;background:#fff;color:#0072b2;border-radius:0 0 8px 8px">'
        'To the pages</a>')
"""The first stop of the keyboard, seen there alone."""

CONTENT: Mapping[str, str] = {
    "default-src": "'self'",
    # Streamlit imports the scripts of components as blobs, and regl, with which Plotly and the map
    # draw, compiles its commands.
    "script-src": "'self' blob: 'unsafe-eval'",
    "worker-src": "'self' blob:",
    "style-src": "'self' 'unsafe-inline'",
    "img-src": "'self' data: blob:",
    "font-src": "'self' data:",
    "connect-src": "'self'",
    "object-src": "'none'",
    "base-uri": "'none'",
    "form-action": "'self'",
    "frame-src": "'self'",
    "frame-ancestors": "'none'",
}
"""The content security policy: everything comes from this server, and no other site frames it."""

HEADERS: Mapping[str, str] = {
    "x-frame-options": "DENY",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


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


@cache
def content_policy() -> str:
    """Return the content security policy, with the hashes of scripts in Streamlit's own page."""
    page = files("streamlit").joinpath("static", "index.html").read_text(encoding="utf-8")
    own = "".join(f" 'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
                  for script in re.findall(r"<script>(.*?)</script>", page, re.DOTALL))
    return "; ".join(f"{what} {whence}{own if what == 'script-src' else ''}"
                     for what, whence in CONTENT.items())


class Policy:
    """ASGI middleware that gives every answer the headers of `HEADERS` and the content policy."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self._headers = {**HEADERS, "content-security-policy": content_policy()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                ours = [(name.encode(), value.encode()) for name, value in self._headers.items()]
                kept = [(name, value) for name, value in message.get("headers", ())
                        if name.lower().decode("latin-1") not in self._headers]
                message = {**message, "headers": [*kept, *ours]}
            await send(message)

        await self.app(scope, receive, sending)
