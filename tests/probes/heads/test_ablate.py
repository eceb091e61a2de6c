"""Effects of ablated heads, beside whole passes, hand-built models and random ones."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import torch.nn.functional as F
from known_heads import Asked, known_model, random_model, signed_texts
from small_language_models import SmallModels

from latentcode.errors import ProbeError
from latentcode.models.patched.heads import clean_heads, z_hook
from latentcode.models.pretrained import load_pretrained
from latentcode.probes.common.results import where
from latentcode.probes.heads.ablate import (
    DIRECTIONS,
    GROUPS,
    QUANTITIES,
    Ablation,
    Draws,
    directions,
    donors,
    drawn,
    in_parts,
)
from latentcode.prompts import PretrainedLanguageModel
from latentcode.prompts.texts import TextBatch


def random_texts(n: int = 12, n_tokens: int = 16, vocabulary: int = 40) -> list[TextBatch]:
    tokens = torch.randint(vocabulary, (n, n_tokens), generator=torch.Generator().manual_seed(0))
    lengths = n_tokens - torch.arange(n) % 4
    read = torch.arange(n_tokens) < lengths[:, None] - 1
    whole = TextBatch(tokens, lengths, tokens.roll(-1, 1), read, torch.arange(n))
    return [whole[rows] for rows in torch.arange(n).tensor_split(2)]


def by_hand(model: Any, batches: list[TextBatch], kind: str, layer: int,
            head: int) -> dict[str, float]:
    """Return the effects from whole passes with a hook, one text after the other."""
    found: list[list[float]] = []
    with torch.no_grad():
        mean = _mean_by_hand(model, batches, layer)[head]
        for batch in batches:
            donor = donors(batch, 0)
            for row, length in enumerate(batch.lengths.tolist()):
                tokens = batch.tokens[row:row + 1, :length]
                other = _z(model, batch.tokens[donor[row]][None], layer)[0, :, head]

                def put(z: torch.Tensor, hook: object, other: torch.Tensor = other,
                        length: int = length) -> torch.Tensor:
                    z[0, :, head] = mean if kind == "mean" else other[:length]
                    return z

                clean = model(tokens)[0].log_softmax(-1)
                new = model.run_with_hooks(tokens, fwd_hooks=[(z_hook(layer), put)])[0]
                new = new.log_softmax(-1)
                for t in batch.read[row].nonzero().flatten().tolist():
                    if kind == "resample" and t >= int(batch.lengths[donor[row]]):
                        continue
                    target = int(batch.targets[row, t])
                    right = [float(x[t].argmax() == target) for x in (clean, new)]
                    found.append([
                        float(clean[t, target] - new[t, target]),
                        float(F.kl_div(new[t], clean[t], log_target=True, reduction="sum")),
                        float(clean[t].argmax() != new[t].argmax()), right[0] - right[1]])
    return dict(zip(QUANTITIES, np.mean(found, axis=0).tolist(), strict=True))


def _z(model: Any, tokens: torch.Tensor, layer: int) -> torch.Tensor:
    seen = []
    with torch.no_grad():
        model.run_with_hooks(tokens, fwd_hooks=[(
            z_hook(layer), lambda z, hook: seen.append(z.clone()))])
    return seen[0]


def _mean_by_hand(
    model: Any, batches: list[TextBatch], layer: int
) -> torch.Tensor:
    return torch.cat([_z(model, batch.tokens[row:row + 1, :length], layer)[0]
                      for batch in batches
                      for row, length in enumerate(batch.lengths.tolist())]).mean(0)


@pytest.mark.parametrize("name", ["ours", "gpt2", "gemma2"])
def test_effects_are_those_of_whole_passes_by_hand(
    name: str, small_models: SmallModels
) -> None:
    model = random_model() if name == "ours" else load_pretrained(small_models(name))
    asked = Asked(model) if name == "ours" else PretrainedLanguageModel(model)
    batches = [replace(batch, padding=asked.padded(
        torch.arange(batch.tokens.shape[1]) < batch.lengths[:, None])) for batch in random_texts()]
    assert (name == "ours") == (not batches[0].padding)
    ablation = Ablation(asked, batches, n_read=None, control=False).run()
    table = ablation.table()
    assert ablation.settings["passes"] == "layers below shared"
    for kind in ("mean", "resample"):
        for layer, head in ((0, 1), (1, 3)):
            rows = table.query("patch == @kind and layer == @layer and head == @head")
            expected = by_hand(model, batches, kind, layer, head)
            found = dict(zip(rows["quantity"], rows["value"], strict=True))
            assert found == pytest.approx(expected, abs=2e-6), (kind, layer, head)
            assert (rows["low"] <= rows["value"]).all()
            assert (rows["value"] <= rows["high"]).all()


def test_whole_passes_say_the_same_and_that_they_are() -> None:
    model, batches = random_model(), random_texts()
    shared = Ablation(Asked(model), batches, kinds=("mean",)).run().table()
    keeping = {}

    def note(module: object, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
        keeping["first"] = 0.0 * inputs[0]

    model.layer(0).attn.register_forward_hook(note)
    model.layer(1).register_forward_hook(
        lambda module, inputs, output: output + keeping.pop("first"))
    whole = Ablation(Asked(model), batches, kinds=("mean",)).run()
    assert whole.settings["passes"].startswith("whole: hooks sit on the model")
    numbers = ["value", "low", "high", "control"]
    assert np.allclose(shared[numbers], whole.table()[numbers], atol=1e-5)


@pytest.mark.parametrize("kind", ["redundant", "synergetic", "alone"])
def test_heads_that_do_something_are_told_from_those_that_do_not(kind: str) -> None:
    model = known_model("redundant" if kind == "alone" else kind)
    if kind == "alone":
        with torch.no_grad():
            model.layer(0).attn.W_O[1].zero_()
            model.layer(0).attn.W_O[1, 0, 15] = 1e-3
    table = Ablation(Asked(model), signed_texts(), kinds=("mean",)).run().table()
    loss = where(table, quantity="loss").set_index("head")
    does = {"redundant": [], "synergetic": [0, 1], "alone": [0]}[kind]
    assert np.allclose(loss["value"][does], np.log(2), atol=0.05)
    assert (loss["value"].drop(does).abs() < 0.01).all()
    if kind == "alone":
        assert loss["difference_low"][0] > 0.1
        assert (loss["difference_low"].drop(0) < 0.01).all()


def test_random_heads_do_what_the_control_does() -> None:
    within, undecided = [], []
    for seed in range(3):
        table = Ablation(Asked(random_model(seed)), random_texts(24), kinds=("mean",),
                         n_read=None).run().table()
        for quantity in ("loss", "kl"):
            rows = where(table, quantity=quantity)
            within += list(rows["value"].between(rows["control_low"], rows["control_high"]))
            undecided += list((rows["difference_low"] <= 0) & (rows["difference_high"] >= 0))
    assert np.mean(within) >= 0.95
    assert np.mean(undecided) >= 0.95


def test_the_interval_of_the_control_is_that_of_one_more_matrix() -> None:
    rng = np.random.default_rng(0)
    n_heads, n_groups = 4_000, 64
    draw = directions(3)[:n_groups]
    of_matrix = rng.normal(size=(DIRECTIONS, n_heads))
    texts = rng.normal(size=(n_groups, 1)) + 5.0
    control = texts + of_matrix[draw]
    effect = texts + rng.normal(size=n_heads)
    sums = np.stack([effect, control], axis=1)  # [G, 2, H]
    found = Draws.weighted(sums, np.ones((n_groups, 1, 1)), n_groups,
                           draw == np.arange(DIRECTIONS)[:, None])
    apart = found[0] - found[1]
    assert np.allclose(apart.value, (effect - control).mean(0))
    half = 2.364624 * of_matrix.std(0, ddof=1) * np.sqrt(9 / 8)
    assert np.allclose(apart.interval()[1] - apart.value, half, rtol=1e-5)
    low, high = apart.interval()
    assert np.mean((low <= 0) & (high >= 0)) == pytest.approx(0.95, abs=0.015)
    low, high = found[1].interval()
    assert np.mean((low <= found[0].value) & (found[0].value <= high)) >= 0.95


def test_of_one_matrix_there_is_no_interval() -> None:
    batches = [batch[torch.tensor([0])] for batch in random_texts()[:1]]
    table = Ablation(Asked(random_model()), batches, kinds=("mean",)).run().table()
    assert table["control"].notna().all()
    intervals = ["control_low", "control_high", "difference_low", "difference_high"]
    assert table[intervals].isna().all(axis=None)


def test_each_of_eight_texts_in_a_row_has_another_matrix() -> None:
    of = directions(0)
    assert len(of) == GROUPS
    assert (np.sort(of.reshape(-1, DIRECTIONS)) == np.arange(DIRECTIONS)).all()
    assert not (of[:DIRECTIONS] == of[DIRECTIONS:2 * DIRECTIONS]).all()
    assert not (of == directions(1)).all()


def test_a_matrix_is_the_same_in_all_batches() -> None:
    model, batches = random_model(), random_texts(32)
    ablation = Ablation(Asked(model), batches, kinds=("mean",))
    of = directions(0)
    batch = batches[0]
    first = next(i for i in range(1, len(batch)) if of[i] == of[0])
    pair = batch[torch.tensor([0, first])]  # one text twice, under the numbers of two
    twice = replace(pair, tokens=pair.tokens[:1].repeat(2, 1), lengths=pair.lengths[:1].repeat(2))
    clean = clean_heads(model, twice.tokens, twice.read)
    (control,) = dict(ablation._writes(clean, twice, donors(twice, 0), 1))[0, 1, 2]
    assert control.added is not None
    assert torch.allclose(control.added[0], control.added[1])


def test_the_control_writes_as_much() -> None:
    batches = random_texts()
    model = random_model()
    ablation = Ablation(Asked(model), batches, kinds=("mean",), n_read=None)
    batch = batches[0]
    clean = clean_heads(model, batch.tokens, batch.read)
    writes = dict(ablation._writes(clean, batch, donors(batch, 0), 1))
    (change,), (control,) = (writes[0, which, 2] for which in (0, 1))
    assert control.added is not None
    assert torch.allclose(control.added.norm(dim=-1), clean.moved(change).norm(dim=-1), rtol=1e-4)
    cosine = F.cosine_similarity(control.added, clean.moved(change), dim=-1)
    assert cosine.abs().mean() < 0.6


def test_some_heads_have_the_numbers_that_they_have_among_all() -> None:
    some = [(0, 2), (0, 3), (1, 1)]
    every, few = (Ablation(Asked(random_model()), random_texts(), heads=heads).run().table(50)
                  for heads in (None, some))
    kept = [pair in some for pair in zip(every["layer"], every["head"], strict=True)]
    assert 0 < len(few) < len(every)
    pd.testing.assert_frame_equal(every[kept].reset_index(drop=True), few, rtol=1e-5)


def test_a_part_that_is_interrupted_adds_nothing() -> None:
    ablation = Ablation(Asked(random_model()), random_texts())
    first, second = ablation.parts
    ablation.add(first)
    before = ablation.sums.copy(), ablation.counts.copy()

    def interrupt(done: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ablation.add(second, interrupt)
    assert np.array_equal(ablation.sums, before[0])
    assert np.array_equal(ablation.counts, before[1])


def test_few_tokens_are_read_and_the_same_whatever_the_batch() -> None:
    batch = random_texts()[0]
    read = drawn(batch, 3, 0)
    assert (read.sum(1) == 3).all()
    assert not (read & ~batch.read).any()
    rows = torch.tensor([4, 1])
    some = batch[rows]
    assert torch.equal(drawn(some, 3, 0), read[rows])
    assert not torch.equal(drawn(batch, 3, 1), read)


def test_parts_fit_into_memory_and_leave_no_text_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    model, (batch, _) = random_model(), random_texts(10)
    assert [len(part) for part in in_parts(batch, model, 3, 0)] == [5]
    for name, value in (("NUMBERS", 2 * 3 * 40), ("TOKENS", 32), ("KEPT", 2 * 16 * 2 * 4 * 32)):
        with monkeypatch.context() as patched:
            patched.setattr(f"latentcode.probes.heads.ablate.{name}", value)
            found = in_parts(batch, model, 3, 0)
            assert [len(part) for part in found] == [3, 2]
            assert torch.cat([part.text for part in found]).tolist() == list(range(5))
            assert max(map(len, in_parts(batch, model, 3, 0, backward=True))) <= 3
    unread = replace(batch, read=batch.read & (batch.text != 2)[:, None])
    assert in_parts(unread, model, None, 0)[0].text.tolist() == [0, 1, 3, 4]


def test_another_text_is_as_long_where_there_is_one() -> None:
    batch = random_texts()[0]
    donor = donors(batch, 0)
    assert (batch.text[donor] != batch.text).all()
    assert (batch.lengths[donor] >= batch.lengths).all()
    alone = batch[torch.tensor([0])]
    assert donors(alone, 0).tolist() == [-1]


def test_what_cannot_be_ablated_is_said() -> None:
    alone = [batch[torch.tensor([0])] for batch in random_texts()]
    with pytest.raises(ProbeError, match="two of them in a batch"):
        Ablation(Asked(random_model()), alone, kinds=("resample",)).run().table()
    with pytest.raises(ProbeError, match="no texts"):
        Ablation(Asked(random_model()), [])
