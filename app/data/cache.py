"""What is kept, in memory or in the cache folder, is known by what it was made from."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from latentcode.probes.projection.cache import default_cache
from latentcode.runs import Run


def stamp(folder: Path) -> tuple[tuple[str, int, int, int], ...]:
    """Return a value that changes when a file of a folder is replaced; empty without the folder."""
    if not folder.is_dir():
        return ()
    files = [(entry.name, entry.stat(follow_symlinks=False)) for entry in os.scandir(folder)]
    return tuple(sorted((name, s.st_mtime_ns, s.st_size, s.st_ino) for name, s in files))


def cache_folder(kind: str, run: Run, **described: Any) -> Path:
    """Return the folder of the cache for something made from the newest weights of a run."""
    known = {"run": run.id, "config": run.provenance["config_hash"], "steps": run.checkpoints(),
             **described}
    digest = hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()
    return default_cache() / kind / digest[:24]


__all__ = ["cache_folder", "stamp"]
