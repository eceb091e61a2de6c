"""What a browser may do with the explorer's pages, as headers of every answer."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

HOSTS = ("localhost", "127.0.0.1", "::1")
"""What requests may call the server: a page from elsewhere may have a name that leads here, too."""

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
