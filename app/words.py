"""Text that comes from files, folders and URLs, made safe to show on a page."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

_SPECIAL = re.compile(r"(?<!`)`[^`\n]+`(?!`)|[\\`*\[\]<$~\n]")

_TAG = re.compile(r"<(?!/?(?:b|br|extra|span)(?: style='color:#\w+')?>)")
"""What begins a tag that the charts of the explorer do not have themselves."""


def literal(text: object) -> str:
    """Return Markdown that shows a text as it is; `code` stays code.

    Otherwise a name in a file from somebody else could make the page fetch a picture from the
    network.
    """
    def shown(match: re.Match[str]) -> str:
        found = match[0]
        return found if len(found) > 1 else " " if found == "\n" else f"\\{found}"

    return _SPECIAL.sub(shown, str(text))


def shortened(text: str, most: int = 22) -> str:
    """Return the beginning of a text that is longer than there is space for."""
    return text if len(text) <= most else f"{text[:most - 1]}…"


def without_tags(part: Any) -> Any:
    """Return the specification of a chart, the texts of which have no tags but its own.

    Plotly takes text for HTML: a label in a file from somebody else could be a link to anywhere.
    """
    if isinstance(part, str):
        return _TAG.sub("&lt;", part) if "<" in part else part
    if isinstance(part, dict):
        return {key: without_tags(value) for key, value in part.items()}
    if isinstance(part, np.ndarray) and part.dtype.kind in "OU":
        return [without_tags(value) for value in part.tolist()]
    return [without_tags(value) for value in part] if isinstance(part, list | tuple) else part
