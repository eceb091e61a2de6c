"""The folder where what can be computed again is kept: codes of published models, projections."""

from __future__ import annotations

import os
import sys
from pathlib import Path

VARIABLE = "LATENTCODE_CACHE"
"""Environment variable with the folder of the cache."""


def default_cache() -> Path:
    """Return the folder LATENTCODE_CACHE, or `latentcode` in the user's own cache folder."""
    chosen = os.environ.get(VARIABLE)
    if chosen:
        return Path(chosen).expanduser()
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData/Local") / "latentcode"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "latentcode"
