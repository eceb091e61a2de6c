"""What does the page of a repository say to the hub? The YAML on top of its README.md."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from huggingface_hub import CardData

TAGS = ("latentcode", "attention", "mechanistic-interpretability")


def page(facts: CardData, body: str) -> str:
    """Return a page: what the hub reads of it, then Markdown."""
    return f"---\n{facts.to_yaml()}\n---\n\n{body.strip()}\n"


__all__ = ["TAGS", "page"]
