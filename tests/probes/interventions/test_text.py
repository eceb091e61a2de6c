"""Can codes of a model of text be written, and are the outcomes those of its logits?"""

from __future__ import annotations

import pytest
import torch
from small_text import small_text, text_model
from torch import Tensor

from latentcode.devices import make_generator
from latentcode.models.patched.sites import capture, run_patched
from latentcode.probes.interventions import Patch
from latentcode.probes.interventions.intervention import intervene_model
from latentcode.probes.interventions.patch import standard_interventions
from latentcode.probes.interventions.patches import Problem
from latentcode.tasks.counterfactuals import MinimalPairs
from latentcode.tasks.text.counterfactuals import TextCounterfactuals

EVERY = (0, 1)


@pytest.mark.parametrize("kind", ["softmax", "linear", "hyla"])
@pytest.mark.parametrize("scope", TextCounterfactuals.scopes)
def test_what_is_written_back_changes_no_bit_and_noise_does(kind: str, scope: str) -> None:
    task, model = TextCounterfactuals(small_text()), text_model(kind)
    pairs = task.sample("ood", 20, make_generator(0, "pairs"))
    where = task.scope(scope, pairs)
    places = [("code", layer) for layer in EVERY]
    inputs, query = pairs.bases.inputs, pairs.bases.info["query"]
    logits, _ = capture(model, inputs, ())
    problem = Problem(pairs, {}, where, make_generator(0, "noise"))
    same = Patch("identity", scope, EVERY).edits(model, problem)
    assert torch.equal(run_patched(model, inputs, same), logits)
    other = Patch("random", scope, EVERY).edits(model, problem)
    assert list(other) == places
    written = run_patched(model, inputs, other)
    assert not torch.equal(written[torch.arange(20), query], logits[torch.arange(20), query])
    assert torch.equal(written[:, 0], logits[:, 0]) or scope == "everything"


class Untrained(TextCounterfactuals):
    """Pairs that count whatever a model says."""

    def right(self, pairs: MinimalPairs, logits: Tensor, of: str) -> Tensor:
        return torch.ones_like(pairs.counts)


def test_a_table_of_controls_says_how_many_count() -> None:
    result = intervene_model(text_model("softmax"), Untrained(small_text()), [
        Patch(name, scope, EVERY) for scope in ("row", "everything")
        for name in ("interchange", "control", "random", "identity")] + [
        Patch("elsewhere", "row", EVERY), Patch("interchange", "everything", EVERY,
                                                site="code+value")],
        n=200, n_bootstrap=100)
    rates = result.table.set_index(["patch", "scope", "site", "metric"])["value"]
    assert (rates.xs("identity")[:, "code", "unchanged"] == 1.0).all()
    assert (rates.xs("identity")[:, "code", "kl"] == 0.0).all()
    assert rates["random", "everything", "code", "kl"] > 0.0
    assert 2 <= result.settings["n_counted"] < 200
    documents = result.table["n_combinations"].max()
    assert 1 < documents <= len(small_text().combinations("ood"))


def test_standard_interventions_leave_out_what_a_text_lacks() -> None:
    task = TextCounterfactuals(small_text())
    chosen = standard_interventions(range(2), 4, task.scopes, True, task.lacking)
    for intervention in chosen:
        intervention.check(task, text_model("softmax"))
    assert {"interchange", "control", "operation+operands+rest", "unrelated", "random",
            "identity"} <= {intervention.value for intervention in chosen}
    assert not {"class_mean", "steer", "erase", "resample", "permuted"} & {
        intervention.value for intervention in chosen}


def test_long_texts_pass_fewer_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("latentcode.tasks.text.counterfactuals.MOST_CODES", 24 * 24 * 7)
    batches = TextCounterfactuals(small_text()).batches("ood", 20, 250, make_generator(0, "pairs"))
    assert [len(pairs) for pairs in batches] == [7, 7, 6]
