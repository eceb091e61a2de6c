"""What was computed for a run is kept, so that long work can be interrupted and goes on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

import pandas as pd

from latentcode.files.storage import read_json, replace_folder, write_json
from latentcode.probes.common.results import TableResult
from latentcode.runs import Run


@dataclass(frozen=True)
class Measured:
    """What a question of a study's own found: tables by name, each a Parquet file in a folder."""

    tables: Mapping[str, pd.DataFrame]
    settings: ClassVar[Mapping[str, Any]] = {}
    caveats: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def marker(cls) -> str:
        """Return the name of the file that tells such a folder."""
        return "measured.json"

    def save(self, folder: Path, *, figures: bool = False) -> None:
        """Write the folder, whole or not at all."""
        with replace_folder(folder, overwrite=False, marker=self.marker()) as temporary:
            for name, table in self.tables.items():
                table.to_parquet(temporary / f"{name}.parquet", index=False)
            write_json(temporary / self.marker(), {"tables": list(self.tables)})

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read such a folder."""
        return cls({name: pd.read_parquet(folder / f"{name}.parquet")
                    for name in read_json(folder / cls.marker())["tables"]})


R = TypeVar("R", bound=TableResult | Measured)


def key_of(runs: Sequence[Run], settings: Mapping[str, object]) -> str:
    """Return a few letters that another run, checkpoint or setting would change."""
    text = json.dumps([[(run.id, run.checkpoints()[-1]) for run in runs], dict(settings)])
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def kept(folder: Path, kind: type[R], compute: Callable[[], R]) -> R:
    """Return the result that a folder holds, or compute it and put it there."""
    if not (folder / kind.marker()).exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        compute().save(folder, figures=False)
    found: Any = kind.load(folder)
    return found
