"""Are equal codes found equal, permuted heads found exactly, and unrelated ones unrelated?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import latentcode as lc
from latentcode.codes import LatentCodes
from latentcode.probes.alignment import (
    ALIGNMENTS,
    MEASURES,
    N_RANDOM,
    AlignmentResult,
    align,
    aligned,
    match_heads,
    random_match,
    rotated,
)
from latentcode.probes.common.labels import groups_of

Planted = Callable[..., LatentCodes]
FAST: dict[str, Any] = {"n_bootstrap": 100, "pairs": ["query->query"]}
ORDER = np.array([3, 0, 7, 1, 2, 11, 4, 10, 5, 6, 9, 8])
SIGN = np.array([1, -1, -1, 1, 1, -1, 1, 1, 1, -1, 1, -1.0])


def measured(name: str, x: np.ndarray, y: np.ndarray) -> float:
    return MEASURES[name](x, y)


def linear_cka(x: np.ndarray, y: np.ndarray) -> float:
    return measured("cka", x, y)


def procrustes_distance(x: np.ndarray, y: np.ndarray) -> float:
    return measured("procrustes", x, y)


def rotation(d: int, rng: np.random.Generator) -> np.ndarray:
    return np.asarray(np.linalg.qr(rng.normal(size=(d, d)))[0])


# --- Measures -------------------------------------------------------------------------------------


@settings(derandomize=True, deadline=None, max_examples=30)
@given(st.integers(1, 6), st.integers(0, 1000), st.floats(0.1, 10.0))
def test_neither_measure_sees_rotation_shift_or_scale(d: int, seed: int, scale: float) -> None:
    rng = np.random.default_rng(seed)
    x, other = rng.normal(size=(2, 30, d))
    y = scale * x @ rotation(d, rng) + rng.normal(size=d)
    assert linear_cka(x, y) == pytest.approx(1.0)
    assert procrustes_distance(x, y) == pytest.approx(0.0, abs=1e-9)
    assert linear_cka(y, other) == pytest.approx(linear_cka(x, other), abs=1e-9)
    assert procrustes_distance(y, other) == pytest.approx(procrustes_distance(x, other))


def slow_hsic(k: np.ndarray, m: np.ndarray) -> float:
    """Unbiased HSIC of Gram matrices, Eq. 5 of Song et al. (2012)."""
    n = len(k)
    k, m = k - np.diag(np.diag(k)), m - np.diag(np.diag(m))
    one = np.ones(n)
    return float(np.trace(k @ m) + (one @ k @ one) * (one @ m @ one) / ((n - 1) * (n - 2))
                 - 2 / (n - 2) * (one @ k @ m @ one))


def test_cka_against_gram_matrices() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(25, 4)) + 3.0
    y = x[:, :3] ** 2 + rng.normal(size=(25, 3))
    k, m = x @ x.T, y @ y.T
    assert linear_cka(x, y) == pytest.approx(
        slow_hsic(k, m) / np.sqrt(slow_hsic(k, k) * slow_hsic(m, m)))


def test_few_unrelated_instances_of_many_dimensions_are_unrelated() -> None:
    values, naive = [], []
    for seed in range(20):
        x, y = np.random.default_rng(seed).normal(size=(2, 30, 100))
        values.append(linear_cka(x, y))
        a, b = x - x.mean(axis=0), y - y.mean(axis=0)
        naive.append(np.square(a.T @ b).sum() / np.linalg.norm(a.T @ a) / np.linalg.norm(b.T @ b))
    assert abs(np.mean(values)) < 0.05
    assert np.mean(naive) > 0.6  # what debiasing takes away


def test_points_that_do_not_vary_have_no_similarity() -> None:
    x = np.random.default_rng(0).normal(size=(10, 3))
    still = np.ones((10, 3)) + 1e-9 * x
    assert np.isnan(linear_cka(still, x))
    assert np.isnan(procrustes_distance(x, still))


@settings(derandomize=True, deadline=None, max_examples=30)
@given(st.integers(1, 8), st.integers(0, 1000), st.booleans())
def test_permuted_heads_are_found_exactly(n_heads: int, seed: int, signed: bool) -> None:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(60, n_heads)) if signed else rng.random((60, n_heads))
    order = rng.permutation(n_heads)
    sign = rng.choice([-1.0, 1.0], n_heads) if signed else np.ones(n_heads)
    y = x[:, order] * sign
    matched, flipped = match_heads(x, y)
    np.testing.assert_array_equal(matched, np.argsort(order))
    np.testing.assert_allclose(y[:, matched] * flipped, x)


def test_codes_without_negative_entries_are_never_flipped() -> None:
    x = np.random.default_rng(0).random((50, 2))
    assert (match_heads(x, 1.0 - x)[1] == 1.0).all()
    assert (match_heads(x, -x)[1] == -1.0).all()


def test_the_best_rotation_is_found() -> None:
    rng = np.random.default_rng(0)
    x, turn = rng.normal(size=(50, 4)), rotation(4, rng)
    y = 3.0 * x @ turn + 7.0
    np.testing.assert_allclose(rotated(x, y, y), x)


# --- Models ---------------------------------------------------------------------------------------


def named(codes: LatentCodes, run: str, change: Callable[[np.ndarray], np.ndarray]) -> LatentCodes:
    """Return the codes of another model: those that `change` makes of the scores' last axis."""
    assert codes.residuals is not None
    return replace(codes, scores=change(codes.scores).astype(np.float32),
                   residuals=codes.residuals + 0.01, meta=codes.meta | {"run": run, "kind": "hyla"})


def noise(seed: int) -> Callable[[np.ndarray], np.ndarray]:
    rng = np.random.default_rng(seed)
    return lambda scores: rng.normal(size=scores.shape)


def models_of(planted: Planted, **changes: Callable[[np.ndarray], np.ndarray]) -> Any:
    both = planted("train", instances=12), planted("ood", instances=12)
    return [tuple(named(codes, run, change) for codes in both) for run, change in changes.items()]


CHANGES = {"a": lambda s: s, "permuted": lambda s: s[..., ORDER] * SIGN, "noise": noise(0)}


@pytest.fixture(scope="module")
def models(planted: Planted) -> Any:
    return models_of(planted, **CHANGES)


@pytest.fixture(scope="module")
def result(planted: Planted, models: Any) -> AlignmentResult:
    untrained = models_of(planted, **{run: noise(i) for i, run in enumerate(CHANGES, 1)})
    return align([lc.subject(*codes, untrained=initial) for codes, initial in zip(
        models, untrained, strict=True)], labels=["term_1"], **FAST)


def align_codes(models: Any, label: str, **settings: Any) -> AlignmentResult:
    """Align (training, held-out) codes without controls."""
    return align([lc.subject(*codes) for codes in models], labels=label, controls=False,
                 **FAST | settings)


def values(result: AlignmentResult, table: str, **where: object) -> Any:
    rows = getattr(result, table)
    for column, value in where.items():
        rows = rows[rows[column] == value]
    return rows


def test_a_permuted_model_is_the_same_model(result: AlignmentResult) -> None:
    where = {"run_a": "a", "run_b": "permuted", "features": "code"}
    same = values(result, "layers", **where, layer_a=1, layer_b=1).set_index("measure")
    assert same.loc["cka", "value"] == pytest.approx(1.0, abs=1e-5)
    assert same.loc["procrustes", "value"] == pytest.approx(0.0, abs=1e-3)
    assert 0.5 < same.loc["cka", "null"] < 0.9  # six combinations are alike anywhere
    heads = values(result, "heads", **where, layer=1)
    np.testing.assert_array_equal(heads["head_b"], np.argsort(ORDER))
    np.testing.assert_array_equal(heads["sign"], SIGN[np.argsort(ORDER)])
    np.testing.assert_allclose(heads["heldout"], 1.0, atol=1e-5)
    assert (heads["by_chance"] < 0.6).all()


@pytest.mark.parametrize("label", ["term_1", "terms"])
def test_probes_transfer_after_matching_only(
    result: AlignmentResult, models: Any, label: str
) -> None:
    if label == "terms":
        result = align_codes(models, "terms", layers=[1])
    where = {"label": label, "features": "code", "layer": 1}
    score = values(result, "transfer", run_a="a", run_b="permuted", **where).set_index(
        "alignment")["value"]
    assert score["matched"] == pytest.approx(score["own"])
    assert score["matched, scaled"] == pytest.approx(score["own"], abs=0.02)
    assert score["rotated"] == pytest.approx(score["own"], abs=0.02)
    assert score["own"] > 0.9
    for control in ("raw", "random", "random, scaled"):
        assert score[control] < score["own"] - 0.25, control
    unrelated = values(result, "transfer", run_a="a", run_b="noise", **where).set_index(
        "alignment")["value"]
    assert (unrelated.drop("own") < score["own"] - 0.25).all()
    assert set(score.index) == set(ALIGNMENTS)


def test_every_comparison_is_there_with_its_controls(result: AlignmentResult) -> None:
    assert set(result.layers["features"]) == {"code", "residual", "untrained"}
    couples = set(result.layers[["run_a", "run_b"]].itertuples(index=False, name=None))
    assert len(couples) == 6
    itself = values(result, "layers", run_a="a", run_b="a", features="code", measure="cka")
    assert list(itself[["layer_a", "layer_b"]].itertuples(index=False, name=None)) == [(0, 1)]
    assert len(result.transfer) == 6 * 3 * 2 * len(ALIGNMENTS)  # ordered pairs of runs
    untrained = values(result, "transfer", features="untrained", alignment="matched")
    assert (untrained["value"] < 0.6).all()


def test_matching_is_not_fitted_on_what_it_is_scored_on(planted: Planted) -> None:
    """Of noise, matched heads correlate where they were fitted and nowhere else."""
    both = planted("train", instances=3), planted("ood", instances=3)
    models: Any = [tuple(named(codes, str(seed), noise(10 + 2 * seed + i))
                         for i, codes in enumerate(both)) for seed in range(2)]
    heads = align_codes(models, "term_1").heads
    assert heads["fitted"].mean() > 0.2
    assert abs(heads["heldout"].mean()) < 0.1


def test_results_are_drawn(result: AlignmentResult, tmp_path: Path) -> None:
    noted = replace(result, settings={**result.settings, "heldout_trained_on": {
        "a": [0, 6], "permuted": [4, 6]}})
    folder = noted.save(tmp_path / "alignment")
    assert {"figure.png", "procrustes.png", "transfer.png"} <= {p.name for p in folder.iterdir()}
    assert "Run permuted was trained on 4 of the 6" in repr(noted)
    assert "Run a was" not in repr(noted)


# --- What was measured, written out slowly --------------------------------------------------------


def test_intervals_are_those_of_a_jackknife_over_groups(planted: Planted) -> None:
    both = planted("train", instances=3), planted("ood", instances=6)
    mixed = rotation(12, np.random.default_rng(0))
    other: Any = tuple(named(c, "b", lambda s: s @ mixed + 0.5 * s[..., ORDER]) for c in both)
    found = align_codes([both, other], "term_1", layers=[1]).layers
    found = found[found["run_a"] != found["run_b"]].set_index("measure")
    x, y = (c.select(layer=1, pair="query->query").astype(float) for c in (both[1], other[1]))
    group = groups_of(both[1].labels)
    n = int(group.max()) + 1
    for name in MEASURES:
        left_out = np.array([measured(name, x[group != g], y[group != g]) for g in range(n)])
        error = np.sqrt((n - 1) / n * np.square(left_out - left_out.mean()).sum())
        half = stats.t.ppf(0.975, n - 1) * error
        value = measured(name, x, y)
        assert half > 1e-3
        assert found.loc[name, "value"] == pytest.approx(value)
        assert found.loc[name, "low"] == pytest.approx(value - half, rel=1e-5)
        assert found.loc[name, "high"] == pytest.approx(value + half, rel=1e-5)


def test_heads_by_chance_are_all_but_the_matched_one(planted: Planted) -> None:
    both = planted("train"), planted("ood")
    other: Any = tuple(named(c, "b", lambda s: s[..., ORDER] * SIGN) for c in both)
    single: Any = [tuple(replace(c, scores=c.scores[..., :1]) for c in codes)
                   for codes in (both, other)]
    heads, alone = (align_codes(codes, "term_1", layers=[1]).heads
                    for codes in ([both, other], single))
    x, y = (c.select(layer=1, pair="query->query").astype(float) for c in (both[1], other[1]))
    for row in heads.itertuples():
        slow = [abs(np.corrcoef(x[:, row.head_a], y[:, j])[0, 1]) for j in range(12)
                if j != row.head_b]
        assert row.by_chance == pytest.approx(np.mean(slow), abs=1e-5)
    assert (heads["by_chance"] > 0.05).all()
    assert alone["by_chance"].isna().all()  # a single head has no others


def test_runs_that_began_alike_count_in_tables_only(result: AlignmentResult) -> None:
    where = ["kind_a", "kind_b", "pair", "layer", "features"]
    seeded = replace(result, settings={**result.settings, "initial_seeds": {
        "a": 0, "permuted": 0, "noise": 1}})
    apart = replace(result, **{name: table[
        (table["run_a"] == "noise") | (table["run_b"] == "noise")] for name, table in (
            ("layers", result.layers), ("heads", result.heads), ("transfer", result.transfer))})
    pd.testing.assert_frame_equal(seeded.summary(), apart.summary())
    assert not seeded.summary().equals(result.summary())
    told = next(note for note in seeded.caveats if "same seed" in note)
    assert told.endswith(": a and permuted.")
    code = seeded.summary().set_index(where).xs("code", level="features")
    assert (code["cka"] < 0.5).all()  # that of a and permuted is 1
    alone = replace(result, settings={**result.settings, "initial_seeds": dict.fromkeys(
        ("a", "permuted", "noise"), 0)})
    pd.testing.assert_frame_equal(alone.summary(), result.summary())
    assert any(note.startswith("All runs began with the same seed") for note in alone.caveats)
    assert not any("same seed" in note for note in result.caveats)


# --- What a probe is given of another model's codes -----------------------------------------------


@pytest.fixture
def points(planted: Planted) -> tuple[np.ndarray, np.ndarray]:
    train, heldout = (planted(split).select(layer=1, pair="query->query").astype(float)
                      for split in ("train", "ood"))
    return train, heldout


def test_heldout_points_of_b_determine_nothing(points: tuple[np.ndarray, np.ndarray]) -> None:
    x = points
    y = tuple(2.0 * part[:, ORDER] + 3.0 for part in x)
    noise = np.random.default_rng(0).normal(size=y[1].shape)
    found = aligned(x, (y[0], noise), 0)
    assert list(found) == list(ALIGNMENTS)
    order, _ = match_heads(x[0], y[0])
    np.testing.assert_array_equal(order, np.argsort(ORDER))
    np.testing.assert_allclose(found["own"][0], x[1])
    np.testing.assert_allclose(found["raw"][0], noise)
    np.testing.assert_allclose(found["matched"][0], noise[:, np.argsort(ORDER)])
    np.testing.assert_allclose(found["rotated"][0], rotated(x[0], y[0], noise))
    np.testing.assert_allclose(found["matched, scaled"][0],
                               (noise[:, np.argsort(ORDER)] - 3.0) / 2.0)


def test_random_matches_are_permutations_that_differ(
    points: tuple[np.ndarray, np.ndarray]
) -> None:
    x = points
    found = aligned(x, x, 0)["random"]
    orders = set()
    for variant in found:
        same = np.abs(variant[:, :, None]) == np.abs(x[1][:, None, :])
        order = same.all(axis=0)
        assert (order.sum(axis=0) == 1).all()
        assert (order.sum(axis=1) == 1).all()
        orders.add(tuple(order.argmax(axis=1).tolist()))
    assert len(orders) == N_RANDOM
    rng = np.random.default_rng(0)
    drawn = [random_match(3, signed, rng) for signed in (False, True) for _ in range(100)]
    assert len({tuple(order.tolist()) for order, _ in drawn}) == 6
    assert all((sign == 1.0).all() for _, sign in drawn[:100])
    assert {each for _, sign in drawn[100:] for each in sign.tolist()} == {-1.0, 1.0}


@pytest.mark.slow
def test_runs_that_began_alike_are_not_summarised(runs: list[lc.Run]) -> None:
    found = align(runs, labels=["rule"], n_train=100, n_heldout=80, layers=[1], n_bootstrap=100)
    assert found.settings["initial_seeds"] == {"softmax0": 0, "hyla0": 0, "softmax1": 1}
    assert (found.settings["n_train"], found.settings["n_heldout"]) == (100, 80)
    assert any("the same seed" in note and note.endswith(": softmax0 and hyla0.")
               for note in found.caveats)
