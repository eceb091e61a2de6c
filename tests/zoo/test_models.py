"""The models that come with the library are what their cards say."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import latentcode as lc
from latentcode.cli import main
from latentcode.metrics import is_by_constituent
from latentcode.models.config import kind_of
from latentcode.runs.run import ZOO, zoo_folders
from latentcode.zoo import README, Card

MODELS = sorted(zoo_folders())


def test_the_zoo_is_small_and_listed(
    capsys: pytest.CaptureFixture[str], refused: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = lc.list_models()
    assert {"sraven-hyla", "sraven-linear", "sraven-softmax"} <= set(table.index) == set(MODELS)
    assert table["megabytes"].sum() < 30
    main(["zoo", "list"])
    assert "sraven-hyla" in capsys.readouterr().out
    monkeypatch.setattr("latentcode.runs.run.ZOO", ZOO / "nowhere")
    assert "has no models in its zoo" in refused("zoo", "list")


@pytest.mark.parametrize("name", MODELS)
def test_a_model_is_the_one_of_its_card(name: str) -> None:
    folder, run = zoo_folders()[name], lc.load_run(name)
    card = Card.read(folder)
    assert card.name == name
    assert (folder / README).read_text(encoding="utf-8") == card.to_markdown()
    assert kind_of(run.config.model) == card.kind
    assert sum(p.numel() for p in run.load_model().parameters()) == card.parameters
    assert {metric.n for metrics in card.metrics.values() for name, metric in metrics.items()
            if not is_by_constituent(name)} == {card.evaluation.n}


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_the_model_is_as_good_as_its_card_says(name: str) -> None:
    """On 200 of 16,000 instances: within the tolerance and four standard errors."""
    run, card, n = lc.load_run(name), Card.read(zoo_folders()[name]), 200
    task = lc.make_task(run.config.task)
    assert set(task.splits) == set(card.metrics)
    for split, known in card.metrics.items():
        metrics = lc.evaluate(run.load_model(), task, split, n, seed=card.evaluation.seed,
                              precision=card.evaluation.precision)
        for metric in (m for m in known if not is_by_constituent(m)):
            allowed = card.evaluation.tolerance + 4.0 * known[metric].se * np.sqrt(
                1.0 + card.evaluation.n / n)
            assert abs(metrics[metric].mean - known[metric].mean) <= allowed, (split, metric)


