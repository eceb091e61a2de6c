"""The CUDA path, on a device that computes nothing: does everything lie there, and who waits?

Here is the line. Sampling, the forward pass and the update of one model or of an ensemble never
wait for the device, once the constants are there. Evaluation waits at its end, for the scores.
Extraction waits before its forward passes, where it learns which queries there are, and after
them for what it read. Minimal pairs, captured and written passes and their outcomes never wait;
a set of interventions does where the host decides which pairs count, fits or applies erasers,
picks heads, and makes tables. The bench, of one instance, is the host's, as are labels and
statistics.

What this cannot see: kernels, the order of streams, and branches of torch's C++ side that ask for
CUDA. Those need a GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pandas as pd
import pytest
import torch
from fake_cuda import CUDA, FROM_HOST, ITEM, MASK, TO_HOST, Generator, fake_cuda
from torch import Tensor, nn

from latentcode.codes.of_tasks import extract_model
from latentcode.config import LogicConfig, RunConfig, SravenConfig, TaskConfig
from latentcode.config.presets import preset
from latentcode.models.config import ATTENTION_KINDS, ModelConfig
from latentcode.models.positions import relative_bias
from latentcode.models.registering import register_nonlinearity
from latentcode.models.transformer import HookedTransformer
from latentcode.probes.interventions import WRITES, Bench, Intervention, Writing
from latentcode.probes.interventions.of_model import intervene_model
from latentcode.probes.interventions.sites import SITES, capture, in_scope, write
from latentcode.runs.checkpoints import Checkpoint
from latentcode.seeds import make_generator
from latentcode.tasks import Batch, make_counterfactuals, make_task
from latentcode.training import batches, ensemble, graph, train
from latentcode.training.ensemble import Ensemble
from latentcode.training.evaluation import evaluate
from latentcode.training.graph import StepGraph
from latentcode.training.loop import make_learner
from latentcode.training.state import TrainingState

pytestmark = pytest.mark.skipif(
    torch.version.cuda is not None, reason="stands in for CUDA where torch was built without it")


def kinds_and_tasks(*of_every_day: str) -> pytest.MarkDecorator:
    """Return all kinds on both tasks, slow but for some `kind-task`."""
    return pytest.mark.parametrize(("kind", "task"), [
        pytest.param(kind, task, id=f"{kind}-{task}",
                     marks=[] if f"{kind}-{task}" in of_every_day else pytest.mark.slow)
        for task in ("logic", "sraven") for kind in ATTENTION_KINDS])


CONSTANTS = {
    "logic": {("FuzzyLogic._tables", FROM_HOST), ("_buckets_on", FROM_HOST)},
    "sraven": {("Sraven._combinations_on", FROM_HOST), ("_buckets_on", FROM_HOST)}}
"""What is copied to the device when it is first needed, and never again."""


@pytest.fixture(autouse=True)
def short_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph, "WARM_UP", 1)  # all are the same


def configure(task: str = "logic", kind: str = "hyla", **training: Any) -> RunConfig:
    config = preset("smoke", task, kind)
    return replace(config, training=replace(
        config.training, **{"device": "cuda", "grad_clip": 1.0, "batch_size": 8, **training}))


def model_of(config: RunConfig) -> HookedTransformer:
    return HookedTransformer(config.model).to("cuda").eval()


def lies_there(batch: Batch) -> bool:
    return all(t.device == CUDA for t in (
        batch.inputs, batch.targets, batch.combination, *batch.info.values()))


@pytest.mark.parametrize("config", [
    *(LogicConfig(n_variables=3, n_examples=6, ood_fraction=0.3, unknown_fraction=0.4,
                  inputs=inputs)
      for inputs in ("uniform", "fixed_context", "fixed_query")),
    *(SravenConfig(n_features=2, n_values=5, permuted=permuted, rule_order=order)
      for permuted in (True, False) for order in ("random", "sorted"))])
def test_sampling_never_waits(config: TaskConfig) -> None:
    with fake_cuda() as device:
        task = make_task(config)
        for split in task.splits:
            generator = make_generator(0, split, "cuda")
            task.sample(split, 4, generator)
            with device.never_waits():
                assert lies_there(task.sample(split, 4, generator))
                pairs = make_counterfactuals(task).sample(split, 4, generator)
            assert all(map(lies_there, (pairs.instances, pairs.donors, pairs.same)))
        assert {where for where, _ in device.waits} == {
            "FuzzyLogic._tables" if config.name == "logic" else "Sraven._combinations_on"}


@kinds_and_tasks("softmax-logic", "linear-logic", "hyla_deep-logic", "hyla_moe-logic",
                 "hyla-sraven")
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
    monkeypatch.setattr(batches, "CHUNK", 1)  # every update draws
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


@kinds_and_tasks("hyla-logic", "hyla-sraven")
def test_the_captured_step_of_an_ensemble(kind: str, task: str) -> None:
    with fake_cuda() as device:
        learner = make_learner(configure(task, kind))  # how a model is trained on CUDA
        with device.counting() as waits:
            learner.update()  # `HostWaitError` for a wait in the step
        assert device.captured == 1
        assert set(waits) == CONSTANTS[task]
        with device.never_waits():
            learner.update()  # a replay


@pytest.mark.usefixtures("own_names")
def test_a_step_that_calls_a_function_of_the_user_is_not_captured() -> None:
    register_nonlinearity("square", torch.square)
    config = configure()
    config = replace(config, model=replace(config.model, nonlinearity="square"))
    with fake_cuda() as device:
        Ensemble([config]).update()
        assert device.captured == 0


def test_an_ensemble_draws_without_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (batches, ensemble):
        monkeypatch.setattr(module, "CHUNK", 1)
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


@kinds_and_tasks("hyla-logic", "hyla-sraven")
def test_evaluation_waits_for_its_scores_alone(kind: str, task: str) -> None:
    config = configure(task, kind)
    with fake_cuda() as device:
        model, problems = model_of(config), make_task(config.task)
        with device.counting() as waits:
            evaluate(model, problems, "test", 6, seed=0, batch_size=3, device="cuda")
        assert set(waits) == {*CONSTANTS[task], ("evaluate", TO_HOST)}
        # One a score, those by constituent included, however many batches.
        assert waits["evaluate", TO_HOST] == {"logic": 4, "sraven": 6}[task]


@kinds_and_tasks("hyla-logic", "hyla-sraven")
def test_extraction_waits_before_and_after_its_forward_passes(
    kind: str, task: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = configure(task, kind)
    problems = make_task(config.task)
    monkeypatch.setattr(type(problems), "labels", on_the_host)
    order: list[str] = []
    with fake_cuda() as device:
        model = model_of(config)
        model(torch.zeros(1, config.task.n_tokens, config.task.d_input, device="cuda"))
        with device.counting() as waits:
            extract_model(
                model, problems, "test", n=7, batch_size=2, residuals=True,
                pairs=list(problems.pairs)[:3],
                progress=lambda done, total: order.append(f"{done}: {len(device.waits)}"))
    assert len({entry.partition(": ")[2] for entry in order}) == 1, order
    expected = {
        ("distinct_queries", ITEM), ("Batch.to", TO_HOST), ("CodeReader._read_draw", ITEM),
        ("CodeReader._read_draw", FROM_HOST), ("CodeReader._read_draw", TO_HOST)}
    if task == "logic":
        expected.add(("FuzzyLogic.positions", FROM_HOST))
    assert set(waits) - CONSTANTS[task] == expected


def on_the_host(task: object, batch: Batch) -> pd.DataFrame:
    """In place of `labels`, which are text of numbers that nobody knows."""
    assert batch.inputs.device.type == "cpu"
    return pd.DataFrame(index=range(len(batch)))


@kinds_and_tasks("hyla-logic", "softmax-sraven")
def test_what_is_written_never_waits(kind: str, task: str) -> None:
    config = configure(task, kind)
    with fake_cuda() as device:
        model, problems = model_of(config), make_counterfactuals(make_task(config.task))
        pairs = problems.sample("ood", 4, make_generator(0, "pairs", "cuda"))
        inputs = pairs.instances.inputs
        places = [(site, layer) for site in SITES for layer in range(2)]
        normalization = config.model.normalization
        capture(model, inputs, ())  # constants
        with device.never_waits():
            clean, donors = capture(model, pairs.donors.inputs, places)
            scope = problems.scope("row", pairs)
            patched = write(model, inputs, {place: in_scope(
                lambda live, x=donors[place]: x, SITES[place[0]].mask(scope, None, 4), scope,
                None if normalization == "none" or place[0] != "code" else normalization)
                for place in places})
            outcomes = problems.outcomes(pairs, clean, clean, patched)
            right = problems.right(pairs, patched, "donors")
        assert {t.device for t in (patched, right, *outcomes.values())} == {CUDA}


@pytest.mark.parametrize("task", [pytest.param("logic", marks=pytest.mark.slow), "sraven"])
def test_interventions_wait_to_choose_pairs_and_to_make_tables(task: str) -> None:
    config = configure(task)
    config = replace(config, model=replace(config.model, n_layers=1))
    with fake_cuda() as device:
        model, problems = model_of(config), make_counterfactuals(make_task(config.task))
        capture(model, problems.sample(
            "ood", 4, make_generator(0, "pairs", "cuda")).instances.inputs, ())
        chosen = [*(Intervention(name) for name in WRITES),
                  Intervention(heads=(1, 3), renormalize=True),
                  *(Intervention(site=site, scope="everything") for site in SITES)]
        with device.counting() as waits:
            result = intervene_model(
                model, problems, chosen, n=6, batch_size=6, n_reference=6, n_bootstrap=100)
        assert result.settings["n_known"] == 6
        tables = len(result.settings["interventions"])
        once = {
            ("check_written", ITEM): 3,  # one for each site: do zeros change the logits?
            ("_clean", MASK): 1,  # which pairs count
            ("_measured", ITEM): 1 + tables,  # how many; whether the logits are finite
        }
        assert {key: waits[key] for key in once} == once
        assert set(waits) - CONSTANTS[task] == {
            *once, ("_frame", TO_HOST), ("Site.mask", FROM_HOST),
            ("measure", MASK), ("_fit", MASK), ("_fit", ITEM), ("Erasers.edit", MASK)}


@pytest.mark.parametrize("task", ["logic", pytest.param("sraven", marks=pytest.mark.slow)])
def test_the_bench_computes_on_the_device(task: str) -> None:
    config = configure(task)
    with fake_cuda() as device:
        device.number = 0
        problems = make_task(config.task)
        batch = problems.sample("ood", 10, make_generator(0, "bench", "cuda"))
        bench = Bench(model_of(config), make_counterfactuals(problems), batch, n_reference=6)
        target = bench.targets(0, 0)[1]
        for what, how in (("mean", "set"), ("hand", "add")):
            outcome = bench.write(Writing(
                instance=0, which=0, target=target, scope="row", layers=(0,), what=what, how=how,
                numbers=(1.0,) * 4))
            assert len(outcome.answers) > 0


MISTAKES: dict[str, tuple[Callable[[Tensor], object], str]] = {
    "a tensor of the CPU": (lambda x: x + torch.zeros(x.shape), "at least two devices"),
    "an index of the CPU": (lambda x: x[torch.arange(len(x))], FROM_HOST),
    "a list as index": (lambda x: x[[0, 1]], FROM_HOST),
    "a tensor of numbers": (lambda x: torch.tensor([1.0, 2.0], device=x.device), FROM_HOST),
    "a copy into it": (lambda x: x.detach().clone().copy_(torch.zeros(x.shape)), FROM_HOST),
    "item": (lambda x: x.sum().item(), ITEM),
    "a condition": (lambda x: 1 if x.sum() > 0 else 2, ITEM),
    "tolist": (lambda x: x.tolist(), ITEM),
    "equal": (lambda x: torch.equal(x, x), ITEM),
    "a boolean mask": (lambda x: x[x > 0], MASK),
    "a mask that is written": (
        lambda x: x.detach().clone().index_put_((x > 0,), x.detach().flatten()), MASK),
    "nonzero": (lambda x: x.nonzero(), MASK),
    "unique": (lambda x: x.unique(), "unique"),
    "cpu": (lambda x: x.cpu(), TO_HOST),
    "to": (lambda x: x.to("cpu", torch.float64), TO_HOST),
    "a copy out of it": (lambda x: torch.zeros(x.shape).copy_(x), TO_HOST),
    "numpy": (lambda x: x.detach().numpy(), "can't convert cuda:0"),
}

FOUR = ("a tensor of the CPU", "item", "a boolean mask", "cpu")
PLACES = {
    "sampling": "latentcode.tasks.logic.task.evaluate",
    "the forward pass": "latentcode.models.blocks.normalize",
    "the loss": "latentcode.tasks.logic.task.FuzzyLogic.losses"}


@pytest.mark.parametrize("name", list(MISTAKES))
def test_every_sort_of_mistake_is_caught(name: str) -> None:
    mistake, message = MISTAKES[name]
    with fake_cuda() as device:
        x = torch.zeros(4, device="cuda")
        with device.never_waits(), pytest.raises(Exception, match=message):
            mistake(x)


def plant(monkeypatch: pytest.MonkeyPatch, path: str, mistake: Callable[[Tensor], object]) -> None:
    """Let a function make a mistake with what it returns, or with its first argument."""
    original = resolve_name(path)

    def mistaken(*args: Any, **kwargs: Any) -> Tensor:
        result = original(*args, **kwargs)
        mistake(args[0] if result is None else result)
        return result

    monkeypatch.setattr(path, mistaken)


everywhere = pytest.mark.parametrize(("name", "place"), [
    pytest.param(name, place, marks=[] if place == "the loss" else pytest.mark.slow)
    for name in FOUR for place in PLACES])


@everywhere
def test_a_mistake_planted_in_an_update_is_caught(
    name: str, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mistake, message = MISTAKES[name]
    monkeypatch.setattr(batches, "CHUNK", 1)  # every update draws
    with fake_cuda() as device:
        state = TrainingState.start(configure())
        state.update()
        plant(monkeypatch, PLACES[place], mistake)
        with device.never_waits(), pytest.raises(Exception, match=message):
            state.update()


@everywhere
def test_a_mistake_planted_in_a_captured_step_is_caught(
    name: str, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mistake, message = MISTAKES[name]
    # Drawing is no part of the step; what follows the loss is.
    place = "latentcode.training.ensemble.adamw_" if place == "sampling" else PLACES[place]
    plant(monkeypatch, place, mistake)
    with fake_cuda(), pytest.raises(Exception, match=message):
        make_learner(configure()).update()


def test_a_mistake_planted_elsewhere_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    config = configure()
    with fake_cuda() as device:
        model, problems = model_of(config), make_task(config.task)
        plant(monkeypatch, PLACES["the loss"], lambda x: x.sum().item())
        with device.counting() as waits:
            evaluate(model, problems, "test", 6, seed=0, batch_size=3, device="cuda")
    planted = "test_a_mistake_planted_elsewhere_is_counted"
    assert waits[planted, ITEM] == 2  # one a batch


def test_generators_belong_to_their_device_and_to_their_graph() -> None:
    with fake_cuda() as device:
        here, there = torch.Generator(), torch.Generator("cuda")
        with pytest.raises(RuntimeError, match="'cuda:0' device type for generator"):
            torch.rand(3, device="cuda", generator=here)
        with pytest.raises(RuntimeError, match="'cpu' device type for generator"):
            torch.rand(3, generator=there)

        def step(x: Tensor) -> Tensor:
            return x + torch.rand(3, device="cuda", generator=there)

        StepGraph(step, [there], [])(torch.zeros(3, device="cuda"))
        assert device.captured == 1
        with pytest.raises(RuntimeError, match="not registered"):
            StepGraph(step, [], [])(torch.zeros(3, device="cuda"))


def test_nothing_is_left_behind() -> None:
    table = torch.zeros(2, 6)
    with fake_cuda():
        TrainingState.start(configure()).update()
        relative_bias(table, 6, 6, 6)
    assert not torch.cuda.is_available()
    assert type(torch.Generator()) is not Generator
    assert relative_bias(table, 6, 6, 6).sum().item() == 0.0
    assert nn.Linear(2, 2).to(torch.float64).weight.dtype == torch.float64
