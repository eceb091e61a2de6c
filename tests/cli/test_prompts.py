"""The pretrained path from the command line, on a model saved to a local folder."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from prompt_pairs import pairs_of
from small_language_models import SmallModels

import latentcode as lc
from latentcode.cli import main

PLACES = ("France", "Italy", "Peru", "Kenya")


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    """Questions of two kinds about places, each kind in six wordings that are held out as such."""
    rows = [
        {"prompt": f"{opening}the {kind} {of} {place} is", "query": -1, "key": kind,
         "label": kind, "combination": f"{opening}{of}"}
        for opening in ("", "Then ", "We asked: ") for of in ("of", "in") for place in PLACES
        for kind in ("capital", "river")]
    path = tmp_path / "prompts.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_extract_prompts(
    small_models: SmallModels, prompts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, out = str(small_models("llama")), tmp_path / "codes"
    main(["extract", folder, "--prompts", str(prompts), "--out", str(out), "--residuals",
          "--layers", "1", "--batch-size", "8"])
    assert f"wrote codes {out}" in capsys.readouterr().out
    codes = lc.LatentCodes.load(out)
    assert codes.scores.shape == (48, 1, 1, 4)
    assert codes.residuals is not None
    assert codes.meta["untrained"] is False
    assert set(codes.labels["label"]) == {"capital", "river"}
    main(["show", str(out)])
    assert "llama" in capsys.readouterr().out
    main(["extract", folder, "--prompts", str(prompts), "--out", str(tmp_path / "fresh"),
          "--untrained", "--seed", "1", "--dtype", "bfloat16"])
    fresh = lc.LatentCodes.load(tmp_path / "fresh")
    assert (fresh.meta["untrained"], fresh.meta["seed"]) == (True, 1)
    assert (fresh.select(layer=1, pair="query->key") != codes.select(
        layer=1, pair="query->key")).any()


def test_a_registered_probe_is_asked_of_prompts(
    small_models: SmallModels, prompts: Path, tmp_path: Path
) -> None:
    out = tmp_path / "result"
    main(["knn", str(small_models("gpt2")), "--prompts", str(prompts), "--out", str(out), "--k",
          "3", "--layers", "1", "--features", "code", "--n-bootstrap", "100"])
    result = lc.ProbeResult.load(out)
    assert set(result.table["features"]) == {"code", "residual", "untrained", "shuffled"}
    assert set(result.table["label"]) == {"label"}
    assert result.table["n_combinations"].unique().tolist() == [2]  # of six, 30 % are held out


@pytest.mark.parametrize("architecture", ["gpt2", "llama"])
def test_decode_prompts_with_all_controls(
    architecture: str, small_models: SmallModels, prompts: Path, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "result"
    main(["decode", str(small_models(architecture)), "--prompts", str(prompts), "--out", str(out),
          "--layers", "1", "--heldout", "0.5"])
    shown = capsys.readouterr().out
    assert f"wrote result {out}" in shown
    result = lc.DecodingResult.load(out)
    table = result.table[result.table["metric"] == "accuracy"].set_index("features")
    assert set(table.index) == {"code", "residual", "untrained", "shuffled"}
    assert (table["n_heldout_combinations"] == 3).all()
    assert (table["n_train"] == 24).all()
    assert result.settings["train"]["split"] == "train"
    assert result.settings["heldout"]["split"] == "ood"
    if architecture == "llama":
        # The key's token is another one for each label, and the code is a score of that token,
        # from the same distance in every wording (GPT-2 has absolute positions, which openings
        # move).
        assert table.loc["code", "value"] > table.loc["shuffled", "value"]
    assert (out / "figure.png").stat().st_size > 1_000


@pytest.fixture
def pairs(small_models: SmallModels, tmp_path: Path) -> Path:
    """Minimal pairs that the llama-shaped model answers rightly, and a control of its own."""
    model = lc.load_pretrained(small_models("llama"))
    rows = [{**row, "control": row["prompt"].replace("capital", "river")}
            for row in pairs_of(model, ("The capital of {}",))]
    path = tmp_path / "pairs.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_intervene_prompts(
    small_models: SmallModels, pairs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, out = str(small_models("llama")), tmp_path / "result"
    main(["intervene", folder, "--prompts", str(pairs), "--out", str(out)])
    shown = capsys.readouterr().out
    assert f"wrote result {out}" in shown
    assert "instances count" in shown
    result = lc.InterventionResult.load(out)
    flips = result.table[result.table["metric"] == "flip"]
    assert set(flips["patch"]) == {"interchange", "control", "elsewhere", "shuffled", "random",
                                      "identity"}
    assert set(flips["scope"]) == {"pair", "row", "everything"}
    n = len(pairs.read_text().splitlines())
    assert (flips.loc[flips["patch"] != "control", "n"] == n).all()
    assert flips.loc[flips["patch"] == "control", "n"].between(1, n).all()
    assert result.settings["n_known"] == n
    assert (result.settings["kind"], result.settings["run"]) == ("softmax", "llama")
    assert (out / "figure.png").stat().st_size > 1_000
    main(["show", str(out)])
    assert "elsewhere" in capsys.readouterr().out

    some = tmp_path / "some"
    main(["intervene", folder, "--prompts", str(pairs), "--out", str(some), "--patch",
          "interchange", "identity", "--site", "residual", "--scope", "everything", "--layers",
          "each", "0,1", "--among", "answers", "--batch-size", "7"])
    table = lc.InterventionResult.load(some).table
    rates = table[table["metric"] == "flip"].set_index(["patch", "layers"])["value"]
    # All that enters the first layer is all there is.
    assert rates["interchange", "0"] == rates["interchange", "0,1"] == 1.0
    assert rates["identity"].tolist() == [0.0, 0.0, 0.0]


def test_pairs_and_writes_that_do_not_work(
    small_models: SmallModels, pairs: Path, tmp_path: Path, refused: Callable[..., str]
) -> None:
    folder, out = str(small_models("llama")), tmp_path / "result"
    plain = tmp_path / "plain.jsonl"
    plain.write_text('{"prompt": "Lima is", "query": -1, "key": "Lima"}\n')
    for arguments, message in (
        ([folder, "--prompts", plain], "no column source, answer, source_answer"),
        ([folder, "--prompts", pairs, "--patch", "give"], "unknown patch 'give'"),
        ([folder, "--prompts", pairs, "--patch", "interchange", "--scope", "pairs"],
         "unknown scope 'pairs'"),
        ([folder, "--prompts", pairs, "--patch", "interchange", "--layers", "top"],
         "layers is 'top'"),
        ([folder, "--prompts", pairs, "--patch", "interchange", "--layers", "2"],
         "unknown layer 2"),
        ([small_models("gptj"), "--prompts", pairs, "--among", "answers"], "after it was used"),
    ):
        assert message in refused("intervene", *arguments, "--out", out)
        assert not out.exists()


def test_errors_are_one_line_and_nothing_is_written(
    small_models: SmallModels, prompts: Path, tmp_path: Path, refused: Callable[..., str]
) -> None:
    folder, out = str(small_models("gpt2")), tmp_path / "out"
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"prompt": "Lima is", "query": -1, "key": "Rome", "label": "a"}\n')
    for arguments, message in (
        (["extract", str(tmp_path / "nowhere"), "--prompts", str(prompts)], "does not exist"),
        (["extract", "somebody/no-such-model", "--prompts", str(prompts)], "could not be fetched"),
        (["extract", folder, "--prompts", str(tmp_path / "nowhere.jsonl")], "which is no file"),
        (["extract", folder, "--prompts", str(bad)], "'Rome', which does not occur"),
        (["extract", folder, "--prompts", str(prompts), "--layers", "5"], "unknown layer 5"),
        (["extract", folder, "--prompts", str(prompts), "--device", "cuda:99"], "device"),
        (["decode", folder, "--prompts", prompts, "--labels", "colour"], "unknown label 'colour'"),
        (["decode", folder, "--prompts", str(bad)], "cannot be held out"),
    ):
        assert message in refused(*arguments, "--out", out)
        assert not out.exists()
    out.mkdir()
    (out / "meta.json").write_text("{}")
    assert "exists already" in refused("extract", folder, "--prompts", prompts, "--out", out)


def test_prompts_begin_as_asked(
    small_models: SmallModels, prompts: Path, pairs: Path, tmp_path: Path
) -> None:
    folder = str(small_models("llama"))
    first = {}
    for given in ("auto", "yes", "no"):
        main(["extract", folder, "--prompts", str(prompts), "--out", str(tmp_path / given),
              "--prepend-bos", given])
        codes = lc.LatentCodes.load(tmp_path / given)
        first[given] = (codes.meta["prepend_bos"], codes.labels["query_position"].iloc[0])
    (auto, at), (yes, later), (no, earlier) = first.values()
    assert (yes, no, later - earlier) == (True, False, 1)
    assert (auto, at) in ((yes, later), (no, earlier))
    out = tmp_path / "decoding"
    main(["decode", folder, "--prompts", str(prompts), "--out", str(out), "--layers", "1",
          "--heldout", "0.5", "--prepend-bos", "no"])
    assert lc.DecodingResult.load(out).settings["train"]["prepend_bos"] is False
    out = tmp_path / "interventions"
    main(["intervene", folder, "--prompts", str(pairs), "--out", str(out), "--prepend-bos",
          "yes" if auto else "no", "--patch", "interchange"])
    assert lc.InterventionResult.load(out).settings["prepend_bos"] is auto


def test_a_model_that_answers_nothing_may_want_another_beginning(
    small_models: SmallModels, pairs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [json.loads(line) for line in pairs.read_text(encoding="utf-8").splitlines()]
    wrong = tmp_path / "wrong.jsonl"
    wrong.write_text("".join(json.dumps({**row, "answer": 5 + i, "source_answer": 6 + i}) + "\n"
                             for i, row in enumerate(rows)), encoding="utf-8")
    with pytest.raises(SystemExit):
        main(["intervene", str(small_models("llama")), "--prompts", str(wrong), "--prepend-bos",
              "no", "--patch", "interchange", "--out", str(tmp_path / "out")])
    assert ("The prompts begin without the token for a beginning; expected prepend_bos=True "
            "(--prepend-bos yes)") in " ".join(capsys.readouterr().err.split())
