"""Where the checkout and the golden files are, wherever a test lies."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HELPERS = ROOT / "tests" / "helpers"
GOLDEN = ROOT / "tests" / "golden"
OFFICIAL = GOLDEN / "official"
EXAMPLE = ROOT / "experiments" / "examples" / "modadd.py"
"""A task of one's own."""


def environment(**variables: str) -> dict[str, str]:
    """Return the environment of a process that finds the checkout and the helpers."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(HELPERS)]), **variables}
