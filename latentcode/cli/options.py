"""Annotations that commands share."""

from __future__ import annotations

from typing import Any, Literal

import tyro

Split = Literal["train", "test", "ood", "unknown"]


def default_is(text: str) -> Any:
    """Say in `--help` what an option that is left out means, where its default does not tell."""
    return tyro.conf.arg(help_behavior_hint=f"(default: {text})")
