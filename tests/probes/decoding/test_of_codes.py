"""Does a probe find what is planted and nothing else, and is it never alone?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from decoded_codes import decode_codes
from disk import flip
from matplotlib.figure import Figure

from latentcode.codes import LatentCodes
from latentcode.errors import ArtifactError
from latentcode.probes.common.statistics import chance
from latentcode.probes.decoding import DecodingResult

LABELS = ["term_1", "terms"]
FAST = {"n_shuffles": 1, "n_bootstrap": 200}


@pytest.fixture(scope="module")
def result(planted: Callable[..., LatentCodes]) -> DecodingResult:
    return decode_codes(planted("train"), planted("ood"), LABELS, n_shuffles=2, n_bootstrap=200,
                  untrained=(planted("train", strength=0.0), planted("ood", strength=0.0)))


def row(result: DecodingResult, **where: object) -> pd.Series:
    table = result.table
    for column, value in where.items():
        table = table[table[column] == value]
    assert len(table) == 1
    return table.iloc[0]


CODE = {"layer": 1, "pair": "query->query"}


@pytest.mark.parametrize(("label", "metric"), [("term_1", "accuracy"), ("term_1", "macro_f1"),
                                               ("terms", "f1")])
def test_planted_terms_are_decoded_on_unseen_functions(
    result: DecodingResult, label: str, metric: str
) -> None:
    place = CODE | {"label": label, "metric": metric}
    code = row(result, **place, features="code")
    assert code["value"] > 0.95
    assert code["low"] > 0.85
    assert code["high"] <= 1.0
    assert row(result, **place, features="residual")["value"] > 0.8
    assert row(result, **place, features="untrained")["value"] < 0.5
    assert row(result, **place, features="shuffled")["value"] < 0.5


@pytest.mark.parametrize("place", [{"layer": 0, "pair": "query->query"},
                                   {"layer": 1, "pair": "query->example"}])
def test_noise_is_at_chance(result: DecodingResult, place: dict[str, object]) -> None:
    noise = row(result, **place, label="term_1", metric="accuracy", features="code")
    assert noise["low"] <= noise["chance"] <= noise["high"]
    f1 = row(result, **place, label="terms", metric="f1", features="code")
    assert f1["value"] < f1["chance"]


def test_table_is_tidy_and_complete(result: DecodingResult) -> None:
    table = result.table
    # 2 layers, 2 pairs, 4 features; two metrics for term_1 and one for terms.
    assert len(table) == 2 * 2 * 4 * 3
    key = ["layer", "pair", "label", "features", "metric"]
    assert not table.duplicated(key).any()
    assert table[["value", "low", "high", "chance", "C"]].notna().all(axis=None)
    assert table["value"].between(0, 1).all()
    assert (table["low"] <= table["high"]).all()
    one = table.iloc[0]
    assert (one["n_train"], one["n_heldout"]) == (180, 120)
    assert (one["n_train_combinations"], one["n_heldout_combinations"]) == (9, 6)
    assert table["converged"].all()
    assert result.caveats == ()


def test_probes_on_the_same_residual_stream_agree(result: DecodingResult) -> None:
    residual = result.table[result.table["features"] == "residual"]
    by_pair = residual.pivot(index=["layer", "label", "metric"], columns="pair", values="value")
    np.testing.assert_array_equal(by_pair["query->query"], by_pair["query->example"])


def test_scores_per_class(result: DecodingResult, planted: Callable[..., LatentCodes]) -> None:
    classes = result.per_class
    mine = classes[(classes["layer"] == 1) & (classes["pair"] == "query->query")
                   & (classes["label"] == "terms") & (classes["features"] == "code")]
    assert list(mine["class"]) == ["t0", "t1", "t2", "t3", "t4", "t5"]
    assert (mine["n_heldout"] == 40).all()
    headline = row(result, **CODE, label="terms", metric="f1", features="code")
    assert mine["f1"].mean() == pytest.approx(headline["value"])


@pytest.mark.slow
def test_only_the_seed_changes_the_numbers(planted: Callable[..., LatentCodes]) -> None:
    def run(seed: int, n_jobs: int = 1) -> pd.DataFrame:
        return decode_codes(planted("train"), planted("ood"), ["term_1"], layers=[1],
                      pairs=["query->query"], controls=False, seed=seed, n_jobs=n_jobs,
                      **FAST).table

    first = run(0)
    pd.testing.assert_frame_equal(first, run(0), check_exact=True)
    pd.testing.assert_frame_equal(first, run(0, n_jobs=2), check_exact=True)
    other = run(1)
    shuffled = first["features"] == "shuffled"
    assert (first.loc[~shuffled, "value"] == other.loc[~shuffled, "value"]).all()
    assert (first.loc[shuffled, "value"] != other.loc[shuffled, "value"]).any()


def test_heldout_labels_play_no_part_in_the_fit(planted: Callable[..., LatentCodes]) -> None:
    train, heldout = planted("train"), planted("ood")
    rolled = replace(heldout, labels=heldout.labels.assign(
        term_1=np.roll(heldout.labels["term_1"].to_numpy(), 20)))
    place = {"layers": [1], "pairs": ["query->query"], "controls": False}
    right = decode_codes(train, heldout, ["term_1"], **place, **FAST).table
    wrong = decode_codes(train, rolled, ["term_1"], **place, **FAST).table
    assert (right["C"] == wrong["C"]).all()
    assert wrong["value"].iloc[0] < 0.5 < right["value"].iloc[0]


def test_unseen_classes_are_errors_and_are_told(planted: Callable[..., LatentCodes]) -> None:
    train, heldout = planted("train"), planted("ood")
    less = train.subset((train.labels["term_1"] != "t3").to_numpy())
    unseen = decode_codes(less, heldout, ["term_1"], layers=[1], pairs=["query->query"],
                    controls=False, **FAST)
    code = row(unseen, features="code", metric="accuracy")
    assert code["n_unseen"] == 20
    assert code["n_classes"] == 4
    assert code["value"] == pytest.approx(100 / 120, abs=0.03)
    t3 = unseen.per_class[unseen.per_class["class"] == "t3"]
    assert (t3["f1"] == 0.0).all()
    assert (t3["n_train"] == 0).all()
    assert "20 held-out instances" in unseen.caveats[1]


def test_without_controls_the_result_says_so(planted: Callable[..., LatentCodes]) -> None:
    bare = decode_codes(planted("train", residuals=False), planted("ood", residuals=False),
                        ["term_1"], layers=[1], controls=False, **FAST)
    assert bare.missing_controls == ("residual", "untrained")
    assert set(bare.table["features"]) == {"code", "shuffled"}
    assert "Without controls: residual, untrained." in repr(bare)


def test_a_single_heldout_combination_has_no_interval(
    planted: Callable[..., LatentCodes],
) -> None:
    heldout = planted("ood")
    one = heldout.subset((heldout.labels["combination"] == "0+3").to_numpy())
    table = decode_codes(planted("train"), one, ["term_1"], layers=[1], pairs=["query->query"],
                   controls=False, **FAST)
    assert table.table[["low", "high"]].isna().all(axis=None)
    assert "no interval" in table.caveats[-1]
    assert isinstance(table.figure(), Figure)


def test_progress_ends_at_the_total(planted: Callable[..., LatentCodes]) -> None:
    seen: list[tuple[int, int]] = []
    decode_codes(planted("train"), planted("ood"), ["term_1"], layers=[1], controls=False,
           progress=lambda done, total: seen.append((done, total)), **FAST)
    assert seen == [(1, 2), (2, 2)]


def test_chance_is_the_best_constant_answer() -> None:
    heldout = np.array([[1, 0, 0], [1, 0, 0], [0, 1, 0]], dtype=bool)
    assert chance(heldout, "accuracy") == pytest.approx(2 / 3)
    # Always the first: precision 2/3, recall 1, F1 0.8; the second class gets 0.
    assert chance(heldout, "macro_f1") == pytest.approx(0.8 / 2)
    assert chance(heldout, "f1") == pytest.approx((0.8 + 0.5) / 2)


def test_summary_shows_all_features(result: DecodingResult) -> None:
    summary = result.summary()
    assert list(summary.columns) == ["label", "metric", "pair", "layer", "code", "residual",
                                     "untrained", "shuffled", "chance"]
    assert len(summary) == 8
    assert summary["code"].str.match(r"^\d\.\d{3} \[").all()


@pytest.mark.parametrize("name", ["table.parquet", "per_class.parquet"])
def test_a_changed_number_is_noticed(result: DecodingResult, tmp_path: Path, name: str) -> None:
    folder = result.save(tmp_path / "probe")
    flip(folder / name)
    with pytest.raises(ArtifactError, match=f"{name} was damaged or changed after it was written"):
        DecodingResult.load(folder)


def test_a_figure_has_a_panel_per_score_and_pair(result: DecodingResult) -> None:
    figure = result.figure(("accuracy", "macro_f1", "f1"))
    assert len(figure.axes) == 3 * 2
    assert [axes.get_ylabel() for axes in figure.axes[::3]] == ["query->query", "query->example"]
