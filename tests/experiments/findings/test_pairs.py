"""Which pair's codes cluster by rule: the measure, and one small model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import latentcode as lc
from latentcode.experiments.findings.pairs import FEATURES, main, neighbours


def test_neighbours_of_planted_and_of_unrelated_labels() -> None:
    rng = np.random.default_rng(0)
    label, combination = rng.integers(4, size=600), rng.integers(12, size=600)
    planted = np.eye(4)[label] + 0.01 * rng.normal(size=(600, 4))
    assert neighbours(planted, label, combination).mean() == pytest.approx(1.0)
    unrelated = neighbours(rng.normal(size=(600, 4)), label, combination)
    assert abs(unrelated.mean()) < 0.05


def test_neighbours_are_those_of_other_combinations() -> None:
    """Points that are told apart by their combination alone tell nothing of a label within it."""
    combination = np.repeat(np.arange(20), 30)
    label = combination % 2
    points = combination[:, None] + 0.001 * np.random.default_rng(0).normal(size=(600, 1))
    assert neighbours(points, label, combination).mean() < 0.5


@pytest.mark.slow
def test_a_model_of_the_zoo(tmp_path: Path) -> None:
    folder = lc.load_run("sraven-hyla").path
    main((folder,), out=tmp_path, n=100)
    table = pd.read_csv(tmp_path / "pairs.csv")
    assert set(table["features"]) >= set(FEATURES)
    assert ((table["low"] <= table["value"]) & (table["value"] <= table["high"])).all()
    assert (tmp_path / "pairs.png").stat().st_size > 5_000
