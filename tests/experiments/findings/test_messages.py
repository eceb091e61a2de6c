"""Patched messages: the identity, the whole of a layer, and outcomes on a small model."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
import torch

import latentcode as lc
from latentcode.devices import make_generator
from latentcode.experiments.findings.messages import (
    OUTCOMES,
    aligned_activations,
    directions,
    main,
    patch,
    patched_logits,
)
from latentcode.models.patched.passes import clean_pass, computed
from latentcode.tasks.sraven.counterfactuals import SravenCounterfactuals


@pytest.mark.parametrize("kind", ["softmax", "hyla"])
@torch.no_grad()
def test_exchanged_messages(kind: str) -> None:
    run = lc.load_run(f"sraven-{kind}")
    model, task = run.load_model().eval(), lc.make_counterfactuals(lc.make_task(run.config.task))
    pairs = task.sample("ood", 4, make_generator(0, "test", "cpu"))
    inputs = pairs.bases.inputs
    own_row = patch(task, "message", (0, 1), "own row", "context")
    clean = clean_pass(model, inputs, own_row.places)
    (_, same), (_, source) = (computed(model, batch.inputs, own_row.places)
                              for batch in (pairs.bases, pairs.sources))
    assert torch.equal(patched_logits(clean, task, pairs, own_row, same), clean.logits)
    other = patched_logits(clean, task, pairs, own_row, source)
    assert (other - model(inputs)).abs().max() > 0.1

    # All messages of a layer are all that its attention puts out.
    kept = {}
    model.run_with_hooks(pairs.sources.inputs, fwd_hooks=[
        ("blocks.1.attn.hook_z", lambda z, hook: kept.update(z=z))])
    expected = model.run_with_hooks(inputs, fwd_hooks=[
        ("blocks.1.attn.hook_z", lambda z, hook: kept["z"])])
    whole = patched_logits(clean, task, pairs, patch(task, "message", (1,), "all", "all"), source)
    torch.testing.assert_close(whole, expected, atol=1e-4, rtol=1e-4)


def test_directions_are_natural_pairs_of_sum() -> None:
    task = lc.make_counterfactuals(lc.make_task(lc.load_run("sraven-hyla").config.task))
    assert isinstance(task, SravenCounterfactuals)
    both = directions(task)
    for name, of_sum in (("from sum", "base_label"), ("to sum", "source_label")):
        pairs = both[name].sample("ood", 40, make_generator(0, "test", "cpu"))
        assert (getattr(pairs[pairs.counts], of_sum) == task.constituents.index("sum")).all()
        assert pairs.counts.sum() > 10


@pytest.mark.slow
def test_outcomes_of_a_model_of_the_zoo(tmp_path: Path) -> None:
    main((lc.load_run("sraven-softmax").path,), out=tmp_path, n=20)
    table = pd.read_csv(tmp_path / "messages.csv")
    totals = table.groupby(["pairs", "patch", "source"])["value"].sum()
    assert totals.between(0.999, 1.001).all()
    assert set(table["outcome"]) == set(OUTCOMES)


@torch.no_grad()
def test_activations_of_other_permutations() -> None:
    """Those of the same tokens, which only their places tell apart."""
    run = lc.load_run("sraven-softmax")
    model, task = run.load_model().eval(), lc.make_counterfactuals(lc.make_task(run.config.task))
    assert isinstance(task, SravenCounterfactuals)
    inputs = task.sample("ood", 4, make_generator(0, "test", "cpu")).bases.inputs

    places = tuple((site, layer) for site in ("code", "value", "message") for layer in (0, 1))

    def largest_difference() -> float:
        moved = aligned_activations(model, task, inputs, places, make_generator(0, "order", "cpu"))
        return max(float((x - moved[place]).abs().max())
                   for place, x in computed(model, inputs, places)[1].items())

    assert largest_difference() > 0.1
    for block in model.blocks:
        block.attn.rel_pos_bias.zero_()
    assert largest_difference() < 1e-4
