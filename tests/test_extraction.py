"""Extraction reads what a run with a cache holds, keeps no more, and is the same for any batch."""

from pathlib import Path

import numpy as np
import pytest
import torch

import latentcode as lc
from latentcode.errors import ConfigError, SplitError, UnknownNameError
from latentcode.extraction import extract_codes, gather_codes
from latentcode.models.transformer import HookedTransformer
from latentcode.presets import model_for
from latentcode.tasks import make_task
from latentcode.training import training_step
from latentcode.training.loop import TrainingState

PERMUTED = lc.SravenConfig(n_features=3, n_values=5)
PAIRS = ("response->response", "response.0->row3.panel1.same", "response.2->row3.panel2.2")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> lc.Run:
    return lc.train(lc.preset("smoke", "logic", "hyla"),
                    tmp_path_factory.mktemp("runs") / "hyla", progress=False)


def test_gathered_codes_are_entries_of_the_pattern() -> None:
    pattern = torch.randn(3, 4, 5, 6)
    query, key = torch.tensor([[0, 4], [1, 1], [2, 0]]), torch.tensor([[5, 0], [1, 2], [3, 3]])
    codes = gather_codes(pattern, query, key)
    for b in range(3):
        for p in range(2):
            assert torch.equal(codes[b, p], pattern[b, :, query[b, p], key[b, p]])


def test_codes_and_residuals_are_those_of_run_with_cache() -> None:
    task = make_task(PERMUTED)
    model = HookedTransformer(model_for(PERMUTED, n_layers=3, d_model=16, n_heads=4)).eval()
    codes = extract_codes(model, task, "ood", n=7, pairs=PAIRS, layers=(2, 0), residuals=True,
                          seed=5, batch_size=3)
    assert codes.scores.shape == (7, 2, 3, 4)
    assert codes.residuals is not None
    assert codes.residuals.shape == (7, 2, 2, 16)  # two of the three pairs share a query
    generator = lc.make_generator(5, "extract ood")
    batches = [task.sample("ood", n, generator) for n in (3, 3, 1)]
    done = 0
    for batch in batches:
        with torch.no_grad():
            # Hooks inside LayerNorm would take its unfused path, with other last digits.
            logits, cache = model.run_with_cache(
                batch.inputs, names_filter=lambda name: "ln" not in name)
        query, key = task.positions(PAIRS, batch)
        for b in range(len(batch)):
            for place, layer in enumerate((2, 0)):
                for p, pair in enumerate(PAIRS):
                    code = cache["pattern", layer][b, :, query[b, p], key[b, p]].numpy()
                    np.testing.assert_array_equal(codes.scores[done + b, place, p], code)
                    stream = cache["resid_pre", layer][b, query[b, p]].numpy()
                    np.testing.assert_array_equal(
                        codes.select_residual(layer=layer, pair=pair)[done + b], stream)
        labels = codes.labels.iloc[done:done + len(batch)]
        assert labels["rule_2"].tolist() == task.labels(batch)["rule_2"].tolist()
        accuracy = task.scores(logits, batch)["accuracy"].numpy()
        np.testing.assert_array_equal(labels["accuracy"], accuracy)
        done += len(batch)


def test_pairs_by_feature_follow_the_permutation() -> None:
    """On permuted features `same` picks another token than the position does."""
    task = make_task(PERMUTED)
    batch = task.sample("train", 64, lc.make_generator(0, "test"))
    _, by_position = task.positions(["response.1->row3.panel1.1"], batch)
    _, by_feature = task.positions(["response.1->row3.panel1.same"], batch)
    assert (by_position == by_position[0]).all()
    permutations = batch.info["permutations"]
    for b in range(64):
        feature = permutations[b, 2, 1]
        token = int((permutations[b, 0] == feature).nonzero())
        assert int(by_feature[b]) == 6 * 3 + token


def test_a_run_is_extracted_trained_and_untrained(run: lc.Run) -> None:
    trained = lc.extract(run, "ood", n=20)
    again = lc.extract(run, "ood", n=20, batch_size=7)
    untrained = lc.extract(run, "ood", n=20, untrained=True)
    assert trained.layers == (0, 1)
    assert [p.name for p in trained.pairs] == ["query->query"]
    assert trained.labels["function"].tolist() == untrained.labels["function"].tolist()
    assert not np.allclose(trained.scores, untrained.scores)
    assert trained.meta["kind"] == "hyla"
    assert trained.meta["step"] == 30
    assert untrained.meta["step"] == 0
    assert again.scores.shape == trained.scores.shape
    initial = HookedTransformer(run.config.model, seed=run.config.training.seed).eval()
    wanted = extract_codes(initial, make_task(run.config.task), "ood", n=20)
    np.testing.assert_array_equal(untrained.scores, wanted.scores)


def test_codes_of_a_run_survive_saving(run: lc.Run, tmp_path: Path) -> None:
    codes = lc.extract(run, "train", n=9, residuals=True)
    codes.save(tmp_path / "codes")
    loaded = lc.LatentCodes.load(tmp_path / "codes")
    np.testing.assert_array_equal(loaded.scores, codes.scores)
    assert loaded.labels.equals(codes.labels)
    assert loaded.meta == codes.meta


def test_what_cannot_be_extracted_is_named(run: lc.Run) -> None:
    with pytest.raises(UnknownNameError, match=r"unknown pair 'query->qeury'.*query->query"):
        lc.extract(run, pairs=["query->qeury"])
    with pytest.raises(UnknownNameError, match="unknown layer 2; expected one of: 0, 1"):
        lc.extract(run, layers=[2])
    with pytest.raises(UnknownNameError, match="unknown split 'valid'"):
        lc.extract(run, "valid")
    with pytest.raises(ConfigError, match="n is 0"):
        lc.extract(run, n=0)
    with pytest.raises(ConfigError, match="task has d_input 8 and d_output 8; expected 4 and 1"):
        lc.extract(run, task=lc.SravenConfig())
    with pytest.raises(SplitError, match="unknown"):
        extract_codes(HookedTransformer(model_for(PERMUTED)), make_task(PERMUTED), "unknown", n=1)


def test_a_hook_works_on_a_model_that_has_just_been_trained() -> None:
    """Training leaves nothing behind, such as a compiled path, that a hook would not reach."""
    config = lc.preset("smoke", "logic", "hyla")
    state = TrainingState.start(config)
    task = make_task(config.task)
    for _ in range(3):
        batch = task.sample("train", 8, state.generators["data"])
        training_step(state.model, task, batch, state.optimizer,
                      generator=state.generators["dropout"])
    model = state.model.eval()
    with torch.no_grad():
        before = model(batch.inputs)
        same = model.run_with_hooks(batch.inputs, fwd_hooks=[
            ("blocks.0.attn.hook_pattern", lambda pattern, hook: pattern.clone())])
        after = model.run_with_hooks(batch.inputs, fwd_hooks=[
            ("blocks.0.attn.hook_pattern", lambda pattern, hook: torch.zeros_like(pattern))])
    assert torch.equal(before, same)
    assert not torch.allclose(before, after)
