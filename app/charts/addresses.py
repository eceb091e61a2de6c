"""What the browser fetches for the map beside the page: arrays, cards of problems, the library.

A page names an array by its address, so that running it again sends some bytes and not ten
megabytes, and the browser keeps what it has.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Callable
from hashlib import blake2b
from threading import Lock
from typing import TYPE_CHECKING

import numpy as np
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response
from starlette.routing import Route

from latentcode.app import assets

if TYPE_CHECKING:
    from starlette.requests import Request

ARRAYS, CARDS, LIBRARY = "/map/array", "/map/card", "/map/regl-scatterplot.js"
MOST_BYTES = 512 * 2**20
"""Arrays beyond this many bytes push out those that were asked for longest ago."""
MOST_CARDS = 16
"""Sets of codes whose cards are offered at once."""
FOREVER = {"cache-control": "private, max-age=31536000, immutable",
           # Compressing ten megabytes takes longer than sending them on one machine.
           "content-encoding": "identity"}
"""An address stands for what it contains."""
_SECRET = secrets.token_bytes(32)
"""Without it nobody can guess the address of an array that he could compute himself."""

_arrays: OrderedDict[str, bytes] = OrderedDict()
_cards: OrderedDict[str, Callable[[int], str]] = OrderedDict()
_lock = Lock()


def array_address(array: np.ndarray) -> str:
    """Return the address of an array's numbers, in the order of memory, little-endian."""
    content = array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
    name = blake2b(content, digest_size=20, key=_SECRET).hexdigest()
    with _lock:
        _arrays[name] = content
        _arrays.move_to_end(name)
        while len(_arrays) > 1 and sum(map(len, _arrays.values())) > MOST_BYTES:
            _arrays.popitem(last=False)
    return f"{ARRAYS}/{name}"


def card_address(what: object, draw: Callable[[int], str]) -> str:
    """Return the address below which the card of every row is, as HTML.

    what  tells the rows of one set of codes from those of another
    draw  row -> HTML, in which nothing of a file stands that is not escaped; `LookupError` where
          there is no such row
    """
    name = blake2b(repr(what).encode(), digest_size=20, key=_SECRET).hexdigest()
    with _lock:
        _cards[name] = draw
        _cards.move_to_end(name)
        while len(_cards) > MOST_CARDS:
            _cards.popitem(last=False)
    return f"{CARDS}/{name}"


def kept_array(name: str) -> bytes | None:
    """Return the array at an address that ends with a name; None where it is not kept."""
    with _lock:
        if name in _arrays:
            _arrays.move_to_end(name)
        return _arrays.get(name)


async def _array(request: Request) -> Response:
    content = kept_array(request.path_params["name"])
    if content is None:
        return Response("this array is not kept any more", 404, media_type="text/plain")
    return Response(content, media_type="application/octet-stream", headers=FOREVER)


async def _card(request: Request) -> Response:
    draw = _cards.get(request.path_params["name"])
    try:
        html = None if draw is None else await run_in_threadpool(draw, request.path_params["row"])
    except LookupError:
        html = None
    if html is None:
        return Response("there is no such card", 404, media_type="text/plain")
    return Response(html, media_type="text/html", headers={"cache-control": "private, no-cache"})


async def _library(_: Request) -> Response:
    return Response(assets.script(), media_type="text/javascript", headers=FOREVER)


def library_address() -> str:
    """Return the address of the drawing library, another one for every version."""
    return f"{LIBRARY}?v={assets.installed().version}"


ROUTES = (Route(f"{ARRAYS}/{{name}}", _array), Route(f"{CARDS}/{{name}}/{{row:int}}", _card),
          Route(LIBRARY, _library))
"""For the server."""
