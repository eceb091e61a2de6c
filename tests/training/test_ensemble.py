"""Members of an ensemble go the way that they would go alone."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from disk import outcome
from tiny_training import float64
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from latentcode.config import RunConfig
from latentcode.errors import ConfigError, TrainingError
from latentcode.metrics import Metric
from latentcode.models.config import ATTENTION_KINDS, with_kind
from latentcode.models.kernels.fused import written_out
from latentcode.presets import preset
from latentcode.runs import Run
from latentcode.tasks.logic.task import FuzzyLogic
from latentcode.training import loop, train, train_ensemble
from latentcode.training.ensemble import Ensemble, StepGraph, ensemble_key
from latentcode.training.loop import mean_over_members
from latentcode.training.state import CHUNK, TrainingState

Make = Callable[..., RunConfig]


def members(config: RunConfig) -> list[RunConfig]:
    """Return members that differ in everything in which they may."""
    return [
        config,
        replace(config, training=replace(config.training, seed=1, learning_rate=3e-3,
                                         weight_decay=0.3, warmup_steps=0)),
        replace(config, task=replace(config.task, split_seed=5, ood_fraction=0.4),
                training=replace(config.training, seed=2))]


def distance(together: Tensor, alone: Tensor) -> float:
    return float((together - alone).abs().max() / (1.0 + alone.abs().max()))


def compare(configs: list[RunConfig], steps: int, tolerance: float, **settings: Any) -> None:
    """Check every weight, moment and loss after a number of updates.

    A softmax over keys is blind to the bias of the keys: its gradient is nothing but rounding,
    which AdamW makes as large as any other, so that it alone is not compared.
    """
    over_keys = configs[0].model.normalization in ("softmax", "softmax_rms_head")
    blind = "b_K" if over_keys else None
    ensemble = Ensemble(configs, **settings)
    for _ in range(steps):
        ensemble.update()
    for index, config in enumerate(configs):
        alone = TrainingState.start(config)
        for _ in range(steps):
            alone.update()
        member = ensemble.member(index)
        assert member.step == alone.step == steps
        assert ensemble.recent_losses()[index] == pytest.approx(
            alone.recent_losses()[0], abs=tolerance)
        for (name, mine), own in zip(
                member.model.named_parameters(), alone.model.parameters(), strict=True):
            if name.rpartition(".")[2] == blind:
                continue
            assert distance(mine.data, own.data) <= tolerance, name
            mine_state, own_state = member.optimizer.state[mine], alone.optimizer.state[own]
            assert mine_state["step"] == own_state["step"]
            for moment in ("exp_avg", "exp_avg_sq"):
                # Gradients are steeper in the weights than the weights are in rounding.
                assert distance(mine_state[moment], own_state[moment]) <= 100 * tolerance, name
        assert torch.equal(member.generators["dropout"].get_state(),
                           alone.generators["dropout"].get_state())


@pytest.mark.parametrize(("kind", "clip", "graphed"), [
    *product(("softmax", "hyla"), (None, 0.05), (False, True)),
    *(pytest.param(kind, None, False, marks=pytest.mark.slow) for kind in ATTENTION_KINDS
      if kind not in ("softmax", "hyla"))])
def test_trajectories_are_those_of_the_same_models_alone(
    tiny: Make, kind: str, clip: float | None, graphed: bool
) -> None:
    config = tiny(grad_clip=clip, steps=50, learning_rate=1e-3)
    config = replace(config, model=with_kind(config.model, kind))
    with float64():
        compare(members(config), 40, 1e-10, graphed=graphed)  # beyond a chunk of batches


@pytest.mark.parametrize("task", ["logic", "sraven"])
def test_float32_trajectories_differ_by_rounding(task: str) -> None:
    # AdamW divides by the root of the second moment: rounding in a gradient that is nearly zero
    # moves a weight by a visible part of the learning rate, 1e-3.
    compare(members(preset("smoke", task, "hyla")), 10, 2e-4)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("task", ["logic", "sraven"])
def test_a_graph_is_the_plain_step_on_cuda(task: str) -> None:
    config = preset("smoke", task, "hyla")
    config = replace(config, training=replace(config.training, device="cuda"))
    configs = members(config)
    plain, graphed = Ensemble(configs, graphed=False), Ensemble(configs, graphed=True)
    for _ in range(40):
        plain.update()
        graphed.update()
    assert graphed.recent_losses() == [pytest.approx(x, rel=1e-3) for x in plain.recent_losses()]
    torch.testing.assert_close(graphed.weights, plain.weights, rtol=0, atol=2e-3)
    # Masks that are drawn ahead are others than those of a model alone.
    compare(configs, 10, 2e-3, graphed=True, ahead=False)


def test_a_hook_on_a_captured_step_is_refused() -> None:
    """On a CPU a replay is a call; the rule is the same."""
    configs = members(preset("smoke", "logic", "hyla"))
    graphed, plain = Ensemble(configs, graphed=True), Ensemble(configs, graphed=False)
    graphed.update()
    for each in (graphed, plain):
        each.model.layer(0).attn.hook_pattern.add_hook(lambda code, hook: code)
    plain.update()
    for _ in range(CHUNK - 1):
        graphed.update()
    with pytest.raises(ConfigError, match=r"a hook on blocks\.0\.attn\.hook_pattern, and a capt"):
        graphed.update()
    graphed.model.reset_hooks()
    graphed.update()


class NoHostTraffic(TorchDispatchMode):
    """Refuses what waits for a device or brings numbers from the host to it."""

    REFUSED = ("_local_scalar_dense", "lift_fresh", "nonzero", "masked_select")

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        name = func._schema.name.removeprefix("aten::")
        assert name not in self.REFUSED, func
        assert name != "_to_copy" or (kwargs or {}).get("device") is None, func
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("kind", ["softmax", "linear", "hyla"])
@pytest.mark.parametrize("task", ["logic", "sraven"])
def test_a_step_can_be_captured(task: str, kind: str) -> None:
    """Nothing in it would make the processor wait for a GPU, nor copy to one."""
    ensemble = Ensemble(members(preset("smoke", task, kind)))
    ensemble.update()  # tables that are copied to the device once are there now
    before = ensemble.weights.clone()
    with written_out(), NoHostTraffic():
        ensemble.update()
    assert not torch.equal(ensemble.weights, before)


def test_a_replay_takes_the_shapes_of_the_first_call_only() -> None:
    graph = StepGraph(lambda x: x + 1.0, [], [])
    assert torch.equal(graph(torch.arange(3.0)), torch.tensor([1.0, 2.0, 3.0]))
    with pytest.raises(ConfigError, match=r"shape \(1,\); expected \(3,\), that of the first"):
        graph(torch.ones(1))


def outcomes(runs: dict[Path, Run]) -> dict[str, dict[str, bytes]]:
    return {path.name: outcome(run.path) for path, run in runs.items()}


def folders(root: Path, config: RunConfig) -> dict[Path, RunConfig]:
    return {root / f"member{i}": member for i, member in enumerate(members(config))}


@pytest.mark.slow
def test_members_end_as_ordinary_runs(tiny: Make, tmp_path: Path) -> None:
    runs = train_ensemble(folders(tmp_path, tiny()), progress=False)
    for path, run in runs.items():
        assert run.is_complete
        assert run.checkpoints() == [10, 12]
        alone = train(run.config, tmp_path / f"{path.name}-alone", progress=False)
        mine, own = run.metrics(), alone.metrics()
        assert mine[["step", "split", "metric", "n"]].equals(own[["step", "split", "metric", "n"]])
        assert mine["mean"].to_numpy() == pytest.approx(own["mean"].to_numpy(), rel=1e-2, abs=1e-3)
        # An ordinary run can be gone on with alone.
        assert outcomes({path: train(run.config, path, resume=True, progress=False)}) == outcomes(
            {path: run})


@pytest.mark.parametrize(("step", "ahead"), [
    *(pytest.param(step, False, marks=pytest.mark.slow) for step in (1, 5, 7)), (7, True)])
def test_interrupted_and_resumed_is_uninterrupted(
    tiny: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int, ahead: bool
) -> None:
    monkeypatch.setattr(loop, "Ensemble", partial(Ensemble, ahead=ahead))
    whole = outcomes(train_ensemble(folders(tmp_path / "whole", tiny()), progress=False))
    update, updates = Ensemble.update, 0

    def interrupting(self: Ensemble) -> None:
        nonlocal updates
        updates += 1
        if updates == step:
            os.kill(os.getpid(), signal.SIGINT)
        update(self)

    configs = folders(tmp_path / "broken", tiny())
    with monkeypatch.context() as patch:
        patch.setattr(Ensemble, "update", interrupting)
        with pytest.raises(KeyboardInterrupt):
            train_ensemble(configs, progress=False)
    assert [Run.open(path).checkpoints()[-1] for path in configs] == [step] * 3
    assert outcomes(train_ensemble(configs, progress=False)) == whole


@pytest.mark.slow
def test_a_kill_between_the_checkpoints_of_two_members_loses_neither(
    tiny: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = outcomes(train_ensemble(folders(tmp_path / "whole", tiny()), progress=False))
    save, saves = Run.save_checkpoint, 0

    def killed(self: Run, *arguments: Any, **settings: Any) -> None:
        nonlocal saves
        saves += 1
        if saves == 3 * 2 + 2:  # at step 10 the second member has not got its checkpoint
            raise SystemExit("killed")
        save(self, *arguments, **settings)

    configs = folders(tmp_path / "broken", tiny())
    with monkeypatch.context() as patch:
        patch.setattr(Run, "save_checkpoint", killed)
        with pytest.raises(SystemExit, match="killed"):
            train_ensemble(configs, progress=False)
    assert [Run.open(path).checkpoints()[-1] for path in configs] == [10, 5, 5]
    stopped = train_ensemble(configs, deadline=0.0, progress=False)
    assert [run.checkpoints()[-1] for run in stopped.values()] == [5, 5, 5]
    assert [run.metrics()["step"].max() for run in stopped.values()] == [5, 5, 5]
    assert outcomes(train_ensemble(configs, progress=False)) == whole


@pytest.mark.slow
def test_a_member_that_breaks_leaves_the_others_untouched(
    tiny: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = outcomes(train_ensemble(folders(tmp_path / "whole", tiny()), progress=False))
    losses, calls = FuzzyLogic.losses, 0

    def breaking(self: FuzzyLogic, logits: Tensor, targets: Tensor) -> Tensor:
        nonlocal calls
        found = losses(self, logits, targets)
        if logits.requires_grad:  # a training batch: the members' instances in their order
            calls += 1
            if calls == 7:
                found = found * torch.where(torch.arange(len(found)) // 8 == 1, float("nan"), 1.0)
        return found

    configs = folders(tmp_path / "broken", tiny())
    monkeypatch.setattr(FuzzyLogic, "losses", breaking)
    with pytest.raises(TrainingError, match=r"1 of 3 members broke: .*member1: the loss is nan at "
                       r"step 7; .*last good checkpoint, of step 5"):
        train_ensemble(configs, progress=False)
    runs = {path: Run.open(path) for path in configs}
    broken = runs.pop(tmp_path / "broken" / "member1")
    assert broken.checkpoints()[-1] == 5
    assert broken.metrics()["mean"].notna().all()
    found = outcomes(runs)
    assert found == {name: whole[name] for name in found}


def test_a_deadline_stops_with_checkpoints(tiny: Make, tmp_path: Path) -> None:
    configs = folders(tmp_path, tiny())
    runs = train_ensemble(configs, deadline=0.0, progress=False)
    assert [run.checkpoints() for run in runs.values()] == [[0]] * 3
    assert not any(run.is_complete for run in runs.values())
    run = train(tiny(), tmp_path / "alone", deadline=0.0, progress=False)
    assert run.checkpoints() == [0]
    assert train(tiny(), run.path, resume=True, progress=False).is_complete


def test_what_can_share_an_ensemble(tiny: Make) -> None:
    config = tiny()
    for member in members(config):
        assert ensemble_key(config) == ensemble_key(member)
        assert ensemble_key(member) == ensemble_key(config)
    others = [
        replace(config, model=with_kind(config.model, "softmax")),
        replace(config, task=replace(config.task, n_terms=1)),
        replace(config, training=replace(config.training, steps=13)),
        replace(config, training=replace(config.training, precision="bf16"))]
    for other in others:
        assert ensemble_key(config) != ensemble_key(other)
        with pytest.raises(ConfigError, match="member 1 cannot share an ensemble"):
            Ensemble([config, other])
    with pytest.raises(ConfigError, match="expected at least one member"):
        Ensemble([])


def test_progress_averages_what_all_members_have() -> None:
    """Which terms an evaluation of few instances meets depends on the split of a member."""
    members = [{"r2": Metric(0.25, 0.1, 9), "r2[x1]": Metric(0.5, 0.1, 4)},
               {"r2": Metric(0.75, 0.1, 9), "r2[¬x1]": Metric(0.5, 0.1, 4)}]
    assert mean_over_members(members) == {"r2": Metric(0.5, 0.25, 2)}
    assert mean_over_members(members[:1]) == members[0]
