"""Cards are read as they were written, or refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from small_zoo import NAME

from latentcode.errors import ArtifactError
from latentcode.files.storage import write_json
from latentcode.runs.run import folder_of
from latentcode.zoo import CARD, README, Card


def test_a_card_reads_as_it_was_written(entry: Path) -> None:
    card = Card.read(entry)
    card.write(entry.parent)
    assert Card.read(entry.parent) == card
    page = (entry / README).read_text()
    assert page == card.to_markdown()
    metric = card.metrics["ood"]["accuracy"]
    assert f"{metric.mean:.4f} ± {metric.se:.4f}" in page
    assert "latentcode train" in page
    by_rule = [card.metrics[split]["feature_accuracy[sum]"] for split in card.metrics]
    cells = " | ".join(f"{m.mean:.3f} ± {m.se:.3f}" for m in by_rule)
    assert f"| `feature_accuracy[sum]` | {cells} |" in page


@pytest.mark.parametrize(("edit", "message"), [
    ({"metrics": {"ood": {"loss": 1}}}, r"card\.json: metrics\.ood\.loss is 1"),
    ({"codes": {"n": 1}}, "codes lacks .*split"),
    ({"evaluation": None}, "evaluation is None"),
    ({"parameters": "many"}, "parameters is 'many'"),
    ({"colour": 1}, "card has unknown .*colour"),
    ({"format_version": 1}, r"version 1 \(latentcode 1\.0 or older\); convert it"),
    ({"format_version": "9.0"}, r"version '9\.0'; expected '2\.0'"),
    ({"headline": "beauty"}, "quotes 'beauty' first; expected one of .* train: loss, "),
    ({"evaluation": {"n": 0, "seed": 0, "precision": "float32", "tolerance": 5e-4}}, "n is 0;"),
    ({"evaluation": {"n": 9, "seed": 0, "precision": "float32", "tolerance": 0.5}},
     "tolerance is 0.5; expected a number from 0 to 0.01"),
    ({"evaluation": {"n": 9, "seed": 0, "precision": "fp8", "tolerance": 5e-4}}, "'fp8'"),
])
def test_a_damaged_card_is_refused(entry: Path, edit: dict[str, object], message: str) -> None:
    write_json(entry / CARD, {**json.loads((entry / CARD).read_text()), **edit})
    with pytest.raises(ArtifactError, match=message):
        Card.read(folder_of(NAME))
