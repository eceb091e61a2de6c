"""Where do evaluation, extraction and interventions wait for the device?

Evaluation waits at its end, for the scores. Extraction waits before its forward passes, where it
learns which queries there are, and after them for what it read. Minimal pairs, captured and
written passes and their outcomes never wait; a set of interventions does where the host decides
which pairs count, fits or applies erasers, picks heads, and makes tables. The bench, of one
instance, is the host's, as are labels and statistics.
"""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest
import torch
from fake_cuda import CUDA, FROM_HOST, ITEM, MASK, TO_HOST, fake_cuda
from fake_cuda_cases import CONSTANTS, configure, kinds_and_tasks, model_of, without_cuda

from latentcode.devices import make_generator
from latentcode.models.patched.sites import SITES, InScope, capture, run_patched
from latentcode.probes.interventions import PATCHES, Bench, ByHand, Patch
from latentcode.probes.interventions.intervention import intervene_model
from latentcode.probes.interventions.patches import lacked
from latentcode.subjects import extract
from latentcode.tasks import Batch, make_counterfactuals, make_task
from latentcode.training.state import evaluate

pytestmark = without_cuda


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
            extract(
                model, problems, split="test", n=7, batch_size=2, residuals=True,
                pairs=list(problems.pairs)[:3],
                progress=lambda done, total: order.append(f"{done}: {len(device.waits)}"))
    assert len({entry.partition(": ")[2] for entry in order}) == 1, order
    expected = {
        ("distinct_queries", ITEM), ("Batch.to", TO_HOST), ("Reader._distinct", FROM_HOST),
        ("Reader._distinct", ITEM), ("Reader.read", TO_HOST),
        ("TaskSource._labels", TO_HOST)}
    if task == "logic":
        expected.add(("FuzzyLogic.positions", FROM_HOST))
    assert set(waits) - CONSTANTS[task] == expected


def on_the_host(task: object, batch: Batch) -> pd.DataFrame:
    """In place of `labels`, which are text of numbers that nobody knows."""
    assert batch.inputs.device.type == "cpu"
    return pd.DataFrame(index=range(len(batch)))


@kinds_and_tasks("hyla-logic", "softmax-sraven", all_kinds=True)
def test_what_is_written_never_waits(kind: str, task: str) -> None:
    config = configure(task, kind)
    with fake_cuda() as device:
        model, problems = model_of(config), make_counterfactuals(make_task(config.task))
        pairs = problems.sample("ood", 4, make_generator(0, "pairs", "cuda"))
        inputs = pairs.bases.inputs
        places = [(site, layer) for site in SITES for layer in range(2)]
        normalization = config.model.normalization
        capture(model, inputs, ())  # constants
        with device.never_waits():
            clean, sources = capture(model, pairs.sources.inputs, places)
            scope = problems.scope("row", pairs)
            patched = run_patched(model, inputs, {place: InScope(
                lambda live, x=sources[place]: x, SITES[place[0]].mask(scope, None, 4), scope,
                None if normalization == "none" or place[0] != "code" else normalization)
                for place in places})
            outcomes = problems.outcomes(pairs, clean, clean, patched)
            right = problems.right(pairs, patched, "sources")
        assert {t.device for t in (patched, right, *outcomes.values())} == {CUDA}


@pytest.mark.slow
@pytest.mark.parametrize("task", ["logic", "sraven"])
def test_interventions_wait_to_choose_pairs_and_to_make_tables(task: str) -> None:
    config = configure(task)
    config = replace(config, model=replace(config.model, n_layers=1))
    with fake_cuda() as device:
        model, problems = model_of(config), make_counterfactuals(make_task(config.task))
        capture(model, problems.sample(
            "ood", 4, make_generator(0, "pairs", "cuda")).bases.inputs, ())
        problems.least_problems = 1
        offered = [name for name, how in PATCHES.items() if not lacked(how, problems.lacking)]
        chosen = [*(Patch(name) for name in offered),
                  Patch(heads=(1, 3), renormalize=True),
                  *(Patch(site=site, where="everything") for site in SITES)]
        with device.counting() as waits:
            result = intervene_model(
                model, problems, chosen, n=6, batch_size=6, n_reference=6, n_bootstrap=100)
        assert result.settings["n_known"] == 6
        tables = len(result.settings["interventions"])
        once = {
            ("check_written", ITEM): len(SITES),  # one for each site: do zeros change the logits?
            ("clean_batch", MASK): 1,  # which pairs count
            ("outcomes_of_model", ITEM): 1 + tables,  # how many; whether the logits are finite
        }
        assert {key: waits[key] for key in once} == once
        assert set(waits) - CONSTANTS[task] == {
            # Whether few queries are written, and whether anything that is written differs.
            ("CleanPass._leaving", ITEM),
            *once, ("outcomes_of_model", TO_HOST), ("check", ITEM), ("Site.mask", FROM_HOST),
            ("measure", MASK), *(("Erasers.fit", how) for how in (MASK, ITEM)),
            ("Erasers.erase", MASK)}


@pytest.mark.slow
@pytest.mark.parametrize("task", ["logic", "sraven"])
def test_the_bench_computes_on_the_device(task: str) -> None:
    config = configure(task)
    with fake_cuda() as device:
        device.number = 0
        problems = make_task(config.task)
        batch = problems.sample("ood", 10, make_generator(0, "bench", "cuda"))
        bench = Bench(model_of(config), make_counterfactuals(problems), batch, n_reference=6)
        target = bench.targets(0, 0)[1]
        for value in ("class_mean", ByHand((1.0,) * 4, "add")):
            outcome = bench.patch(Patch(value, "row", 0), 0, target)
            assert len(outcome.answers) > 0
