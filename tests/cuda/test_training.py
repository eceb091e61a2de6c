"""Does training ever wait for the device?

Sampling, the forward pass and the update of one model or of an ensemble never do, once the
constants are there.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from fake_cuda import CUDA, ITEM, fake_cuda
from fake_cuda_cases import CONSTANTS, Operators, configure, kinds_and_tasks, without_cuda

from latentcode.config import LogicConfig, SravenConfig, TaskConfig
from latentcode.devices import make_generator
from latentcode.models.config import ModelConfig
from latentcode.models.registering import register_nonlinearity
from latentcode.models.transformer import HookedTransformer
from latentcode.runs.checkpoints import Checkpoint
from latentcode.tasks import Batch, make_counterfactuals, make_task
from latentcode.training import train
from latentcode.training.ensemble import Ensemble
from latentcode.training.loop import make_learner
from latentcode.training.state import TrainingState

pytestmark = without_cuda


def lies_there(batch: Batch) -> bool:
    return all(t.device == CUDA for t in (
        batch.inputs, batch.targets, batch.combination, *batch.info.values()))


@pytest.mark.parametrize("config", [
    *(LogicConfig(n_variables=3, n_examples=6, ood_fraction=0.3, unknown_fraction=0.4,
                  inputs=inputs)
      for inputs in ("uniform", "fixed_context", "fixed_query")),
    *(SravenConfig(n_features=2, n_values=5, permuted=permuted, rule_order=order)
      for permuted, order in ((True, "random"), (False, "sorted")))])
def test_sampling_never_waits(config: TaskConfig) -> None:
    with fake_cuda() as device:
        task = make_task(config)
        for split in task.splits:
            generator = make_generator(0, split, "cuda")
            task.sample(split, 4, generator)
            with device.never_waits():
                assert lies_there(task.sample(split, 4, generator))
        with device.never_waits():
            pairs = make_counterfactuals(task).sample(split, 4, generator)
        assert all(map(lies_there, (pairs.bases, pairs.sources, pairs.control)))
        assert {where for where, _ in device.waits} == {
            "FuzzyLogic._tables" if config.name == "logic" else "Sraven._combinations_on"}


@kinds_and_tasks("softmax-logic", "linear-logic", "hyla_deep-logic", "hyla_moe-logic",
                 "hyla-sraven", all_kinds=True)
def test_an_update_never_waits(kind: str, task: str) -> None:
    with fake_cuda() as device:
        state = TrainingState.start(configure(task, kind))
        with device.counting() as waits:
            state.update()
        assert set(waits) == CONSTANTS[task]
        assert {p.device for p in state.model.parameters()} == {CUDA}
        moments = [m for s in state.optimizer.state.values() for m in s.values()]
        assert {t.device for t in (*moments, *state.losses)} == {CUDA}


@pytest.mark.parametrize("precision", [
    "bf16", pytest.param("bf16_mlp", marks=pytest.mark.slow),
    pytest.param("tf32", marks=pytest.mark.slow)])
def test_later_updates_and_batches_never_wait(
    precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("latentcode.training.state.CHUNK", 1)  # every update draws
    with fake_cuda() as device:
        state = TrainingState.start(configure(precision=precision))
        state.update()
        with device.never_waits():
            state.update()
        with device.counting() as waits:
            state.recent_losses()
            state.weights_are_finite()
        assert waits == {("TrainingState.recent_losses", ITEM): 2,
                         ("TrainingState.weights_are_finite", ITEM): 1}


@pytest.mark.parametrize("fields", [
    {"positions": "rotary", "feedforward": "swiglu", "causal": True,
     "attention_dropout_form": "independent"},
    {"positions": "none", "embedding": "token", "readout": "tied", "d_output": 4},
    {"cross_attention": True, "n_buckets": 6, "max_distance": 6}])
@pytest.mark.parametrize("seed", [0, (0, 1)])
@pytest.mark.slow
def test_other_models_compute_on_the_device(
    fields: dict[str, Any], seed: int | tuple[int, ...]
) -> None:
    config = ModelConfig(**{"d_input": 4, "d_model": 8, "n_heads": 2, "d_mlp": 8, **fields})
    members = () if isinstance(seed, int) else (len(seed),)
    with fake_cuda() as device:
        model = HookedTransformer(config, seed).to("cuda").train()
        generators = [make_generator(e, "dropout", "cuda") for e in range(2)]
        inputs = (torch.zeros(*members, 3, 6, dtype=torch.int64, device="cuda")
                  if config.embedding == "token"
                  else torch.zeros(*members, 3, 6, 4, device="cuda"))
        context = (torch.zeros(*members, 3, 5, 8, device="cuda") if config.cross_attention
                   else None)
        for _ in range(2):
            before = len(device.waits)
            model(inputs, context, generator=generators if members else generators[0]
                  ).sum().backward()
        assert len(device.waits) == before  # of the second


@kinds_and_tasks("hyla-logic", "hyla-sraven", all_kinds=True)
def test_the_captured_step_of_an_ensemble(kind: str, task: str) -> None:
    with fake_cuda() as device:
        learner = make_learner(configure(task, kind))  # how a model is trained on CUDA
        with device.counting() as waits:
            learner.update()  # `HostWaitError` for a wait in the step
        assert device.captured == 1
        assert set(waits) == CONSTANTS[task]
        with device.never_waits():
            learner.update()  # a replay


def test_what_a_captured_step_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """No mask, no sort, one update of all weights; and fills of its inputs around it."""
    pytest.importorskip("triton", reason="Triton is for Linux alone")
    for module in ("state", "ensemble"):
        monkeypatch.setattr(f"latentcode.training.{module}.CHUNK", 3)
    config = configure("logic", "hyla")
    configs = [config, replace(config, training=replace(config.training, seed=1))]
    started = []
    with fake_cuda():
        for graphed in (False, True):
            members = Ensemble(configs, graphed=graphed)
            members.update()  # constants are copied, and the graph is captured
            with Operators() as step:
                members.update()
            started.append(step.seen)
        while members.step < 3:
            members.update()
        with Operators() as drawing:
            members.update()
    captured, around = started
    assert captured["latentcode.attention"] == config.model.n_layers
    assert captured["latentcode.adamw"] == 1
    assert not {"aten.rand", "aten.index", "aten.index_put", "aten.ge"} & set(captured)
    assert around == {"aten._foreach_copy_": 1, "aten.clone": 1}
    assert drawing.seen["aten.rand"] == 2 + 2  # inputs and masks of both


@pytest.mark.usefixtures("own_names")
def test_a_step_that_calls_a_function_of_the_user_is_not_captured() -> None:
    register_nonlinearity("square", torch.square)
    config = configure()
    config = replace(config, model=replace(config.model, nonlinearity="square"))
    with fake_cuda() as device:
        Ensemble([config]).update()
        assert device.captured == 0


def test_an_ensemble_draws_without_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("state", "ensemble"):
        monkeypatch.setattr(f"latentcode.training.{module}.CHUNK", 1)
    config = configure("sraven")
    other = replace(config, task=replace(config.task, split_seed=3),
                    training=replace(config.training, seed=1, weight_decay=0.3))
    with fake_cuda() as device:
        members = Ensemble([config, other])
        members.update()
        with device.never_waits():
            members.update()
        assert {t.device for t in (members.weights, *members.moments, members.decay)} == {CUDA}
        with device.counting() as waits:
            members.recent_losses()
            members.weights_are_finite()
        assert waits == {("Ensemble.recent_losses", ITEM): 4,
                         ("Ensemble.weights_are_finite", ITEM): 2}


@pytest.mark.slow
# The C++ side is told that parameters lie on `meta`; they are copied to all the same.
@pytest.mark.filterwarnings("ignore:.*copying from a non-meta parameter:UserWarning")
def test_a_checkpoint_is_restored_to_the_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = configure(steps=2, checkpoint_every=2, device="cpu", warmup_steps=0)
    run = train(config, tmp_path / "run", progress=False)
    # The streams of a CPU cannot go on elsewhere; all else can.
    monkeypatch.setattr(Checkpoint, "restore_generators", lambda *_: None)
    there = replace(config, training=replace(config.training, device="cuda"))
    with fake_cuda() as device:
        state = TrainingState.start(there)
        state.restore([run], 2)
        state.update()
        with device.never_waits():
            state.update()
        members = Ensemble([there])
        members.restore([run], 2)
        members.update()
        member = members.member(0)
        moments = [m for s in member.optimizer.state.values() for m in s.values()]
        assert {m.device for m in moments} == {CUDA}
