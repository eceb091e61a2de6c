"""Is a file either whole or not there, and is everything unreadable a clear error?"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from disk import FULL, names

from latentcode.errors import ArtifactError, RunError
from latentcode.files.storage import (
    check_free,
    read_json,
    read_tensors,
    replace_file,
    replace_folder,
    write_json,
    write_tensors,
    write_text,
)

# --- Files ----------------------------------------------------------------------------------------


def test_a_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_text(path, "old ¬ text")
    with replace_file(path) as temporary:
        temporary.write_text("new")
        assert path.read_text(encoding="utf-8") == "old ¬ text"
        assert temporary.parent == tmp_path
    assert path.read_text() == "new"
    assert names(tmp_path) == ["a.txt"]


every_file = pytest.mark.parametrize("write", [
    lambda path: write_text(path, "new"), lambda path: write_json(path, {"new": 1}),
    lambda path: write_tensors(path, {"new": np.zeros(2)})])


@every_file
@pytest.mark.parametrize("function", ["fsync", "replace"])
def test_a_full_disk_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str, write: Callable[[Path], None]
) -> None:
    path = tmp_path / "a.txt"
    write_text(path, "old")
    monkeypatch.setattr(os, function, Mock(side_effect=FULL))
    with pytest.raises(ArtifactError, match=r"cannot write .*a\.txt.*No space left"):
        write(path)
    assert path.read_text() == "old"
    assert names(tmp_path) == ["a.txt"]


def test_a_file_is_on_disk_before_it_takes_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []

    def recorded(name: str) -> Callable[..., None]:
        function = getattr(os, name)

        def call(*arguments: Any) -> None:
            events.append(name)
            function(*arguments)

        return call

    for name in ("fsync", "replace"):
        monkeypatch.setattr(os, name, recorded(name))
    write_text(tmp_path / "a.txt", "x")
    assert events == ["fsync", "replace", "fsync"]


@every_file
@pytest.mark.parametrize("where", ["missing/a", "file/a"])
def test_a_place_that_cannot_be_written_is_an_artifact_error(
    tmp_path: Path, write: Callable[[Path], None], where: str
) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(ArtifactError, match=f"cannot write .*{where}"):
        write(tmp_path / where)
    assert names(tmp_path) == ["file"]


@pytest.mark.parametrize(
    "content", [b"", b"{", b"{'a': 1}", b"\xff\xfe", b"[" * 100_000, b'"\\uDC00"'])
def test_unreadable_json_is_an_artifact_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(content)
    with pytest.raises(ArtifactError, match=r"a\.json is not readable JSON"):
        read_json(path)


def test_missing_files_are_artifact_errors(tmp_path: Path) -> None:
    for read, name in ((read_json, "a.json"), (read_tensors, "a.safetensors"), (read_json, "")):
        with pytest.raises(ArtifactError, match=re.escape(str(tmp_path / name))):
            read(tmp_path / name)


# --- Tensors --------------------------------------------------------------------------------------


def test_tensors_round_trip_however_they_lie_in_memory(tmp_path: Path) -> None:
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    tensors: dict[str, np.ndarray] = {
        "plain": x, "transposed": x.T, "strided": x[:, ::2, 1:], "reversed": x[::-1],
        "fortran": np.asfortranarray(x), "broadcast": np.broadcast_to(x[0], (5, 3, 4)),
        "scalar": np.array(3.5), "empty": np.zeros((0, 4)), "bool": x > 3,
        "bytes": np.arange(5, dtype=np.uint8), "int64": np.array([-(2**62)]),
        "big_endian": x.astype(">f4"), "half": x.astype(np.float16)}
    write_tensors(tmp_path / "t.safetensors", tensors)
    found = read_tensors(tmp_path / "t.safetensors")
    assert found.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert found[name].shape == tensor.shape, name
        assert found[name].dtype == tensor.dtype.newbyteorder("="), name
        np.testing.assert_array_equal(found[name], tensor, err_msg=name)


def test_every_truncation_is_an_artifact_error(tmp_path: Path) -> None:
    path = tmp_path / "t.safetensors"
    write_tensors(path, {"a": np.arange(6.0), "b": np.zeros((2, 2), dtype=np.float32)})
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(ArtifactError, match=r"t\.safetensors"):
            read_tensors(path)


# --- Folders --------------------------------------------------------------------------------------


def write_folder(path: Path, text: str, overwrite: bool = False) -> None:
    with replace_folder(path, overwrite=overwrite, marker="meta.json") as temporary:
        (temporary / "meta.json").write_text(text)
        (temporary / "inner").mkdir()
        (temporary / "inner" / "data").write_text(text)


def contents(path: Path) -> list[str]:
    return [(path / "meta.json").read_text(), (path / "inner" / "data").read_text()]


def test_a_folder_of_ours_is_replaced_on_request_alone(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "run"
    path.mkdir(parents=True)  # an empty one may be used
    write_folder(path, "old")
    with pytest.raises(RunError, match="run exists already"):
        write_folder(path, "new")
    assert contents(path) == ["old", "old"]
    write_folder(path, "new", overwrite=True)
    assert contents(path) == ["new", "new"]
    (path.parent / "link").symlink_to("run")
    write_folder(path.parent / "link", "newer", overwrite=True)
    assert contents(path) == ["newer", "newer"]
    assert (path.parent / "link").is_symlink()
    assert names(path.parent) == ["link", "run"]


@pytest.mark.parametrize("place", ["dangling", "circle", "dangling/run", "circle/a/b", "n" * 240,
                                   f"new/{'n' * 256}/run"])
def test_a_place_that_cannot_be_is_refused_before_any_work(tmp_path: Path, place: str) -> None:
    for name, target in (("dangling", "nowhere"), ("circle", "circle")):
        (tmp_path / name).symlink_to(target)
    with pytest.raises(RunError, match=r"is a link to|name too long"):
        check_free(tmp_path / place, overwrite=True, marker="meta.json")
    assert names(tmp_path) == ["circle", "dangling"]


@pytest.mark.parametrize("kind", ["folder", "file", "marker is a folder"])
def test_what_is_not_ours_is_never_overwritten(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "thesis"
    if kind == "file":
        path.write_text("precious")
    else:
        path.mkdir()
        (path / "chapter").write_text("precious")
        if kind == "marker is a folder":
            (path / "meta.json").mkdir()
    message = r"thesis exists already and is not one of ours \(no meta\.json\)"
    with pytest.raises(RunError, match=message):
        write_folder(path, "new", overwrite=True)
    assert (path if kind == "file" else path / "chapter").read_text() == "precious"
    assert names(tmp_path) == ["thesis"]


@pytest.mark.parametrize("kind", ["file", "folder"])
@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, OSError])
def test_an_error_in_the_middle_changes_nothing(
    tmp_path: Path, error: type[BaseException], old: bool, kind: str
) -> None:
    path = tmp_path / "run"

    def write_half() -> None:
        if kind == "file":
            with replace_file(path) as temporary:
                temporary.write_text("half")
                raise error("in the middle")
        with replace_folder(path, overwrite=True, marker="meta.json") as temporary:
            (temporary / "meta.json").write_text("half")
            raise error("in the middle")

    if old:
        (write_text if kind == "file" else write_folder)(path, "old")
    with pytest.raises(ArtifactError if error is OSError else error, match="in the middle"):
        write_half()
    assert names(tmp_path) == (["run"] if old else [])
    if old:
        assert (path.read_text() == "old" if kind == "file" else contents(path) == ["old", "old"])


@pytest.mark.parametrize("failure", [FULL, KeyboardInterrupt])
@pytest.mark.parametrize("at", [1, 2])
def test_a_failure_at_either_rename_keeps_the_old_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: BaseException, at: int
) -> None:
    path = tmp_path / "run"
    write_folder(path, "old")
    rename, calls = os.rename, []

    def failing(source: Path, target: Path) -> None:
        calls.append(source)
        if len(calls) == at:
            raise failure
        rename(source, target)

    monkeypatch.setattr(os, "rename", failing)
    with pytest.raises((ArtifactError, KeyboardInterrupt)):
        write_folder(path, "new", overwrite=True)
    assert contents(path) == ["old", "old"]
    assert names(tmp_path) == ["run"]
