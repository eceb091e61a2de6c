"""Text that comes from files, folders and URLs, made safe to show on a page."""

from __future__ import annotations

import re

_SPECIAL = re.compile(r"(?<!`)`[^`\n]+`(?!`)|[\\`*\[\]<$~\n]")


def literal(text: object) -> str:
    """Return Markdown that shows a text as it is; `code` stays code.

    Otherwise a name in a file from somebody else could make the page fetch a picture from the
    network.
    """
    def shown(match: re.Match[str]) -> str:
        found = match[0]
        return found if len(found) > 1 else " " if found == "\n" else f"\\{found}"

    return _SPECIAL.sub(shown, str(text))


__all__ = ["literal"]
