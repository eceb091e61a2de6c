"""Where the checkout and the golden files are, wherever a test lies."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HELPERS = ROOT / "tests" / "helpers"
GOLDEN = ROOT / "tests" / "golden"
OFFICIAL = GOLDEN / "official"
