"""Which language model on which texts was the explorer started with?

Said by the command to the server through its environment. Nothing here imports torch.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from latentcode.errors import check, check_count

VARIABLE = "LATENTCODE_LANGUAGE"
"""Environment variable with what was given, as JSON."""
TEXTS, LONGEST = 1_000, 128
"""Texts that are read, and tokens of each."""
PAIRS = 5_000
"""Pairs of a query and a key whose codes are kept."""


@dataclass(frozen=True)
class Model:
    """A model as it was asked for.

    name      a folder, a name on the hub, also with @revision, or a run on text
    identity  tells its weights from others, without reading them
    """

    name: str
    identity: str

    @property
    def short(self) -> str:
        """What pages call it."""
        return Path(self.name).name if Path(self.name).exists() else self.name


@dataclass(frozen=True)
class Given:
    """What was given.

    texts    the file of texts
    digest   of what it holds
    n        texts that are read at most, the first ones
    longest  tokens of each, longer ones are cut
    """

    model: Model
    texts: str
    digest: str
    n: int = TEXTS
    longest: int = LONGEST

    def to_json(self) -> str:
        """Return it as the server reads it."""
        return json.dumps(asdict(self))


def given() -> Given | None:
    """Return what the server was started with; None where that was no language model."""
    text = os.environ.get(VARIABLE)
    return _read(text) if text else None


@cache
def _read(text: str) -> Given:
    found = json.loads(text)
    return Given(**{**found, "model": Model(**found["model"])})


def check_numbers(models: Sequence[str], n: int, longest: int) -> None:
    """Raise `ConfigError` for numbers that nothing can be shown of."""
    check(len(models) == 1, f"--texts is given with {len(models)} models"
          f"{': ' + ', '.join(models) if models else ''}; expected one language model: "
          "latentcode explore gpt2 --texts texts.txt")
    check_count("--n", n)
    check_count("--longest", longest, 2)
