"""Extraction to a folder: interrupted, killed, out of disk, and gone on with byte for byte."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
import pytest
from disk import contents, fails, flip, names, needs_proc
from places import environment
from small_extraction import PAIRS, N, interrupt_at, make_small, reader

from latentcode.codes import resume
from latentcode.errors import ArtifactError, RunError
from latentcode.files import storage
from latentcode.files.storage import create_tensors, map_tensors, write_instances


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    make_small(monkeypatch)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of an extraction that nothing interrupted."""
    with pytest.MonkeyPatch.context() as patch:
        make_small(patch)
        folder = tmp_path_factory.mktemp("whole") / "codes"
        reader().read(folder)
        return contents(folder)


# --- Interruptions --------------------------------------------------------------------------------


@pytest.mark.parametrize(("at", "kept"), [(16, 0), (17, 16), (N, 32)])
def test_interrupted_and_gone_on_with(
    tmp_path: Path, whole: dict[str, bytes], at: int, kept: int
) -> None:
    out, seen = tmp_path / "codes", []
    with pytest.raises(KeyboardInterrupt) as raised:
        reader().read(out, progress=interrupt_at(at))
    notes = getattr(raised.value, "__notes__", [])
    assert names(tmp_path) == (["codes.partial"] if kept else [])
    assert notes == ([f"the first {kept} of {N} instances are kept in {out}.partial; the same "
                      "extraction goes on from there"] if kept else [])
    reader().read(out, progress=lambda done, total: seen.append(done))
    assert seen[0] == kept + 5
    assert seen[-1] == N
    assert contents(out) == whole
    assert names(tmp_path) == ["codes"]


@pytest.mark.slow
def test_a_kill_at_any_moment_costs_no_more_than_a_shard(
    tmp_path: Path, whole: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is on disk when a file is flushed, renamed or half-written can be gone on from."""
    work, moments = tmp_path / "work", {}
    work.mkdir()

    def remembering(real: Callable[..., Any]) -> Callable[..., Any]:
        def spy(*args: Any, **options: Any) -> Any:
            found = tuple(contents(work).items())
            if found not in moments:
                moments[found] = Path(shutil.copytree(work, tmp_path / f"moment{len(moments)}"))
            return real(*args, **options)
        return spy

    with monkeypatch.context() as patch:
        for module, name in ((os, "fsync"), (os, "replace"), (os, "rename"),
                             (os, "posix_fallocate"), (shutil, "rmtree"),
                             (resume, "write_instances")):
            patch.setattr(module, name, remembering(getattr(module, name)))
        reader().read(work / "codes")
    assert len(moments) >= 25
    finished = set()
    for moment in moments.values():
        state = moment / "codes.partial" / "extraction.json"
        seen: list[int] = []
        reader().read(moment / "codes", overwrite=(moment / "codes").exists(),
                           progress=lambda done, total, seen=seen: seen.append(done))
        assert contents(moment / "codes") == whole
        assert [n for n in names(moment) if not n.startswith(".tmp-")] == ["codes"]
        finished.add(min(seen, default=None))
        assert not state.exists()
    assert {5, 16 + 5, 32 + 5, None} <= finished


@pytest.mark.slow
def test_a_killed_process_leaves_what_another_goes_on_from(
    tmp_path: Path, whole: dict[str, bytes]
) -> None:
    code = f"""
import os, pathlib, signal
import pytest
from small_extraction import make_small, reader
make_small(pytest.MonkeyPatch())
reader().read(pathlib.Path({str(tmp_path / "codes")!r}), progress=lambda done, total:
                   done > 32 and os.kill(os.getpid(), signal.SIGKILL))
"""
    killed = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True,
                            env=environment(OMP_NUM_THREADS="1"))
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    assert names(tmp_path) == ["codes.partial"]
    seen: list[int] = []
    reader().read(tmp_path / "codes", progress=lambda done, total: seen.append(done))
    assert seen[0] == 32 + 5
    assert contents(tmp_path / "codes") == whole


@pytest.fixture
def unfinished(tmp_path: Path) -> Path:
    """The folder of an extraction that was interrupted in its third shard."""
    with pytest.raises(KeyboardInterrupt):
        reader().read(tmp_path / "codes", progress=interrupt_at(40))
    return tmp_path / "codes.partial"


@pytest.mark.parametrize(("change", "message"), [
    ({"n": N + 1}, f"n: {N} there, {N + 1} asked for"),
    ({"batch_size": 6}, "batch_size: 5 there, 6 asked for"),
    ({"pairs": PAIRS[:1]}, "pairs: "),
    ({"seed": 1}, "weights: "),
    ({"meta": {"run": "b"}}, "run: 'a' there, 'b' asked for"),
    ({"meta": {"run": "a", "step": 3}}, "step: None there, 3 asked for"),
])
def test_unfinished_work_of_other_settings_is_kept(
    unfinished: Path, change: dict[str, Any], message: str
) -> None:
    before = contents(unfinished)
    out = unfinished.with_name("codes")
    with pytest.raises(RunError, match=f"unfinished extraction with other settings .*{message}"):
        reader(**change).read(out)
    assert contents(unfinished) == before


def test_unfinished_work_is_replaced_on_request(unfinished: Path) -> None:
    out = unfinished.with_name("codes")
    reader(seed=1).read(out, overwrite=True)
    reader(seed=1).read(out.with_name("fresh"))
    assert contents(out) == contents(out.with_name("fresh"))
    assert not unfinished.exists()


def test_unfinished_work_that_was_damaged_is_named(unfinished: Path) -> None:
    out, before = unfinished.with_name("codes"), contents(unfinished)
    header = 8 + int.from_bytes(before["codes/codes.safetensors"][:8], "little")
    for file, place, name in (
        ("codes/codes.safetensors", header, r"codes\.safetensors"),  # of the first instance
        ("codes/codes.safetensors", header + 4 * 2 * 31, r"codes\.safetensors"),  # of the 32nd
        ("labels-00001.parquet", 60, r"labels-00001\.parquet"),
    ):
        flip(unfinished / file, place)
        with pytest.raises(ArtifactError, match=rf"{name} was damaged or changed after the extra"):
            reader().read(out)
        flip(unfinished / file, place)
    (unfinished / "labels-00000.parquet").unlink()
    with pytest.raises(ArtifactError, match=r"labels-00000\.parquet is missing"):
        reader().read(out)
    (unfinished / "labels-00000.parquet").write_bytes(before["labels-00000.parquet"])
    for state in ("", "[]", "{}", '{"settings": {}, "finished": 5}'):
        (unfinished / "extraction.json").write_text(state)
        with pytest.raises(ArtifactError, match=r"extraction\.json"):
            reader().read(out)
    (unfinished / "extraction.json").write_bytes(before["extraction.json"])
    assert contents(unfinished) == before
    reader().read(out)


def test_rows_after_the_finished_shards_do_not_count(
    unfinished: Path, whole: dict[str, bytes]
) -> None:
    path = unfinished / "codes" / "codes.safetensors"
    length = int.from_bytes(path.read_bytes()[:8], "little")
    flip(path, 8 + length + 4 * 2 * 33)  # the 34th instance, which is computed anew
    reader().read(unfinished.with_name("codes"))
    assert contents(unfinished.with_name("codes")) == whole


def test_a_foreign_folder_of_that_name_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "codes.partial").mkdir()
    (tmp_path / "codes.partial" / "thesis.tex").write_text("dear")
    for overwrite in (False, True):
        with pytest.raises(RunError, match=r"codes\.partial exists and is not an unfinished extr"):
            reader().read(tmp_path / "codes", overwrite=overwrite)
    assert (tmp_path / "codes.partial" / "thesis.tex").read_text() == "dear"


def test_one_process_at_a_time(tmp_path: Path) -> None:
    def second(done: int, total: int) -> None:
        with pytest.raises(RunError, match=r"codes\.partial is being written by another"):
            reader().read(tmp_path / "codes")

    reader().read(tmp_path / "codes", progress=second)
    assert names(tmp_path) == ["codes"]


# --- Full disks -----------------------------------------------------------------------------------


@needs_proc
@pytest.mark.parametrize(("module", "name", "file", "skip", "kept"), [
    (os, "posix_fallocate", "codes.safetensors", 0, 0),
    (resume, "write_instances", "codes.safetensors", 9, 32),
    (os, "fsync", "codes.safetensors", 1, 16),
    (os, "fsync", "labels-00001.parquet", 0, 16),
    (os, "replace", "extraction.json", 0, 0),
    (pyarrow.parquet, "ParquetWriter", "-labels.parquet", 0, N),
    (os, "fsync", "-labels.parquet", 0, N),
    (os, "fsync", "meta.json", 0, N),
    (os, "rename", "codes.partial/codes", 0, N),
])
def test_a_disk_that_fills(
    tmp_path: Path, whole: dict[str, bytes], module: Any, name: str, file: str, skip: int,
    kept: int,
) -> None:
    out = tmp_path / "codes"
    with (fails(module, name, lambda path: path.endswith(file), skip=skip),
          pytest.raises(ArtifactError, match=r"cannot write .*codes.*No space left") as raised):
        reader().read(out)
    assert names(tmp_path) == (["codes.partial"] if kept else [])
    assert bool(getattr(raised.value, "__notes__", [])) == bool(kept)
    seen: list[int] = []
    reader().read(out, progress=lambda done, total: seen.append(done))
    assert min(seen, default=N) == (kept + 5 if kept < N else N)
    assert contents(out) == whole


def test_room_is_made_at_the_beginning(tmp_path: Path) -> None:
    """A disk that is too small is found out before the work, not by it."""
    file = tmp_path / "t.safetensors"
    create_tensors(file, {"scores": (2, 1, 100_000, 4)})
    status = file.stat()
    assert status.st_blocks * 512 >= 2 * 100_000 * 4 * 4
    assert map_tensors(file)["scores"].shape == (2, 1, 100_000, 4)


def test_file_systems_that_cannot_reserve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsupported(*_: Any) -> None:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    monkeypatch.setattr(storage.os, "posix_fallocate", unsupported)
    file = tmp_path / "t.safetensors"
    create_tensors(file, {"a": (1, 2, 3, 4), "b": (2, 1, 0, 5)})
    write_instances(file, "a", 1, np.ones((1, 2, 2, 4)))
    found = map_tensors(file)
    np.testing.assert_array_equal(found["a"][:, :, 1:], 1.0)
    np.testing.assert_array_equal(found["a"][:, :, 0], 0.0)
    assert found["b"].shape == (2, 1, 0, 5)
