"""The pretrained path from the command line, on a model saved to a local folder."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from prompt_pairs import pairs_of
from small_codes import assert_same
from small_language_models import SmallModels

import latentcode as lc
from latentcode.cli import main
from latentcode.probes.decoding import DecodingResult
from latentcode.probes.interventions import InterventionResult
from latentcode.probes.registered import ProbeResult
from latentcode.prompts.texts import read_texts

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
    codes = lc.LatentCodes.load(out)
    wanted = lc.extract(lc.subject(folder, prompts, batch_size=8), layers=1, residuals=True)
    assert_same(codes, lc.LatentCodes.load(wanted.save(tmp_path / "wanted")))
    main(["show", str(out)])
    assert "llama" in capsys.readouterr().out
    main(["extract", folder, "--prompts", str(prompts), "--out", str(tmp_path / "fresh"),
          "--untrained", "--seed", "1", "--dtype", "bfloat16"])
    fresh = lc.LatentCodes.load(tmp_path / "fresh")
    assert (fresh.meta["untrained"], fresh.meta["seed"]) == (True, 1)


def test_a_registered_probe_is_asked_of_prompts(
    small_models: SmallModels, prompts: Path, tmp_path: Path
) -> None:
    out = tmp_path / "result"
    main(["knn", str(small_models("gpt2")), "--prompts", str(prompts), "--out", str(out), "--k",
          "3", "--layers", "1", "--features", "code", "--n-bootstrap", "100"])
    result = ProbeResult.load(out)
    assert set(result.table["features"]) == {"code", "residual", "untrained", "shuffled"}
    assert set(result.table["label"]) == {"label"}
    assert result.table["n_combinations"].unique().tolist() == [2]  # of six, 30 % are held out


def test_decode_prompts_with_all_controls(
    small_models: SmallModels, prompts: Path, tmp_path: Path
) -> None:
    main(["decode", str(small_models("llama")), "--prompts", str(prompts), "--out",
          str(tmp_path / "result"), "--layers", "1", "--heldout", "0.5"])
    result = DecodingResult.load(tmp_path / "result")
    table = result.table[result.table["metric"] == "accuracy"].set_index("features")
    assert set(table.index) == {"code", "residual", "untrained", "shuffled"}
    assert set(table["n_heldout_combinations"]) == {3}
    assert set(table["n_train"]) == {24}
    assert [result.settings[part]["split"] for part in ("train", "heldout")] == ["train", "ood"]
    # The key's token is another one for each label, and the code is a score of that token.
    assert table.loc["code", "value"] > table.loc["shuffled", "value"]


@pytest.fixture
def pairs(small_models: SmallModels, tmp_path: Path) -> Path:
    """Minimal pairs that the llama-shaped model answers rightly, and a control of its own."""
    model = lc.load_pretrained(small_models("llama"))
    rows = [{**row, "control": row["prompt"].replace("capital", "river")}
            for row in pairs_of(model, ("The capital of {}",))]
    path = tmp_path / "pairs.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.mark.slow
def test_intervene_prompts(
    small_models: SmallModels, pairs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["intervene", str(small_models("llama")), "--prompts", str(pairs), "--out"]
    main([*command, str(tmp_path / "result")])
    assert "instances count" in capsys.readouterr().out
    result = InterventionResult.load(tmp_path / "result")
    flips = result.table[result.table["metric"] == "flip"]
    assert set(flips["patch"]) == {"interchange", "control", "elsewhere", "shuffled", "random",
                                   "identity"}
    assert set(flips["scope"]) == {"pair", "row", "everything"}
    n = len(pairs.read_text().splitlines())
    assert (flips.loc[flips["patch"] != "control", "n"] == n).all()
    assert flips.loc[flips["patch"] == "control", "n"].between(1, n).all()
    main([*command, str(tmp_path / "some"), "--patch", "interchange", "identity", "--site",
          "residual", "--scope", "everything", "--layers", "each", "0,1", "--among", "answers",
          "--batch-size", "7"])
    table = InterventionResult.load(tmp_path / "some").table
    rates = table[table["metric"] == "flip"].set_index(["patch", "layers"])["value"]
    # All that enters the first layer is all there is.
    assert rates["interchange", "0"] == rates["interchange", "0,1"] == 1.0
    assert rates["identity"].tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize(("command", "message"), [
    ("intervene llama PLAIN", "no column source, answer, source_answer"),
    ("intervene llama PAIRS --patch interchange --scope pairs", "unknown scope 'pairs'"),
    ("intervene llama PAIRS --patch interchange --layers 2", "unknown layer 2"),
    ("intervene lfm2 PAIRS --patch interchange --layers 0 1", "layer 0 of this model has"),
    ("extract nowhere/at/all PROMPTS", "does not exist"),
    ("extract somebody/no-such-model PROMPTS", "could not be fetched"),
    ("extract gpt2 nowhere.jsonl", "which is no file"),
    ("extract gpt2 PROMPTS --layers 5", "unknown layer 5"),
    ("decode gpt2 PROMPTS --labels colour", "unknown label 'colour'"),
    ("decode gpt2 PLAIN", "cannot be held out"),
    ("extract gpt2 PROMPTS --out taken", "exists already"),
])
def test_errors_are_one_line_and_nothing_is_written(
    command: str, message: str, small_models: SmallModels, prompts: Path, pairs: Path,
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: Callable[..., str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("plain.jsonl").write_text(
        '{"prompt": "Lima is", "query": -1, "key": "Lima", "label": "a"}\n')
    Path("taken").mkdir()
    Path("taken/meta.json").write_text("{}")
    named = {"PLAIN": "plain.jsonl", "PAIRS": pairs, "PROMPTS": prompts}
    verb, model, asked, *rest = command.split()
    folder = model if "/" in model else small_models(model)
    before = sorted(tmp_path.rglob("*"))
    assert message in refused(verb, folder, "--prompts", named.get(asked, asked),
                              *([] if "--out" in rest else ["--out", "out"]), *rest)
    assert sorted(tmp_path.rglob("*")) == before


def test_prompts_begin_as_asked(
    small_models: SmallModels, prompts: Path, pairs: Path, tmp_path: Path
) -> None:
    folder = str(small_models("llama"))
    first = {}
    for given in ("auto", "yes", "no"):
        main(["extract", folder, "--prompts", str(prompts), "--out", str(tmp_path / given),
              *([] if given == "auto" else ["--prepend-bos", given])])
        codes = lc.LatentCodes.load(tmp_path / given)
        first[given] = (codes.meta["prepend_bos"], codes.labels["query_position"].iloc[0])
    (auto, at), (yes, later), (no, earlier) = first.values()
    assert (yes, no, later - earlier) == (True, False, 1)
    assert (auto, at) in ((yes, later), (no, earlier))
    out = tmp_path / "decoding"
    main(["decode", folder, "--prompts", str(prompts), "--out", str(out), "--layers", "1",
          "--heldout", "0.5", "--prepend-bos", "no"])
    assert DecodingResult.load(out).settings["train"]["prepend_bos"] is False
    out = tmp_path / "interventions"
    main(["intervene", folder, "--prompts", str(pairs), "--out", str(out), "--prepend-bos",
          "yes" if auto else "no", "--patch", "interchange"])
    assert InterventionResult.load(out).settings["prepend_bos"] is auto


def test_a_model_that_answers_nothing_may_want_another_beginning(
    small_models: SmallModels, pairs: Path, tmp_path: Path, refused: Callable[..., str]
) -> None:
    rows = [json.loads(line) for line in pairs.read_text(encoding="utf-8").splitlines()]
    wrong = tmp_path / "wrong.jsonl"
    wrong.write_text("".join(json.dumps({**row, "answer": 5 + i, "source_answer": 6 + i}) + "\n"
                             for i, row in enumerate(rows)), encoding="utf-8")
    assert "expected prepend_bos=True (--prepend-bos yes)" in refused(
        "intervene", small_models("llama"), "--prompts", wrong, "--prepend-bos", "no", "--patch",
        "interchange", "--out", tmp_path / "out")


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    """Documents of two texts each, of which the word at the end tells the kind."""
    rng = np.random.default_rng(0)
    words = ["The", "capital", "river", "in", "Rome", "was", "then", "Peru", "Kenya", "asked"]
    rows = [{"text": " ".join([*rng.choice(words, 12 + i % 3), end]), "kind": kind,
             "document": f"d{i}"}
            for i in range(8) for kind, end in (("river", "naïve"), ("town", "café"))]
    path = tmp_path / "texts.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.mark.slow
def test_decode_whole_texts(small_models: SmallModels, texts: Path, tmp_path: Path) -> None:
    out, folder = tmp_path / "result", str(small_models("gpt2"))
    main(["decode", folder, "--texts", str(texts), "--labels", "kind", "--features", "lap_eigvals",
          "entropy", "--out", str(out), "--n-bootstrap", "100"])
    result = DecodingResult.load(out)
    of = lc.decode(folder, read_texts(texts), ["kind"], features=["lap_eigvals", "entropy"],
                   n_bootstrap=100)
    pd.testing.assert_frame_equal(result.table, of.table, check_dtype=False)
    assert set(result.table["layer"].astype(str)) == {"0", "1", "all"}
    assert set(result.table["n_heldout_combinations"]) == {2}
    assert set(result.contrasts.table["against"]) >= {
        "bag", "residual", "shuffled", "untrained", "chance"}


@pytest.mark.parametrize(("words", "message"), [
    (["--texts", "none.txt"], "--texts is 'none.txt'"),
    (["--texts", "TEXTS", "--prompts", "TEXTS"], "expected one or the other"),
    (["--texts", "TEXTS", "--labels", "kind", "copied"], "are of whole texts, and copied not"),
    (["--texts", "TEXTS", "--labels", "kind", "--features", "row"], "expected as many in each"),
])
def test_texts_that_cannot_be_asked_about_are_one_error(
    words: list[str], message: str, small_models: SmallModels, texts: Path,
    refused: Callable[..., str],
) -> None:
    given = [str(texts) if word == "TEXTS" else word for word in words]
    assert message in refused("decode", small_models("gpt2"), *given, "--out",
                              texts.parent / "out")
    assert not (texts.parent / "out").exists()
