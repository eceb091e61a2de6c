"""What does the page of a repository say to the hub? The YAML on top of its README.md."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

TAGS = ("latentcode", "attention", "mechanistic-interpretability")


def page(facts: Mapping[str, Any], body: str, *, tags: tuple[str, ...], license: str | None) -> str:
    """Return a page: what the hub reads of it, then Markdown.

    facts    further keys for the hub
    tags     beside `TAGS`
    license  as the hub names it, such as `mit`; None says nothing
    """
    front = {**({} if license is None else {"license": license}), "library_name": "latentcode",
             "tags": list(dict.fromkeys((*TAGS, *tags))), **facts}
    text = yaml.safe_dump(front, sort_keys=False, allow_unicode=True)
    return f"---\n{text}---\n\n{body.strip()}\n"


__all__ = ["page"]
