"""Extraction reads what a run with a cache holds, keeps no more, and is the same for any batch."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from small_extraction import draw_at_once
from torch import Tensor

import latentcode as lc
from latentcode.codes import reader
from latentcode.devices import make_generator
from latentcode.errors import ConfigError, SplitError, UnknownNameError
from latentcode.models.blocks import Attention
from latentcode.models.config import ATTENTION_KINDS, with_kind
from latentcode.models.transformer import HookedTransformer
from latentcode.presets import model_for
from latentcode.subjects import extract
from latentcode.tasks import make_task
from latentcode.training.state import TrainingState

PERMUTED = lc.SravenConfig(n_features=3, n_values=5)
SMALL = partial(model_for, PERMUTED, n_layers=2, d_model=16, n_heads=4, d_head=4, d_head_v=4,
                d_mlp=16)
PAIRS = ("response->response", "response.0->row3.panel1.same", "response.2->row3.panel2.2")


@pytest.fixture(scope="module")
def run(smoke_run: Callable[[str, str], lc.Run]) -> lc.Run:
    return smoke_run("logic", "hyla")


def test_codes_and_residuals_are_those_of_run_with_cache() -> None:
    task = make_task(PERMUTED)
    model = HookedTransformer(SMALL(n_layers=3)).eval()
    codes = extract(model, task, split="ood", n=7, pairs=PAIRS, layers=(2, 0), residuals=True,
                          seed=5, batch_size=3)
    assert codes.scores.shape == (7, 2, 3, 4)
    assert codes.residuals.shape == (7, 2, 2, 16)  # two of the three pairs share a query
    drawn = task.sample("ood", reader.DRAW, make_generator(5, "extract ood 0"))
    for done in (0, 3, 6):
        batch = drawn[done:min(done + 3, 7)]
        with torch.no_grad():
            # Hooks inside LayerNorm would take its unfused path, with other last digits.
            logits, cache = model.run_with_cache(
                batch.inputs, names_filter=lambda name: "ln" not in name)
        query, key = task.positions(PAIRS, batch)
        for b in range(len(batch)):
            for place, layer in enumerate((2, 0)):
                for p, pair in enumerate(PAIRS):
                    code = cache["pattern", layer][b, :, query[b, p], key[b, p]].numpy()
                    np.testing.assert_allclose(
                        codes.scores[done + b, place, p], code, rtol=1e-5, atol=1e-5)
                    stream = cache["resid_pre", layer][b, query[b, p]].numpy()
                    np.testing.assert_allclose(
                        codes.select_residual(layer=layer, pair=pair)[done + b], stream,
                        rtol=1e-5, atol=2e-5)
        labels = codes.labels.iloc[done:done + len(batch)]
        assert labels["rule_2"].tolist() == task.labels(batch)["rule_2"].tolist()
        accuracy = task.measures(logits, batch)["accuracy"].numpy()
        np.testing.assert_array_equal(labels["accuracy"], accuracy)


# --- Only what is asked for -----------------------------------------------------------------------


class Spied(NamedTuple):
    """What `code_rows` was asked for: the shapes of q and of the queries."""

    q: tuple[int, ...]
    query: tuple[int, ...]


@pytest.fixture
def spied(monkeypatch: pytest.MonkeyPatch) -> list[Spied]:
    asked: list[Spied] = []
    real = Attention.code_rows

    def spy(self: Attention, q: Tensor, k: Tensor, query: Tensor) -> Tensor:
        assert not self.hook_pattern.has_hooks()
        asked.append(Spied(tuple(q.shape), tuple(query.shape)))
        return real(self, q, k, query)

    monkeypatch.setattr(Attention, "code_rows", spy)
    return asked


class Foreign(torch.nn.Module):
    """A model of somebody else's: `cfg` and `run_with_hooks`, and nothing more to rely on."""

    def __init__(self, model: HookedTransformer) -> None:
        super().__init__()
        self.own, self.cfg = model, model.cfg

    def run_with_hooks(self, *args: Any, **kwargs: Any) -> Any:
        return self.own.run_with_hooks(*args, **kwargs)


@pytest.mark.parametrize(("kind", "positions"), [
    *((kind, "t5") for kind in ATTENTION_KINDS), ("softmax", "rotary"), ("hyla", "rotary")])
def test_rows_of_the_pattern_are_the_pattern(
    kind: str, positions: str, spied: list[Spied]
) -> None:
    causal = kind in ("softmax", "hyla", "hyla_softmax_rms_head")
    config = with_kind(SMALL(causal=causal, positions=positions, attention_dropout=0.3), kind)
    task, model = make_task(PERMUTED), HookedTransformer(config, seed=1)
    with torch.no_grad():
        for parameter in model.parameters():  # biases and all
            parameter.add_(0.3 * torch.randn(
                parameter.shape, generator=torch.Generator().manual_seed(0)))
    read = partial(extract, problems=task, split="ood", n=5, pairs=PAIRS)
    by_rows, by_pattern = read(model), read(Foreign(model))
    assert spied == [Spied((5, 27, 4, config.d_head), (5, 2))] * 2  # one query serves two pairs
    np.testing.assert_allclose(by_rows.scores, by_pattern.scores, rtol=2e-5, atol=2e-6)
    assert by_rows.scores.std() > 1e-3

    model = model.double().eval()
    batch = task.sample("ood", 6, make_generator(0, "rows"))
    with torch.no_grad():
        _, cache = model.run_with_cache(batch.inputs.double())
        query = torch.tensor([[26, 0], [3, 7], [0, 26], [12, 12], [25, 1], [8, 4]])
        for layer in range(2):
            rows = model.layer(layer).attn.code_rows(
                cache["q", layer], cache["k", layer], query)
            wanted = cache["pattern", layer][torch.arange(6)[:, None], :, query].transpose(1, 2)
            assert rows.shape == wanted.shape == (6, 4, 2, 27)
            assert float((rows - wanted).abs().max()) <= 1e-12


@pytest.mark.parametrize("name", ["attn_scores", "pattern"])
def test_a_code_that_a_hook_writes_is_the_code_that_is_read(
    name: str, spied: list[Spied]
) -> None:
    """On layer 1 alone, so that layer 0 is still read by rows."""
    task = make_task(PERMUTED)
    model = HookedTransformer(SMALL()).eval()
    read = partial(extract, model, task, split="ood", n=6, pairs=PAIRS)
    plain = read()
    with model.hooks(fwd_hooks=[(f"blocks.1.attn.hook_{name}", lambda x, hook: -2.0 * x)]):
        written = read()
    assert len(spied) == 2 + 1
    np.testing.assert_array_equal(written.scores[:, 0], plain.scores[:, 0])
    factor = -2.0 if name == "pattern" else -1.0  # of RMSHead's input only the sign is left
    np.testing.assert_allclose(written.scores[:, 1], factor * plain.scores[:, 1], rtol=1e-3,
                               atol=1e-5)
    assert not np.allclose(written.labels["loss"], plain.labels["loss"])
    np.testing.assert_array_equal(read().scores, plain.scores)


def test_queries_and_keys_that_a_hook_writes_make_the_code(spied: list[Spied]) -> None:
    task = make_task(PERMUTED)
    model = HookedTransformer(SMALL(n_layers=1)).eval()
    with model.hooks(fwd_hooks=[("blocks.0.attn.hook_q", lambda q, hook: q + 1.0),
                                ("blocks.0.attn.hook_k", lambda k, hook: k.flip(1))]):
        written = extract(model, task, split="ood", n=6, pairs=PAIRS)
        wanted = extract(Foreign(model), task, split="ood", n=6, pairs=PAIRS)
    plain = extract(model, task, split="ood", n=6, pairs=PAIRS)
    np.testing.assert_allclose(written.scores, wanted.scores, rtol=1e-4, atol=1e-5)
    assert not np.allclose(written.scores, plain.scores, atol=1e-2)
    assert len(spied) == 2


def test_dropout_is_off_and_the_mode_restored() -> None:
    task = make_task(PERMUTED)
    config = SMALL(n_layers=1, attention_dropout=0.5)
    model = HookedTransformer(config).train()
    found = extract(model, task, split="ood", n=6)
    assert model.training
    wanted = extract(model.eval(), task, split="ood", n=6)
    np.testing.assert_array_equal(found.scores, wanted.scores)
    np.testing.assert_array_equal(found.labels["loss"], wanted.labels["loss"])
    assert not model.training


# --- Which instances ------------------------------------------------------------------------------


@pytest.mark.parametrize("batch_size", [3, 8, 100])
def test_instances_depend_neither_on_the_batch_size_nor_on_their_number(
    batch_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw_at_once(monkeypatch, 8)
    task, config = make_task(PERMUTED), SMALL(n_layers=1)
    model = HookedTransformer(config).eval()
    whole = extract(model, task, split="ood", n=21, residuals=True)
    for n in (1, 13, 21):
        part = extract(model, task, split="ood", n=n, batch_size=batch_size, residuals=True)
        exact = ["combination", "target_0", "context_1_2", "accuracy"]
        assert part.labels[exact].equals(whole.labels[exact][:n])
        np.testing.assert_allclose(part.scores, whole.scores[:n], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(part.residuals, whole.residuals[:n], rtol=1e-4, atol=1e-5)
    assert not whole.labels[:8].equals(whole.labels[8:16].reset_index(drop=True))
    other = extract(model, task, split="ood", n=21, seed=1)
    assert other.labels["combination"].tolist() != whole.labels["combination"].tolist()


def test_blocks_do_not_change_what_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """However little may wait on the device."""
    task = make_task(PERMUTED)
    model = HookedTransformer(SMALL()).eval()
    read = partial(extract, model, task, split="ood", n=20, pairs=PAIRS, residuals=True,
                   batch_size=4)
    whole = read()
    monkeypatch.setattr(reader, "BLOCK_BYTES", 1)
    parts = read()
    np.testing.assert_array_equal(parts.scores, whole.scores)
    assert whole.residuals is not None
    np.testing.assert_array_equal(parts.residuals, whole.residuals)
    assert parts.labels.equals(whole.labels)


def test_a_run_is_extracted_trained_and_untrained(run: lc.Run) -> None:
    trained = lc.extract(run, split="ood", n=20)
    again = lc.extract(run.path, split="ood", n=20, batch_size=7)
    untrained = lc.extract(run, split="ood", n=20, untrained=True)
    assert trained.layers == (0, 1)
    assert [p.name for p in trained.pairs] == ["query->query"]
    assert trained.labels["function"].tolist() == untrained.labels["function"].tolist()
    assert not np.allclose(trained.scores, untrained.scores)
    assert trained.meta["kind"] == "hyla"
    assert trained.meta["step"] == 30
    assert untrained.meta["step"] == 0
    assert again.scores.shape == trained.scores.shape
    initial = HookedTransformer(run.config.model, seed=run.config.training.seed).eval()
    wanted = extract(initial, make_task(run.config.task), split="ood", n=20)
    np.testing.assert_array_equal(untrained.scores, wanted.scores)


def test_what_cannot_be_extracted_is_named(run: lc.Run) -> None:
    with pytest.raises(UnknownNameError, match=r"unknown pair 'query->qeury'.*query->query"):
        lc.extract(run, pairs=["query->qeury"])
    with pytest.raises(UnknownNameError, match="unknown layer 2; expected one of: 0, 1"):
        lc.extract(run, layers=[2])
    with pytest.raises(ConfigError, match="task has d_input 8 and d_output 8; expected 4 and 1"):
        lc.extract(run, problems=lc.SravenConfig())
    with pytest.raises(SplitError, match="unknown"):
        extract(HookedTransformer(model_for(PERMUTED)), make_task(PERMUTED), split="unknown", n=1)


def test_a_hook_works_on_a_model_that_has_just_been_trained() -> None:
    """Training leaves nothing behind, such as a compiled path, that a hook would not reach."""
    config = lc.preset("smoke", "logic", "hyla")
    state = TrainingState.start(config)
    for _ in range(3):
        state.update()
    inputs, model = state.batches[state.step].inputs, state.model.eval()
    with torch.no_grad():
        plain = model(inputs)
        same, other = (model.run_with_hooks(inputs, fwd_hooks=[
            ("blocks.0.attn.hook_pattern", lambda pattern, hook, put=put: put(pattern))])
            for put in (torch.clone, torch.zeros_like))
    torch.testing.assert_close(plain, same)
    assert not torch.allclose(plain, other)
