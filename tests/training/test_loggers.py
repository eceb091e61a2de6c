"""TensorBoard and W&B get the same numbers as `metrics.jsonl`."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest
from torch import Tensor

from latentcode.config import RunConfig
from latentcode.metrics import is_by_constituent
from latentcode.training import train

Make = Callable[..., RunConfig]
Meddle = Callable[[int, Callable[[Tensor], Tensor]], AbstractContextManager[None]]


def crash(loss: Tensor) -> Tensor:
    raise ZeroDivisionError


def test_libraries_are_imported_only_on_request(
    tiny: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("tensorboard", "torch.utils.tensorboard", "wandb"):
        monkeypatch.setitem(sys.modules, name, None)  # importing it raises
    train(tiny(), tmp_path / "run", progress=False)


@pytest.mark.slow
@pytest.mark.skipif(find_spec("tensorboard") is None, reason="needs tensorboard")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorboard_holds_the_metrics_also_after_a_crash(
    tiny: Make, tmp_path: Path, meddle: Meddle
) -> None:
    # The loss of step 8 is logged, lost with the crash, and logged again.
    with meddle(9, crash), pytest.raises(ZeroDivisionError):
        train(tiny(), tmp_path / "run", progress=False, loggers=("tensorboard",))
    run = train(tiny(), tmp_path / "run", resume=True, progress=False, loggers=("tensorboard",))
    reader = import_module("tensorboard.backend.event_processing.event_accumulator")
    events = reader.EventAccumulator(str(run.path / "tensorboard"))
    events.Reload()
    table = run.metrics()
    assert len(table) > 0
    for (split, metric), rows in table.groupby(["split", "metric"]):
        apart = " by constituent" if is_by_constituent(metric) else ""  # a section of its own
        scalars = events.Scalars(f"{split}{apart}/{metric}")
        assert [e.step for e in scalars] == rows["step"].tolist()
        assert [e.value for e in scalars] == pytest.approx(rows["mean"].tolist(), rel=1e-6)


@pytest.mark.slow
@pytest.mark.skipif(find_spec("wandb") is None, reason="needs wandb")
@pytest.mark.filterwarnings("ignore")
def test_wandb_offline_writes_below_the_run(
    tiny: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.chdir(tmp_path)
    run = train(tiny(), tmp_path / "run", progress=False, loggers=("wandb",))
    parts = [b"ood/r2", b"train/training_loss", b"checkpoint_every", run.id.encode()]
    missing, deadline = parts, time.monotonic() + 30
    while missing and time.monotonic() < deadline:  # a process of its own writes the file
        time.sleep(0.1)
        written = list((run.path / "wandb").rglob("*.wandb"))
        missing = [part for part in parts if not any(part in file.read_bytes() for file in written)]
    assert not missing
    assert len(written) == 1
    assert {p.name for p in tmp_path.iterdir()} == {"run"}
