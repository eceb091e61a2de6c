"""The zoo lists and loads its models, by name and by path."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch
from disk import contents, flip
from places import ROOT
from small_zoo import NAME, PAIRS

import latentcode as lc
from latentcode import subjects
from latentcode.cli import main
from latentcode.devices import make_generator
from latentcode.errors import ArtifactError, RunError, UnknownNameError
from latentcode.runs.run import folder_of
from latentcode.zoo import CARD, Card


def test_the_zoo_is_listed(entry: Path) -> None:
    table = lc.list_models()
    card = Card.read(folder_of(NAME))
    row = table.loc[NAME]
    assert (row["task"], row["kind"], row["metric"]) == ("SRAVEN", "hyla", "accuracy")
    assert row["parameters"] == card.parameters
    assert row["ood"] == card.metrics["ood"]["accuracy"].mean
    assert np.isnan(row["unknown"])
    size = sum(path.stat().st_size for path in entry.rglob("*") if path.is_file())
    assert row["megabytes"] == pytest.approx(size / 1e6)


def test_listing_and_kept_codes_need_no_torch(pristine: Path) -> None:
    lc.load_codes(pristine / NAME)
    script = f"""
import sys
from pathlib import Path
import latentcode as lc
from latentcode.runs import run
run.ZOO = Path(sys.argv[1])
assert list(lc.list_models().index) == [{NAME!r}]
assert len(lc.load_codes({NAME!r})) == 80
assert lc.load_run({NAME!r}).checkpoints() == [30]
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", script, str(pristine)], cwd=ROOT, check=True)


def test_the_model_is_the_one_that_was_trained(run: lc.Run, entry: Path) -> None:
    inputs = lc.make_task(run.config.task).sample("ood", 16, make_generator(0, "zoo")).inputs
    loaded = lc.load_model(NAME)
    assert not loaded.training
    with torch.no_grad():
        wanted = run.load_model()(inputs)
        assert torch.equal(loaded(inputs), wanted)
        assert torch.equal(lc.load_model(entry, step=30)(inputs), wanted)


def test_codes_are_those_of_the_model(run: lc.Run, entry: Path) -> None:
    codes = lc.load_codes(NAME)
    again = lc.extract(run, split="ood", n=80, pairs=PAIRS)
    np.testing.assert_array_equal(codes.scores, again.scores)
    assert codes.meta["run"] == NAME
    assert codes.meta["run_id"] == run.id
    assert lc.load_codes(NAME, "train").meta["split"] == "train"
    with pytest.raises(UnknownNameError, match="unknown split 'best'"):
        lc.load_codes(NAME, "best")
    (entry / CARD).unlink()
    with pytest.raises(ArtifactError, match=r"no codes of split 'ood', and no card"):
        lc.load_codes(entry)


def test_codes_are_read_once_and_a_damaged_copy_is_replaced(
    entry: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = contents(entry)
    scores = np.array(lc.load_codes(NAME).scores)
    (kept,) = (cache / "zoo").iterdir()
    assert contents(entry) == before, "the library may be read-only"
    with monkeypatch.context() as patched:
        patched.setattr(subjects, "extract", None)
        np.testing.assert_array_equal(lc.load_codes(NAME).scores, scores)
    flip(kept / "codes.safetensors")
    np.testing.assert_array_equal(lc.load_codes(NAME).scores, scores)


def test_codes_that_cannot_be_kept_are_given_all_the_same(entry: Path, cache: Path) -> None:
    cache.write_text("a file")
    with pytest.warns(UserWarning, match="codes are not kept"):
        assert len(lc.load_codes(NAME)) == 80


# Names and paths

def test_a_name_or_a_path(run: lc.Run, entry: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for text in (NAME, f"zoo:{NAME}", str(entry), entry):
        assert lc.load_run(text).path == entry
    shutil.copytree(run.path, "mine")
    for text in ("mine", "./mine", Path("mine")):
        assert lc.load_run(text).path == Path("mine")
    monkeypatch.chdir(entry.parent)  # where the name is also that of the folder
    assert lc.load_run(NAME).path == entry


def test_a_name_that_is_also_a_folder_is_not_chosen_silently(run: lc.Run, entry: Path) -> None:
    shutil.copytree(run.path, NAME)
    with pytest.raises(RunError, match=rf"expected zoo:{NAME} for the model, or \./{NAME} for"):
        lc.load_run(NAME)
    assert lc.load_run(f"zoo:{NAME}").path == entry
    for mine in (f"./{NAME}", Path(NAME)):
        assert lc.load_run(mine).path == Path(NAME)


@pytest.mark.parametrize(("command", "found"), [
    (["show", NAME], r"by constituent\n.* ood\n(.*\n)*feature_accuracy\[sum\] +0\.\d{3} 0\.\d{3} "),
    (["show", NAME], NAME), (["show", f"zoo:{NAME}", "--split", "ood"], "rule"),
    (["extract", NAME, "--n", "8", "--out", "out"], "wrote codes out"),
    (["decode", NAME, "--pairs", "q", "--out", "out"], "error: unknown pair 'q'; expected one of"),
    (["align", NAME, "copy", "--pairs", "q", "--out", "out"], "unknown pair 'q'; expected one of"),
    (["intervene", NAME, "--patch", "zero_ablation", "--layers", "9", "--out", "out"], "layer.*9"),
], ids=lambda value: value[0] if isinstance(value, list) else "")
def test_commands_take_a_name_where_they_take_a_run(
    entry: Path, command: list[str], found: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """What they say can be said only of a run that was opened."""
    shutil.copytree(entry, "copy")
    before = {path: path.stat().st_mtime_ns for path in entry.rglob("*")}
    with suppress(SystemExit):
        main(command)
    printed = capsys.readouterr()
    assert re.search(found, printed.out + printed.err)
    assert {path: path.stat().st_mtime_ns for path in entry.rglob("*")} == before
    with pytest.raises(SystemExit):
        main(["elsewhere" if word == "out" else "sraven-hula" if NAME in word else word
              for word in command])
    assert f"unknown model 'sraven-hula'; expected one of: {NAME}" in capsys.readouterr().err


def test_a_run_from_before_is_shown_with_what_its_card_says(
    entry: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = entry / "metrics.jsonl"
    older = [line for line in path.read_text().splitlines() if "[" not in line]
    path.write_text("".join(f"{line}\n" for line in older))
    main(["show", NAME])
    value = Card.read(entry).metrics["train"]["feature_accuracy[constant]"].mean
    assert re.search(rf"feature_accuracy\[constant\] +{value:.3f} ", capsys.readouterr().out)
    (entry / CARD).unlink()
    main(["show", str(entry)])
    assert "by constituent" not in capsys.readouterr().out


def test_what_is_neither_is_said(entry: Path) -> None:
    with pytest.raises(UnknownNameError, match=rf"'sraven-hula'; expected one of: {NAME}, the "
                       "path of a run folder, which sraven-hula is not, for it does not exist"):
        lc.load_model("sraven-hula")
    with pytest.raises(UnknownNameError, match=f"'sraven-hula'; expected one of: {NAME}$"):
        lc.load_run("zoo:sraven-hula")
    for path in ("./sraven-hula", Path(NAME)):
        with pytest.raises(RunError, match=r"run folder [a-z-]+ does not exist"):
            lc.load_run(path)
