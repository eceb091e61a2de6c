"""Which probes are registered, and what is known of each?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from latentcode.registry import Registry


@dataclass(frozen=True)
class Probe:
    """One probe: a function of points, and what is said of what it returns.

    name      the word of its question and of its command
    function  of the points, or of those to fit and those to score, and its options
    options   its keyword-only arguments but `seed`, with their defaults
    fitted    whether it takes two sets of points
    seeded    whether it takes the question's `seed`
    features  what it is asked of where nothing else is named
    columns   the scores that it gives each problem
    figure    draws a result on axes; None: the picture that all probes have
    sentence  says what a result found, before its contrasts; None: nothing
    """

    name: str
    function: Callable[..., Any]
    options: Mapping[str, Any]
    fitted: bool
    seeded: bool
    features: tuple[str, ...]
    columns: tuple[str, ...]
    figure: Callable[..., Any] | None
    sentence: Callable[..., Any] | None

    @property
    def asks(self) -> str:
        """Its question, the first line of its docstring."""
        return str(self.function.__doc__).strip().partition("\n")[0]


@dataclass(frozen=True)
class Registered:
    """A probe, and the question that it became: `question(model, problems, ...)`."""

    probe: Probe
    question: Callable[..., Any]


PROBES: Registry[Registered] = Registry("probe", "lc.register_probe", {})
"""By name: those of users, and of the library's those that were used here."""
