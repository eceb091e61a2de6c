"""Does the library still compute what it computed at commit 04995c8?

tests/golden/frozen holds a tiny run of each task, codes, a result of every probe, a sweep, and in
expected.json numbers that the code of then gave for them and for the zoo; for models that came into
the zoo later, those of the day on which they came. Formats and names were brought up to date with
latentcode 1.0 and experiments/convert_1_0.py, which change no number. What was called, with which
numbers, is in tests/golden/frozen/make.py of v1.0.0 (commit 5502a4b2).

Tolerances. Another processor or number of threads adds up float32 in another order, which moves
logits and codes by about 1e-6. A mean over instances moves as little, but an answer on the border
between two tips over: what counts instances may differ by two of them.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from fingerprints import digests, fingerprint
from packaging.version import Version
from places import GOLDEN

import latentcode as lc
from latentcode.cli import main
from latentcode.probes.common.results import TableResult, load_result
from latentcode.sweep import existing, sweep
from latentcode.training.loop import make_learner

FROZEN = GOLDEN / "frozen"
same_initial_weights = pytest.mark.skipif(
    Version(torch.__version__) < Version("2.12"),
    reason="before torch 2.12 truncated normals are drawn in another way: a seed is another model")
EXPECTED: dict[str, Any] = json.loads((FROZEN / "expected.json").read_text(encoding="utf-8"))


@cache
def frozen_run(name: str) -> lc.Run:
    return lc.Run.open(FROZEN / name)


def frozen_codes(split: str) -> lc.LatentCodes:
    return lc.LatentCodes.load(FROZEN / f"codes-{split}")


def frozen_result(name: str) -> TableResult:
    return load_result(FROZEN / name)


def metrics_of(run: lc.Run) -> dict[str, dict[str, tuple[float, int]]]:
    task, model = lc.make_task(run.config.task), run.load_model()
    return {split: {name: (metric.mean, metric.n) for name, metric in
                    lc.evaluate(model, task, split, 256, seed=0).items() if "[" not in name}
            for split in task.splits}


def writes() -> list[lc.Patch]:
    chosen = [lc.Patch(patch, scope, layers)
              for patch in ("interchange", "control", "class_mean", "resample", "shuffled", "erase")
              for scope, layers in (("pair", (0, 1)), ("row", (1,)))]
    return [*chosen, lc.Patch("interchange", "row", (1,), "residual"),
            lc.Patch("interchange", "row", (1,), heads=(0,)),
            lc.Patch("steer", "row", (1,), alpha=2.0, renormalize=True)]


# What the tests compare with.

MEMBERS = sorted(path.name for path in (FROZEN / "sweep").glob("*/"))
RESULTS = sorted(EXPECTED["results"])
RUNS = ("logic", "sraven")
SHOWN = [*RUNS, *RESULTS, "codes-train", "codes-ood", *(f"sweep/{name}" for name in MEMBERS)]
LATER = ["width", "size", "dimensions"]
"""Columns that tables of decoding have got since then."""
COUNTED = ("accuracy", "feature_accuracy", "flip", "unchanged", "others")
"""Metrics that are shares of instances."""


def members() -> list[lc.Run]:
    return [frozen_run(f"sweep/{name}") for name in MEMBERS]


def assert_metrics(found: Any, wanted: Any) -> None:
    """Losses to 1e-4 of themselves, R2 to 1e-3, shares to two instances."""
    assert found.keys() == wanted.keys()
    for split, of_split in wanted.items():
        assert found[split].keys() == of_split.keys()
        for name, (mean, n) in of_split.items():
            tolerance = ({"rel": 1e-4} if name == "loss" else {"abs": 1e-3}
                         if name.startswith("r2") else {"abs": 2.5 / n})
            assert found[split][name] == (pytest.approx(mean, **tolerance), n), (split, name)


def assert_same(found: TableResult, name: str, **tolerances: Any) -> None:
    """Compare with the frozen result of a name, each table within its tolerance.

    A tolerance is a number, or a function of the frozen table: a number per row.
    """
    frozen = frozen_result(name)
    assert type(found) is type(frozen)
    for table, tolerance in tolerances.items():
        mine, theirs = getattr(found, table), getattr(frozen, table)
        assert_tables(mine, theirs, tolerance(theirs) if callable(tolerance) else tolerance)


def assert_tables(
    mine: pd.DataFrame, theirs: pd.DataFrame, tolerance: Any, without: Sequence[str] = ()
) -> None:
    """Text and whole numbers the same, other numbers within an absolute tolerance (per row).

    Not those of shuffled labels and of unrelated instances, whose null is another since 2.0.
    """
    assert list(mine.columns) == list(theirs.columns)
    assert len(mine) == len(theirs)
    if "features" in theirs:
        compared = (theirs["features"] != "shuffled").to_numpy()
        mine, theirs = mine[compared], theirs[compared]
        tolerance = tolerance[compared] if isinstance(tolerance, np.ndarray) else tolerance
    for column in theirs.columns.difference([*without, "null"]):
        a, b = mine[column], theirs[column]
        if pd.api.types.is_float_dtype(b) and pd.api.types.is_numeric_dtype(a):
            x, y = (s.to_numpy(dtype=np.float64, na_value=np.nan) for s in (a, b))
            assert (np.isnan(x) == np.isnan(y)).all(), column
            far = np.nan_to_num(np.abs(x - y)) > tolerance
            assert not far.any(), (column, theirs[far].assign(now=x[far]).head().to_string())
        else:
            # An empty cell is read as missing.
            x, y = (s.astype(object).where(s.notna(), "").astype(str).replace("None", "")
                    for s in (a, b))
            assert x.tolist() == y.tolist(), column


# The frozen files open, with the numbers of then.


def test_nobody_has_changed_the_frozen_files() -> None:
    assert {name: digest for name, digest in digests(FROZEN).items()
            if name != "expected.json"} == EXPECTED["files"]
    assert sum(path.stat().st_size for path in FROZEN.rglob("*") if path.is_file()) < 1_000_000


@pytest.mark.parametrize("name", RUNS)
def test_a_run_opens(name: str) -> None:
    run = frozen_run(name)
    assert run.is_complete
    assert run.checkpoints() == ([990, 1000] if name == "logic" else [3000])
    assert fingerprint(run.metrics()) == EXPECTED["rows_of_metrics"][name]


@pytest.mark.parametrize("split", ["train", "ood"])
def test_codes_open(split: str) -> None:
    codes, wanted = frozen_codes(split), EXPECTED["codes"][split]
    assert list(codes.scores.shape) == wanted["shape"]
    assert [pair.name for pair in codes.pairs] == wanted["pairs"]
    assert float(codes.scores[0, 1, 0, 2]) == wanted["first"][1][2]
    assert float(codes.scores.sum(dtype=np.float64)) == pytest.approx(wanted["sum"], rel=1e-12)
    assert fingerprint(codes.labels) == wanted["labels"]


@pytest.mark.parametrize("name", RESULTS)
def test_a_result_opens(name: str) -> None:
    result = frozen_result(name)
    wanted = EXPECTED["results"][name]
    assert {table: fingerprint(getattr(result, table)) for table in wanted} == wanted
    # What the format has got since then, it has not.
    assert all(result.tables()[table].empty for table in set(result.COLUMNS) - set(wanted))


@pytest.mark.parametrize("name", SHOWN)
def test_it_is_shown(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    main(["show", str(FROZEN / name)])
    assert len(capsys.readouterr().out.splitlines()) > 3


# Computed again, the numbers are those of then.


@same_initial_weights
@pytest.mark.parametrize("name", RUNS)
def test_training_begins_as_it_did(name: str) -> None:
    """Initial weights, stream of data, learning rates and updates: five losses depend on all."""
    learner = make_learner(frozen_run(name).config)
    for _ in range(5):
        learner.update()
    assert learner.recent_losses()[0] == pytest.approx(EXPECTED["first_losses"][name], rel=1e-4)


@pytest.mark.parametrize("name", RUNS)
def test_a_run_has_the_metrics_that_it_had(name: str) -> None:
    assert_metrics(metrics_of(frozen_run(name)), EXPECTED["metrics"][name])


@pytest.mark.parametrize("split", ["train", "ood"])
def test_a_run_has_the_codes_that_it_had(split: str) -> None:
    frozen = frozen_codes(split)
    found = lc.extract(frozen_run("logic"), split=split, n=200,
                       pairs=EXPECTED["codes"][split]["pairs"])
    np.testing.assert_allclose(found.scores, frozen.scores, rtol=0, atol=1e-4)
    assert (found.pairs, found.layers) == (frozen.pairs, frozen.layers)
    assert_tables(found.labels, frozen.labels, 1e-4)
    assert {name: value for name, value in found.meta.items() if name in
            ("run_id", "config_hash", "split", "seed", "step", "kind", "task", "model")
            }.items() <= dict(frozen.meta).items()


def test_training_goes_on_as_it_did(tmp_path: Path) -> None:
    """Ten updates from a checkpoint, with the optimiser's state, to the metrics of the end.

    Adam divides tiny gradients by their size, so that rounding moves single weights by more than
    itself: metrics are compared and not weights.
    """
    folder = Path(shutil.copytree(FROZEN / "logic", tmp_path / "logic"))
    shutil.rmtree(folder / "checkpoints" / "step_0001000")
    again = lc.train(frozen_run("logic").config, folder, resume=True, progress=False)
    found, wanted = (run.metrics().query("step == 1000 and not metric.str.contains('[', "
                                         "regex=False)").reset_index(drop=True)
                     for run in (again, frozen_run("logic")))
    assert_tables(found, wanted, np.maximum(1e-3 * wanted["mean"].abs(), 2e-3).to_numpy())


def decoding_tolerance(table: pd.DataFrame) -> np.ndarray:
    """Two instances of accuracy; F1, the mean over classes of unequal size, moves by more."""
    counted = 2.5 / table["n_heldout"]
    return np.where(table["metric"] == "accuracy", counted, 4.0 * counted)


def assert_decoding(found: TableResult, frozen: pd.DataFrame) -> None:
    """Compare tables of decoding, a row per probe and metric.

    A probe chooses its penalty by counting right answers in a cross-validation, which can be a
    tie that rounding breaks: one probe in ten may have chosen another one, and only that one may
    have another score. Bounds of intervals are quantiles of few combinations and move by more
    than the score.
    """
    table = found.table.drop(columns=LATER)
    frozen = frozen.drop(columns=LATER, errors="ignore")
    other = ~np.isclose(table["C"], frozen["C"], rtol=1e-6)
    assert other.mean() <= 0.1, table[other].to_string()
    tolerance = np.where(other, 0.1, decoding_tolerance(frozen))
    assert_tables(table, frozen, tolerance, without=("C", "low", "high"))
    ends = ["features", "low", "high"]
    assert_tables(table[ends], frozen[ends], 4.0 * tolerance)


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_a_run_decodes_as_it_did(name: str) -> None:
    folder = {"logic": "decoding", "sraven": "decoding-sraven"}[name]
    found = lc.decode(frozen_run(name), n_train=500, n_heldout=500)
    assert_decoding(found, frozen_result(folder).table)
    assert {key: found.settings[key] for key in ("penalties", "n_folds", "selection_instances")
            }.items() <= dict(frozen_result(folder).settings).items()


def test_codes_decode_as_they_did() -> None:
    found = lc.decode(frozen_codes("train"), frozen_codes("ood"), ["term_1"], controls=False)
    assert_decoding(found, frozen_result("decoding-codes").table)


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_interventions_do_what_they_did(name: str) -> None:
    folder, split, n = {"logic": ("intervention", "ood", None),
                        "sraven": ("intervention-sraven", "train", 4)}[name]
    result = lc.intervene(frozen_run(name), interventions=writes()[:n], split=split, n=600,
                          n_reference=400, n_bootstrap=200, factorial=False)
    # Since 2.0 metrics of symbols come in another order.
    found, frozen = (table.sort_values("metric", kind="stable", ignore_index=True)
                     for table in (result.table, frozen_result(folder).table))
    # An instance that the model answers on the border of right and wrong may or may not count.
    assert ((found["n"] - frozen["n"]).abs() <= 2).all()
    tolerance = np.where(frozen["metric"].isin(COUNTED), 2.5 / frozen["n"], 5e-3)
    assert_tables(found, frozen, tolerance, without=("n", "low", "high"))
    assert_tables(found[["low", "high"]], frozen[["low", "high"]], 4.0 * tolerance)


@pytest.mark.parametrize("name", sorted(EXPECTED["bench"]))
def test_the_bench_writes_as_it_did(name: str) -> None:
    run, patch = name.split(", ")
    bench = lc.Bench.of_run(frozen_run(run), n=40)
    target = bench.targets(3, 0)[0]
    outcome = bench.patch(lc.Patch(patch, layers=(0, 1)), 3, target)
    wanted = EXPECTED["bench"][name]
    assert (target, outcome.base_label, outcome.table["patch"].tolist()) == (
        wanted["target"], wanted["source"], wanted["writes"])
    assert outcome.truth == pytest.approx(wanted["truth"], abs=1e-6)
    np.testing.assert_allclose(outcome.before, wanted["before"], rtol=0, atol=1e-4)
    np.testing.assert_allclose(outcome.outputs, wanted["outputs"], rtol=0, atol=1e-4)


@same_initial_weights
def test_similarity_is_what_it_was() -> None:
    found = lc.similarity(frozen_run("logic"), layers=[1], n=400, n_samples=4, n_bootstrap=200)
    # Cosines of centred means divide by differences that are small where nothing varies.
    assert_same(found, "similarity", cosines=2e-3, means=1e-3, samples=1e-3, concentration=1e-3)


@same_initial_weights
def test_value_networks_are_what_they_were() -> None:
    found = lc.value_networks(frozen_run("logic"), labels=["term_1"], n=400, n_inputs=32)
    assert_same(found, "value-networks", networks=relative, spectra=relative, cosines=2e-3)


def relative(table: pd.DataFrame) -> np.ndarray:
    """1e-3 of the largest number of a row, and at least 1e-3: norms have no natural size."""
    numbers = table.select_dtypes("float").abs().max(axis=1)
    return 1e-3 * np.maximum(numbers.to_numpy(dtype=np.float64), 1.0)


def test_a_projection_is_what_it_was(tmp_path: Path) -> None:
    train, heldout = frozen_codes("train"), frozen_codes("ood")
    found = lc.project(train, heldout, ["term_1"], method="pca", pairs=[train.pairs[0].name],
                       cache=tmp_path)
    # Neighbours that are as far away as each other change places.
    assert_same(found, "projection", coordinates=1e-3, quality=2e-3, labels=0.02)


@pytest.mark.slow
def test_alignment_is_what_it_was() -> None:
    found = lc.align(members()[:2], labels=["term_1"], n_train=300, n_heldout=300, n_bootstrap=200)
    # Transferred probes count 300 instances; the rest are sums over all of them.
    assert_same(found, "alignment", **{
        table: 10 / 300 if table == "transfer" else 5e-3
        for table in found.COLUMNS if table != "contrasts"})


@pytest.mark.slow
def test_topography_is_what_it_was() -> None:
    """Ranks of distances that are almost the same change places, in untrained models above all.

    That moves quantiles, of resampled distances between few units, by more than the correlation;
    and ranks of four runs by a whole place, so that theirs are compared for trained codes alone.
    """
    frozen = frozen_result("topography")
    found = lc.topography(members(), labels=["terms"], n=300, n_instances=200, n_bootstrap=200)
    assert_same(found, "topography", runs=1e-4)
    quantiles = ["low", "high", "p", "null_high"]
    assert_tables(found.table, frozen.table, 0.02, without=quantiles)
    assert_tables(found.table[quantiles], frozen.table[quantiles], 0.2)
    code = frozen.correlation["features"] == "code"
    assert_tables(found.correlation[code], frozen.correlation[code], 0.01)


def test_the_sweep_is_complete_and_its_table_is_what_it_was(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(FROZEN / "sweep", tmp_path / "sweep"))
    before = {name: digest for name, digest in digests(folder).items() if "/" in name}
    grid = existing(folder)
    result = sweep(grid, folder, processes=1)
    assert result.missing == ()
    assert result.failed == {}
    assert fingerprint(result.table) == EXPECTED["sweep"]["table"]
    assert fingerprint(result.summary) == EXPECTED["sweep"]["summary"]
    after = digests(folder)
    assert {name: after[name] for name in before} == before, "nothing is trained again"


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(EXPECTED["zoo"]))
def test_a_model_of_the_zoo_has_the_metrics_that_it_had(name: str) -> None:
    assert_metrics(metrics_of(lc.load_run(name)), EXPECTED["zoo"][name]["metrics"])


def test_the_zoo_has_the_models_that_it_had() -> None:
    assert set(EXPECTED["zoo"]) <= set(lc.list_models().index)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "label"), [("logic-hyla", "term_1"), ("sraven-hyla", "rule")])
def test_a_model_of_the_zoo_decodes_as_it_did(name: str, label: str) -> None:
    frozen = pd.DataFrame(EXPECTED["zoo"][name]["decoding"])
    found = lc.decode(name, labels=[label], layers=[1], n_train=512, n_heldout=512)
    assert_decoding(found, frozen)
