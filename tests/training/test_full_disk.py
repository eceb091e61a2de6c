"""Does a full disk or a read-only folder end in a clear error, with the last good state intact?"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.numpy
from disk import FULL, fails, needs_proc, trained

from latentcode.config import RunConfig
from latentcode.errors import ArtifactError, LatentCodeError, RunError
from latentcode.runs import Run
from latentcode.training import train

Make = Callable[..., RunConfig]


def in_checkpoint(step: int, file: str) -> Callable[[str], bool]:
    return lambda path: f"step_{step:07d}" in path and path.endswith(file)


@needs_proc
@pytest.mark.parametrize(("module", "name", "file"), [
    (safetensors.numpy, "save_file", "model.safetensors"),
    (safetensors.numpy, "save_file", "rng.safetensors"),
    (os, "fsync", "optimizer.safetensors"),
    (os, "fsync", "state.json"),
    (os, "replace", "model.safetensors"),
    (os, "rename", "step_0000010"),
    (os, "mkdir", "step_0000010"),
])
def test_a_disk_that_fills_during_a_checkpoint(
    tiny: Make, tmp_path: Path, module: Any, name: str, file: str
) -> None:
    config = tiny()
    with (fails(module, name, in_checkpoint(10, file),
                argument=int(name == "save_file")),
          pytest.raises(ArtifactError, match=r"cannot write .*step_0000010.*No space left")):
        train(config, tmp_path / "run", progress=False)
    run = Run.open(tmp_path / "run")
    assert run.checkpoints() == [0, 5]
    run.load_model()
    assert list(run.path.rglob(".tmp-*")) == []
    train(config, run.path, resume=True, progress=False)
    whole = train(config, tmp_path / "whole", progress=False)
    assert trained(run.path) == trained(whole.path)


@needs_proc
@pytest.mark.parametrize("update", [0, 5, 8])
@pytest.mark.parametrize("torn", [False, True])
def test_a_disk_that_fills_while_metrics_are_written(
    tiny: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, update: int, torn: bool
) -> None:
    """Half of a line reaches the disk; it is taken back, where that is possible."""
    config, real = tiny(), os.fsync

    def full(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").resolve()
        if path.name == "metrics.jsonl" and f'"step": {update},' in path.read_text():
            os.ftruncate(descriptor, path.stat().st_size - 30)
            raise FULL
        real(descriptor)

    def cannot(*_: Any) -> None:
        raise FULL

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        if torn:
            patch.setattr(os, "truncate", cannot)
        with pytest.raises(ArtifactError, match=r"cannot write .*run/metrics\.jsonl: .*No space"):
            train(config, tmp_path / "run", progress=False)
    run = Run.open(tmp_path / "run")
    assert run.checkpoints() == [step for step in (0, 5) if step < update]
    assert (run.path / "metrics.jsonl").read_text().endswith("\n") or torn or update == 0
    assert len(run.metrics().query("step == @update")) == 0 or torn
    train(config, run.path, resume=True, progress=False)
    whole = train(config, tmp_path / "whole", progress=False)
    assert trained(run.path) == trained(whole.path)


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES, errno.EPERM])
def test_a_read_only_folder_is_refused_before_anything_is_made(
    tiny: Make, tmp_path: Path, number: int
) -> None:
    error = OSError(number, os.strerror(number))
    message = f"deep.* cannot be made .*{os.strerror(number)}"
    with (fails(os, "mkdir", lambda p: str(tmp_path) in p, error),
          pytest.raises((ArtifactError, RunError), match=message)):
        train(tiny(), tmp_path / "deep" / "run", progress=False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES])
def test_a_run_that_became_read_only_can_be_read_but_not_resumed(
    tiny: Make, tmp_path: Path, number: int
) -> None:
    config = tiny()
    run = train(config, tmp_path / "run", progress=False)
    before = {p: p.read_bytes() for p in run.path.rglob("*") if p.is_file()}
    real = os.open

    def read_only(path: Any, flags: int, *rest: Any, **options: Any) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) and str(run.path) in str(path):
            raise OSError(number, os.strerror(number), str(path))
        return real(path, flags, *rest, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "open", read_only)
        again = Run.open(run.path)
        again.load_model()
        assert len(again.metrics()) > 0
        for attempt in ({"resume": True}, {"overwrite": True}):
            with pytest.raises(LatentCodeError, match=f"run cannot be written: .*"
                                                      f"{os.strerror(number)}"):
                train(config, run.path, progress=False, **attempt)  # type: ignore[arg-type]
    assert {p: p.read_bytes() for p in run.path.rglob("*") if p.is_file()} == before
