"""Codes on their way to the disk: written as they come, and resumed after an interruption.

An extraction to the folder `out` works in `out.partial`:

    extraction.json          the settings, and the checksums of what is finished
    codes/codes.safetensors  the arrays of all instances, reserved at the beginning
    labels-00000.parquet     the labels of the first SHARD instances, and so on

At the end the labels are joined, and `codes` takes the name `out`. Memory holds the labels of one
shard and what is being written, however many instances there are.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from latentcode.codes.latent_codes import (
    LABELS,
    META,
    SHARD,
    TENSORS,
    LatentCodes,
    as_table,
    write_labels,
    write_meta,
)
from latentcode.errors import ArtifactError, RunError, check
from latentcode.files.storage import (
    TEMPORARY,
    check_free,
    checksum,
    create_tensors,
    exclusive,
    followed,
    fsync_path,
    install_folder,
    map_tensors,
    read_json,
    write_instances,
    write_json,
)
from latentcode.tasks.pairs import Pair

STATE, LOCK = "extraction.json", ".lock"


@contextmanager
def partial_codes(
    out: Path, shapes: Mapping[str, tuple[int, ...]], settings: Mapping[str, Any], *,
    overwrite: bool = False,
) -> Iterator[PartialCodes]:
    """Begin to write the codes folder `out`, or go on where an interruption left off.

    shapes    of the arrays, each [layer, pair or query, instance, component]
    settings  all that the numbers depend on, as JSON; to go on they must be the same

    Whatever stops the work, finished shards stay. `RunError` when `out` exists and is not to be
    overwritten, when another process writes it, or when unfinished work has other settings (with
    `overwrite` it is thrown away); `ArtifactError` for unfinished work that was damaged, and when
    the disk is full.
    """
    check_free(out, overwrite=overwrite, marker=META)
    target = followed(out)  # beside which there is room for a whole folder
    folder = target.with_name(f"{target.name}.partial")
    with _as_artifact_error(out):
        folder.mkdir(parents=True, exist_ok=True)
    with exclusive(folder / LOCK):
        work = PartialCodes(out, folder, shapes, json.loads(json.dumps(settings)))
        work.find_finished(discard=overwrite)
        try:
            with _as_artifact_error(out):
                if not work.finished:
                    work.begin()
                yield work
        except BaseException as error:
            if work.finished:
                error.add_note(f"the first {work.n_done:,} of {work.n:,} instances are kept in "
                               f"{folder}; the same extraction goes on from there")
            else:
                shutil.rmtree(folder, ignore_errors=True)
            raise


@contextmanager
def _as_artifact_error(out: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ArtifactError(f"cannot write {out}: {error}") from error


class PartialCodes:
    """A codes folder of which some instances are still missing; made by `partial_codes`.

    finished  for each shard that is on disk, the SHA-256 of its labels and of its rows
    """

    def __init__(
        self, out: Path, folder: Path, shapes: Mapping[str, tuple[int, ...]],
        settings: Mapping[str, Any],
    ) -> None:
        self.out, self.folder, self.settings = out, folder, settings
        self.tensors, self.shapes = folder / "codes" / TENSORS, shapes
        self.n = shapes["scores"][2]
        self.finished: list[dict[str, str]] = []
        self._tables: list[pd.DataFrame] = []

    @property
    def n_done(self) -> int:
        """Instances that are on disk for good."""
        return min(len(self.finished) * SHARD, self.n)

    def find_finished(self, *, discard: bool) -> None:
        """Look up what is finished; `discard` passes over the work of other settings."""
        state_file = self.folder / STATE
        if all(entry.name == LOCK or entry.name.startswith(TEMPORARY)
               for entry in self.folder.iterdir()):
            return
        check(state_file.is_file(), f"{self.folder} exists and is not an unfinished extraction (no "
              f"{STATE}); expected that name to be free", RunError)
        state = read_json(state_file)
        known = isinstance(state, dict) and {k: type(v) for k, v in state.items()} == {
            "settings": dict, "finished": list}
        check(known, f"{state_file} does not describe an unfinished extraction; delete "
              f"{self.folder} to start again", ArtifactError)
        before, now = state["settings"], self.settings
        different = [f"{key}: {before.get(key)!r} there, {now.get(key)!r} asked for"
                     for key in {**before, **now} if before.get(key) != now.get(key)]
        check(discard or not different, f"{self.folder} holds an unfinished extraction with other "
              f"settings ({'; '.join(different)}); finish it with its own, delete it, or "
              "overwrite it (--overwrite, overwrite=True)", RunError)
        if not different and self.tensors.is_file():
            self.finished = state["finished"]
            for index, recorded in enumerate(self.finished):
                start, part = index * SHARD, self._part(index)
                rows = self._digest(start, min(SHARD, self.n - start))
                for file, same in ((part, recorded.get("labels") == checksum(part)),
                                   (self.tensors, recorded.get("rows") == rows)):
                    check(same, f"{file} was damaged or changed after the extraction was "
                          f"interrupted; delete {self.folder} to start again", ArtifactError)

    def begin(self) -> None:
        """Make room for all instances, in place of what an interruption may have left."""
        self._record()
        shutil.rmtree(self.tensors.parent, ignore_errors=True)
        self.tensors.parent.mkdir()
        create_tensors(self.tensors, self.shapes)

    def write(self, name: str, start: int, values: np.ndarray) -> None:
        """Put the values [A, B, m, C] of an array at its instances start to start + m - 1."""
        write_instances(self.tensors, name, start, values)

    def add(self, labels: pd.DataFrame) -> None:
        """Add the labels of the next instances, whose values have all been written."""
        self._tables.append(labels)
        n_waiting = sum(map(len, self._tables))
        if n_waiting < min(SHARD, self.n - self.n_done):
            return
        part = self._part(len(self.finished))
        write_labels(part, [as_table(pd.concat(self._tables, ignore_index=True))])
        fsync_path(self.tensors)
        self._tables = []
        self.finished.append({"labels": checksum(part), "rows": self._digest(self.n_done,
                                                                             n_waiting)})
        self._record()

    def finish(
        self, pairs: Sequence[Pair], layers: Sequence[int], query_of_pair: Sequence[int],
        meta: Mapping[str, Any],
    ) -> LatentCodes:
        """Give all that was written the name `out`, complete with its description, and open it."""
        from pyarrow.parquet import read_table

        target = self.tensors.parent
        for stray in target.glob(f"{TEMPORARY}*"):  # of an earlier attempt that was killed
            stray.unlink()
        write_labels(target / LABELS, (
            read_table(self._part(index)) for index in range(len(self.finished))))
        write_meta(target, pairs, layers, query_of_pair, meta)
        install_folder(target, self.out)
        shutil.rmtree(self.folder, ignore_errors=True)
        return LatentCodes.load(self.out, verify=False)

    def _part(self, index: int) -> Path:
        return self.folder / f"labels-{index:05d}.parquet"

    def _record(self) -> None:
        write_json(self.folder / STATE, {"settings": self.settings, "finished": self.finished})

    def _digest(self, start: int, n: int) -> str:
        """Return the SHA-256 of n instances of all arrays as they lie on disk."""
        digest = hashlib.sha256()
        for array in map_tensors(self.tensors).values():
            for plane in array.reshape(-1, *array.shape[2:]):
                digest.update(plane[start:start + n])
        return digest.hexdigest()
