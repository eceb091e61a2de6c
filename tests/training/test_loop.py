"""What a training run does, and what stops it."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from latentcode.config import RunConfig
from latentcode.devices import make_generator
from latentcode.errors import ConfigError, TrainingError
from latentcode.models.transformer import HookedTransformer
from latentcode.runs import Run
from latentcode.tasks import Batch, make_task
from latentcode.tasks.logic.task import FuzzyLogic
from latentcode.training import train, train_ensemble, training_step
from latentcode.training.state import CHUNK, TrainingBatches, TrainingState

Make = Callable[..., RunConfig]
Meddle = Callable[[int, Callable[[Tensor], Tensor]], AbstractContextManager[None]]


def test_records_what_was_asked_for(tiny: Make, tmp_path: Path) -> None:
    run = train(tiny(eval_instances=20), tmp_path / "run", progress=False)
    metrics = run.metrics()
    steps_of = metrics.groupby("metric")["step"].agg(lambda s: sorted(set(s)))
    assert steps_of["training_loss"] == [4, 8, 12]
    assert steps_of["loss"] == steps_of["r2"] == [0, 5, 10, 12]
    evaluated = metrics[metrics.metric == "r2"]
    assert set(evaluated.split) == set(make_task(run.config.task).splits)
    assert "ood" in set(evaluated.split)
    assert (evaluated.n == 20).all()
    assert (metrics[metrics.metric == "training_loss"].n == 4).all()
    assert metrics[["mean", "se"]].notna().all().all()
    assert run.checkpoints() == [10, 12]
    assert run.is_complete
    events = [json.loads(line) for line in (run.path / "timing.jsonl").read_text().splitlines()]
    assert [e["step"] for e in events if e["event"] == "checkpoint"] == [0, 5, 10, 12]
    assert "seconds" not in (run.path / "metrics.jsonl").read_text()


def test_step_0_is_the_untrained_model_and_the_first_update_changes_nothing(
    tiny: Make, tmp_path: Path
) -> None:
    config = tiny(steps=5, warmup_steps=1, checkpoint_every=1, keep_checkpoints=None, seed=7)
    run = train(config, tmp_path / "run", progress=False)
    assert run.checkpoints() == [0, 1, 2, 3, 4, 5]
    start = HookedTransformer(config.model, seed=7).state_dict()
    states = [run.load_model(step).state_dict() for step in (0, 1, 2)]
    for name, tensor in start.items():
        assert torch.equal(states[0][name], tensor)
        assert torch.equal(states[1][name], tensor)  # learning rate 0
    assert not torch.equal(states[2]["embed.W_E"], start["embed.W_E"])


def test_training_lowers_the_loss(tiny: Make, tmp_path: Path) -> None:
    config = tiny(steps=80, batch_size=64, log_every=10, eval_every=80, eval_instances=400,
                  checkpoint_every=80)
    table = train(config, tmp_path / "run", progress=False).metrics()
    for split in ("train", "test", "ood"):
        loss = table[(table.metric == "loss") & (table.split == split)]["mean"].to_numpy()
        assert loss[-1] < 0.5 * loss[0]


def test_training_and_test_streams_differ(tiny: Make) -> None:
    """Unlike in the official code, whose SRAVEN test batches are its training batches."""
    task = make_task(tiny().task)
    streams = [task.sample(split, 64, make_generator(0, f"evaluate {split}", "cpu")).inputs
               for split in ("train", "test", "ood")]
    streams.append(TrainingBatches(task, 0, 64, torch.device("cpu"))[0].inputs)
    rows = torch.cat(streams).flatten(1)
    assert len(torch.unique(rows, dim=0)) == len(rows) == 4 * 64


def test_the_batch_of_a_step_depends_on_nothing_before_it(tiny: Make) -> None:
    task, cpu = make_task(tiny().task), torch.device("cpu")
    batches = TrainingBatches(task, 0, 8, cpu)
    in_order = [batches[step].inputs.clone() for step in range(2 * CHUNK)]
    for step in (2 * CHUNK - 1, 0, CHUNK + 3):
        assert torch.equal(TrainingBatches(task, 0, 8, cpu)[step].inputs, in_order[step])
    rows = torch.cat(in_order).flatten(1)
    assert len(torch.unique(rows, dim=0)) == len(rows)
    assert not torch.equal(TrainingBatches(task, 1, 8, cpu)[0].inputs, in_order[0])


def test_bf16_trains_much_like_float32(
    tiny: Make, tmp_path: Path, bfloat16: Callable[[bool], None]
) -> None:
    bfloat16(True)
    first = {}
    for precision in ("float32", "bf16"):
        run = train(tiny(precision=precision), tmp_path / precision, progress=False)
        table = run.metrics()
        first[precision] = table[table.metric == "training_loss"]["mean"].iloc[0]
        assert all(p.dtype == torch.float32 for p in run.load_model().parameters())
    assert first["bf16"] != first["float32"]
    assert np.isclose(first["bf16"], first["float32"], rtol=0.1)


@pytest.mark.parametrize("precision", ["bf16", "bf16_mlp"])
def test_bf16_is_refused_where_it_could_only_be_emulated(
    precision: str, tiny: Make, tmp_path: Path, bfloat16: Callable[[bool], None]
) -> None:
    config, told = tiny(precision=precision), f"training.precision is '{precision}', but .*float32"
    bfloat16(False)
    for start in (train, lambda c, out: train_ensemble({out: c}, progress=False)):
        with pytest.raises(ConfigError, match=told):
            start(config, tmp_path / "run")
        assert not (tmp_path / "run").exists()
    # Begun elsewhere, and brought here.
    bfloat16(True)
    run = train(config, tmp_path / "run", progress=False, deadline=0.0)
    bfloat16(False)
    before = {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}
    with pytest.raises(ConfigError, match=told):
        train(config, run.path, resume=True)
    assert before == {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}
    assert run.load_model() is not None  # which computes in float32
    bfloat16(True)
    assert train(config, run.path, resume=True, progress=False).is_complete


@pytest.mark.slow
def test_milestones_are_evaluated_and_stay(tiny: Make, tmp_path: Path) -> None:
    config = tiny(milestones=(2, 5, 7))
    run = train(config, tmp_path / "run", progress=False)
    assert run.checkpoints() == [2, 5, 7, 10, 12]
    metrics = run.metrics()
    evaluated = metrics[metrics["split"] == "test"]["step"].unique().tolist()
    assert evaluated == [0, 2, 5, 7, 10, 12]
    plain = train(tiny(), tmp_path / "plain", progress=False)
    assert plain.checkpoints() == [10, 12]
    for name, weights in run.load_model().state_dict().items():
        assert torch.equal(weights, plain.load_model().state_dict()[name])
    # What is kept survives a resumption and what it clears away.
    shutil.rmtree(run.checkpoint_path(12))
    again = train(config, run.path, resume=True, progress=False)
    assert again.checkpoints() == [2, 5, 7, 10, 12]


def test_gradient_clipping_bounds_the_gradient(tiny: Make, tmp_path: Path) -> None:
    config = tiny()
    norms = []
    for clip in (None, 1e-3):
        state = TrainingState.start(config)
        training_step(state.model, state.task, state.batches[0], state.optimizer, grad_clip=clip,
                      generator=state.generators["dropout"])
        norms.append(torch.nn.utils.get_total_norm(
            [p.grad for p in state.model.parameters() if p.grad is not None]).item())
    assert norms[0] > 1e-2
    assert norms[1] == pytest.approx(1e-3, rel=1e-3)


@pytest.mark.parametrize("step", [1, 3, 5, 7, 12])
@pytest.mark.parametrize(("spoil", "message"), [
    (lambda loss: loss * float("nan"), "the loss is nan at step {};"),
    # Adds 0 with an infinite slope: the loss is right, and the weights after it are not.
    (lambda loss: loss + (loss - loss.detach()).sqrt(), "not finite after step|loss is nan at st"),
], ids=["loss", "weights"])
def test_what_is_not_finite_stops_training_and_is_not_kept(
    tiny: Make, tmp_path: Path, meddle: Meddle, spoil: Callable[[Tensor], Tensor], message: str,
    step: int,
) -> None:
    with (meddle(step, spoil),
          pytest.raises(TrainingError, match=message.format(step)) as error):
        train(tiny(), tmp_path / "run", progress=False)
    run = Run.open(tmp_path / "run")
    last = 5 * ((step - 1) // 5)
    assert run.checkpoints()[-1] == last
    assert f"the last good checkpoint, of step {last}, is {run.checkpoint_path(last)}" in str(
        error.value)
    assert all(torch.isfinite(p).all() for p in run.load_model().parameters())
    assert run.metrics()["mean"].notna().all()


@pytest.mark.parametrize("what", ["inputs", "targets"])
@pytest.mark.parametrize("start", [train, lambda config, out, **options: train_ensemble(
    {out: config}, **options)], ids=["alone", "ensemble"])
def test_a_batch_that_is_not_finite_is_named_as_the_cause(
    tiny: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: Callable[..., Any],
    what: str,
) -> None:
    whole = FuzzyLogic.sample

    def sample(self: FuzzyLogic, split: str, n: int, generator: torch.Generator) -> Batch:
        batch = whole(self, split, n, generator)
        if n == CHUNK * 8:  # drawn for training: batches of 8, of which the 7th gets a NaN
            getattr(batch, what)[6 * 8, 0] = float("nan")
        return batch

    monkeypatch.setattr(FuzzyLogic, "sample", sample)
    with pytest.raises(TrainingError, match=f"step 7, because task 'logic' drew {what} .* step 5"):
        start(tiny(), tmp_path / "run", progress=False)


@pytest.mark.parametrize(("number", "error"), [
    (signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit),
    (signal.SIGHUP, SystemExit)])
def test_a_signal_leaves_a_checkpoint_of_the_present_step(
    tiny: Make, tmp_path: Path, meddle: Meddle, capsys: pytest.CaptureFixture[str],
    number: int, error: type[BaseException],
) -> None:
    before = signal.getsignal(number)

    def interrupt(loss: Tensor) -> Tensor:
        os.kill(os.getpid(), number)
        return loss

    with meddle(7, interrupt), pytest.raises(error) as raised:
        train(tiny(), tmp_path / "run")
    assert Run.open(tmp_path / "run").checkpoints() == [5, 7]
    assert "stopped after step 7 of 12" in capsys.readouterr().err
    assert getattr(raised.value, "code", None) in (None, 128 + number)
    assert signal.getsignal(number) is before


def test_a_signal_that_is_ignored_stays_ignored(
    tiny: Make, tmp_path: Path, meddle: Meddle
) -> None:
    def hang_up(loss: Tensor) -> Tensor:
        os.kill(os.getpid(), signal.SIGHUP)
        return loss

    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as `nohup` does
    try:
        with meddle(7, hang_up):
            assert train(tiny(), tmp_path / "run", progress=False).is_complete
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_second_signal_stops_at_once(
    tiny: Make, tmp_path: Path, meddle: Meddle
) -> None:
    def interrupt_twice(loss: Tensor) -> Tensor:
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGINT)
        return loss

    with meddle(7, interrupt_twice), pytest.raises(KeyboardInterrupt):
        train(tiny(), tmp_path / "run", progress=False)
    assert Run.open(tmp_path / "run").checkpoints() == [0, 5]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("device", ["cuda", "cuda:1"])
def test_cuda_without_a_gpu_is_refused_before_anything_is_written(
    tiny: Make, tmp_path: Path, device: str
) -> None:
    with pytest.raises(ConfigError, match=f"device is '{device}', but torch .* no CUDA device"):
        train(tiny(device=device), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("bad", [
    {"loggers": ("mlflow",)}, {"resume": True, "overwrite": True}])
def test_bad_requests_leave_an_existing_run_alone(
    tiny: Make, tmp_path: Path, bad: dict[str, Any]
) -> None:
    run = train(tiny(), tmp_path / "run", progress=False)
    with pytest.raises(ConfigError):
        train(tiny(), run.path, **{"overwrite": True, **bad})
    assert Run.open(run.path).id == run.id


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_trains_and_resumes_on_a_gpu(tiny: Make, tmp_path: Path) -> None:
    config = tiny(device="cuda", precision="bf16")
    run = train(config, tmp_path / "run", progress=False)
    train(config, run.path, resume=True, progress=False)
    assert np.isfinite(run.latest()["ood"].to_numpy()).any()
