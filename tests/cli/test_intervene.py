"""`latentcode intervene` on a model that has learned nothing, and is right by chance now and then.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import latentcode as lc
from latentcode.cli import main
from latentcode.metrics import CLASSES
from latentcode.probes.interventions import InterventionResult, standard_interventions

SEED = 3
"""Of a model that is right often enough: in 9 of 400 pairs with torch 2.6 as with 2.13."""


@pytest.mark.slow
def test_the_standard_interventions(
    sraven: Callable[[str, int], str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = sraven("hyla", SEED)
    main(["intervene", folder, "--out", str(tmp_path), "--n", "400", "--no-factorial",
          "--whole"])
    out = capsys.readouterr().out
    assert "elsewhere" in out
    assert "instances count" in out
    assert f"wrote result {tmp_path}" in out
    flips = InterventionResult.load(tmp_path).table.query("metric == 'flip'")
    task = lc.make_counterfactuals(lc.make_task(lc.Run.open(folder).config.task), factorial=False)
    assert len(flips) == len(standard_interventions(range(2), 4, task.scopes, lacks=task.lacking))


def test_every_combination_of_what_is_written_where(
    sraven: Callable[[str, int], str], tmp_path: Path, capsys: pytest.CaptureFixture[str],
    refused: Callable[..., str],
) -> None:
    command = ["intervene", sraven("hyla", SEED), "--out", str(tmp_path), "--n", "400",
               "--no-factorial"]
    main([*command, "--patch", "interchange", "steer", "--scope", "row", "pair", "--layers", "each",
          "upper", "0,1", "--alpha", "1", "3", "--heads", "0", "2"])
    flips = InterventionResult.load(tmp_path).table.query("metric == 'flip'")
    assert len(flips) == 2 * 3 * (1 + 2)
    assert set(flips["layers"]) == {"0", "1", "0,1"}
    assert set(flips["heads"]) == {"0,2"}
    assert "exists already" in refused(*command)
    capsys.readouterr()
    main(["show", str(tmp_path)])
    assert "steer 3, heads 0,2" in capsys.readouterr().out


def test_whose_answer_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["intervene", "sraven-hyla", "--out", str(tmp_path), "--n", "100", "--patch",
          "interchange",
          "operands", "operation+operands", "--scope", "everything", "--layers", "all", "--site",
          "code+value"])
    assert "have four different answers" in capsys.readouterr().out
    result = InterventionResult.load(tmp_path)
    rates = result.table.pivot(index="patch", columns="metric", values="value")
    # With codes and values of all layers the source's whole computation is written.
    assert [rates.loc[patch, name] for patch, name in (
        ("interchange", "operation"), ("operands", "operands"), ("operation+operands", "answer")
    )] == [1.0, 1.0, 1.0]
    assert set(result.contrasts.table["class"]) == set(CLASSES)


def test_errors(
    sraven: Callable[[str, int], str], tmp_path: Path, refused: Callable[..., str]
) -> None:
    command = ["intervene", sraven("hyla", SEED), "--out", tmp_path / "new"]
    for arguments, message in (
        (["--patch", "give"], "unknown patch 'give'"),
        (["--scope", "row", "pair"], "--scope given without --patch"),
        (["--patch", "interchange", "--layers", "top"], "layers is 'top'; expected each, upward"),
        (["--patch", "unrelated", "--no-factorial"], "because of factorial=False (--no-factorial)"),
        (["--patch", "permuted"], "a matrix has no examples whose values could be permuted"),
    ):
        assert message in refused(*command, *arguments)
    assert not (tmp_path / "new").exists()
