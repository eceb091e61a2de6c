"""Do the notebooks run, also where the library is not, and are their outputs fit to be shown?"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

import pytest
from places import ROOT

from latentcode.experiments.notebooks.execute import FOLDER

LEFT_OUT = shutil.ignore_patterns(".*", "build", "dist", "results", "tests", "*.egg-info")
"""What the wheel of a test is built without, to be quick."""
CHECKS = {
    # What the text of each notebook says of its numbers, in the notebook's own names.
    "decode_rules": """
rows = result.table.query("metric == 'accuracy' and layer == 3").set_index("features")
assert rows["low"]["code"] > max(rows["high"]["untrained"], rows["high"]["shuffled"])
assert rows["low"]["code"] > rows["chance"]["code"]
assert rows["value"]["residual"] > rows["value"]["code"]
assert 0.45 < rows["value"]["code"] < 0.6
third = result.table.query("metric == 'accuracy' and layer == 2").set_index("features")
assert third["low"]["code"] > max(third["high"]["untrained"], third["high"]["shuffled"])
assert abs(run.latest().loc["accuracy", "ood"] - run.latest().loc["accuracy", "test"]) < 0.01
by_rule = run.latest(by_constituent=True)["ood"].filter(like="feature_accuracy")
assert by_rule.min() > 0.95
assert set(by_rule.nsmallest(2).index) == {"feature_accuracy[sum]", "feature_accuracy[difference]"}
assert len(codes) == 2_000
means = codes.mean_by("rule", layer=3, pair=PAIR).to_numpy()
assert (means.mean(0) ** 2).sum() > 0.8 * (means ** 2).sum(1).mean()
""",
    "write_a_code_back": """
followed = outcomes["operation"]
assert followed["one pair"] < 0.1 < 0.75 < followed["the whole row"] < 0.85
assert first_outcomes["base"]["its own codes"] == 1.0
assert float((itself - plain).abs().max()) == 0.0
assert first_outcomes["base"]["same (control)"] > 0.5
both, unrelated = (first_outcomes.loc[name] for name in (
    "other rule and operands", "unrelated (control)"))
assert both["operation"] < unrelated["operation"] + 0.05 and both["answer"] > 4 * both["operation"]
everywhere, in_softmax = (
    result.table.query("scope == 'everything' and site == 'code'").pivot_table(
        index="patch", columns="metric", values="value") for result in (hyla, softmax))
assert everywhere["answer"]["operation+operands"] > 0.95
assert everywhere["operands"]["operands"] > 0.95
operation = everywhere["operation"]
assert operation["operation+operands"] <= operation["unrelated"]
assert (in_softmax["base"] > 0.9).loc[["interchange", "operation+operands"]].all()
for result in (hyla, softmax):
    sane = result.table.query("site == 'code+value' and metric == 'answer'")
    assert sane["value"].item() == 1.0
assert browser.is_centred and browser.layer == 3 and browser.pair == "response->response"
""",
    "language_model": """
flips = effects.set_index(["patch", "layer", "head"])
assert flips["value"].loc["interchange z"].idxmax() == (0, 0)
assert 0.2 < flips["value"]["interchange z", 0, 0] < 0.4
assert (flips["value"].loc["interchange code"] == 0.0).all()
told = heads.effects.query("patch == 'tells operation'")
assert not (told["difference_low"] > 0).any()
assert (told.query("layer == 0")["value"] == 1.0).all()
assert told.query("layer == 1")["value"].between(0.45, 0.8).all()
induction = read.matrix("induction")
assert (induction.loc[1] > 0.9).all() and (induction.loc[0] < 0.1).all()
assert (pairs["acts"] == "redundant").all()
assert (read.quality["silhouette"] > read.quality["permuted"] + 0.15).all()
""",
    "pretrained_codes": """
assert float((generated - usual).abs().max()) < 1e-5 * float(usual.abs().max())
rows = result.table.query("metric == 'accuracy'").set_index(["layer", "features"])
best = rows.xs("code", level="features")["low"].idxmax()
assert rows["low"][best, "code"] > rows["value"][best, "untrained"]
assert rows["low"][best, "code"] > rows["chance"][best, "code"]
assert rows["low"][0, "code"] > rows["value"][0, "residual"] == rows["chance"][0, "residual"]
assert all(rows["value"][i, "residual"] > rows["value"][i, "code"] for i in (1, 2, 3))
assert all(rows["low"][i, "code"] > rows["chance"][i, "code"] for i in range(4))
assert all(0.4 < rows["high"][i, "shuffled"] < 0.7 for i in range(4))
assert set(result.table["n_heldout_combinations"].dropna()) == {7}
arvenia = sentences.query("country == 'Arvenia' and relation == 'capital'")["answer"]
assert set(arvenia) == {"Monton"}
capitals = set(sentences.query("relation == 'capital'")["answer"])
guesses = [model.to_string(int(token)).strip() for token in following.topk(3).indices]
assert set(guesses) <= capitals and guesses[0] != "Monton"
assert codes.labels["prompt"].tolist() == prompts["prompt"].tolist()
""",
}
"""Notebook -> a cell that is added to it, and raises where the text would be wrong.

That on language models asks what a page of the documentation asks, and runs with it (tests/docs).
"""


def read(name: str) -> dict[str, Any]:
    notebook: dict[str, Any] = json.loads((FOLDER / f"{name}.ipynb").read_text(encoding="utf-8"))
    return notebook


INSTALL = "".join(read("decode_rules")["cells"][1]["source"])
"""The cell that all begin with: it fetches what is not there."""
REPOSITORY = "latentcode/latentcode"


def test_every_notebook_is_checked() -> None:
    assert {path.stem for path in FOLDER.glob("*.ipynb")} == set(CHECKS)


@pytest.mark.parametrize("name", CHECKS)
def test_outputs_are_those_of_one_run_from_top_to_bottom(name: str) -> None:
    cells = [cell for cell in read(name)["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    assert any(cell["outputs"] for cell in cells)
    for cell in cells:
        for output in cell["outputs"]:
            assert output["output_type"] in ("stream", "display_data", "execute_result")
            assert output.get("name") != "stderr", output


@pytest.mark.parametrize("name", CHECKS)
def test_outputs_show_pictures_and_nothing_of_the_machine(name: str) -> None:
    path = FOLDER / f"{name}.ipynb"
    assert path.stat().st_size < 400_000
    text = path.read_text(encoding="utf-8")
    assert "data:image/png" in text or '"image/png"' in text
    without_images = re.sub(r"[A-Za-z0-9+/=\\n]{200,}", "", text)
    found = re.findall(r"""(?<![\w<.:/])/(?:home|root|tmp|work|usr|opt|var|Users)\b[^\s"']*|"""
                       r"""\b[A-Z]:\\\\+Users""", without_images)
    assert not found
    assert set(read(name)["metadata"]) == {"kernelspec", "language_info"}


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in CHECKS if name != "language_model"])
def test_it_runs_and_its_text_holds(name: str, tmp_path: Path) -> None:
    notebook = read(name)
    notebook["cells"].append({"cell_type": "code", "id": "check", "source": CHECKS[name],
                              "metadata": {}, "execution_count": None, "outputs": []})
    copy = tmp_path / f"{name}.ipynb"
    copy.write_text(json.dumps(notebook), encoding="utf-8")
    done = run(copy)
    assert done.returncode == 0, done.stdout + done.stderr
    cells = json.loads(copy.read_text(encoding="utf-8"))["cells"]
    assert cells[-1]["execution_count"] is not None
    streams = [output for cell in cells for output in cell.get("outputs", ())
               if output.get("name") == "stderr"]
    assert not streams


@pytest.mark.slow
def test_a_notebook_that_fails_is_left_as_it_was(tmp_path: Path) -> None:
    notebook = read("decode_rules")
    notebook["cells"] = [{"cell_type": "code", "id": "bad", "source": "1 / 0", "metadata": {},
                          "execution_count": None, "outputs": []}]
    path = tmp_path / "bad.ipynb"
    path.write_text(json.dumps(notebook), encoding="utf-8")
    before = path.read_bytes()
    done = run(path)
    assert done.returncode == 1
    assert "division by zero" in done.stderr
    assert "1 / 0" in done.stderr
    assert path.read_bytes() == before


def run(notebook: Path) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return subprocess.run(
        [sys.executable, "-m", "latentcode.experiments.notebooks.execute", notebook],
        capture_output=True, text=True, check=False, cwd=notebook.parent,
        env={**os.environ, "PYTHONPATH": paths})


@pytest.mark.parametrize("name", CHECKS)
def test_each_begins_with_its_badge_and_installs(name: str) -> None:
    cells = read(name)["cells"]
    lines = "".join(cells[0]["source"]).split("\n")
    assert lines[0].startswith("# ")
    assert lines[2].endswith(f"(https://colab.research.google.com/github/{REPOSITORY}/blob/main/"
                             f"experiments/notebooks/{name}.ipynb)")
    assert cells[1]["cell_type"] == "code"
    assert "".join(cells[1]["source"]) == INSTALL
    assert cells[1]["outputs"] == []
    assert sum("Open in Colab" in "".join(cell["source"]) for cell in cells) == 1


def test_it_is_silent_where_there_is_nothing_to_do(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("a command was run"))
    exec(INSTALL, {})
    assert capfd.readouterr() == ("", "")


@pytest.mark.slow
def test_it_installs_where_the_library_is_missing(tmp_path: Path) -> None:
    """In an environment that has what the library needs, and not the library."""
    shutil.copytree(ROOT, tmp_path / "tree", ignore=LEFT_OUT, symlinks=True)
    wheels = tmp_path / "wheels"
    subprocess.run([sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-index",
                    "--no-build-isolation", "--wheel-dir", wheels, tmp_path / "tree"], check=True)
    venv.create(tmp_path / "venv", with_pip=False, symlinks=True)
    python = tmp_path / "venv" / "bin" / "python"
    needed = tmp_path / "needed"
    needed.mkdir()
    for folder in {Path(path) for path in sys.path if path.endswith("-packages")}:
        for entry in folder.iterdir():
            if "latentcode" not in entry.name and not (needed / entry.name).exists():
                (needed / entry.name).symlink_to(entry)
    packages = next((tmp_path / "venv").glob("lib/python3*/site-packages"))
    (packages / "needed.pth").write_text(f"{needed}\n")
    for command in (["init", "--quiet"], ["add", "--all"],
                    ["-c", "user.name=a", "-c", "user.email=b", "commit", "--quiet", "-m", "all"]):
        subprocess.run(["git", *command], cwd=tmp_path / "tree", check=True)
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | {
        "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels), "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_VALUE_0": f"https://github.com/{REPOSITORY}",
        "GIT_CONFIG_KEY_0": f"url.file://{tmp_path / 'tree'}.insteadOf"}

    def execute(code: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([python, "-c", code], cwd=tmp_path, env=environment, text=True,
                              capture_output=True, check=False)

    assert "No module named 'latentcode'" in execute("import latentcode").stderr
    done = execute(f"{INSTALL}\nimport latentcode as lc\nprint(lc.load_run('sraven-hyla').name, "
                   "lc.__file__)\nimport latentcode.experiments.examples.relations")
    assert done.returncode == 0, done.stderr
    checkout = tmp_path / "latentcode-checkout"
    assert done.stdout == f"sraven-hyla {checkout / 'latentcode' / '__init__.py'}\n"
    assert (packages / "latentcode" / "__init__.py").is_file()
    again = execute(INSTALL)  # in a new session
    assert (again.returncode, again.stdout, again.stderr) == (0, "", "")
