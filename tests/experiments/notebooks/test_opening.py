"""Do the notebooks open where the library is not, and is their first cell silent where it is?"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import nbformat
import pytest
from places import ROOT

from latentcode.experiments.notebooks.execute import INSTALL, REPOSITORY, with_opening

FOLDER = ROOT / "experiments" / "notebooks"
NAMES = sorted(path.stem for path in FOLDER.glob("*.ipynb"))
LEFT_OUT = shutil.ignore_patterns(".*", "build", "dist", "results", "tests", "*.egg-info")
"""What the wheel of this test is built without, to be quick."""


@pytest.mark.parametrize("name", NAMES)
def test_each_begins_with_its_badge_and_installs(name: str) -> None:
    cells = json.loads((FOLDER / f"{name}.ipynb").read_text("utf-8"))["cells"]
    lines = "".join(cells[0]["source"]).split("\n")
    assert lines[0].startswith("# ")
    assert lines[2].endswith(f"(https://colab.research.google.com/github/{REPOSITORY}/blob/main/"
                             f"experiments/notebooks/{name}.ipynb)")
    assert cells[1]["cell_type"] == "code"
    assert "".join(cells[1]["source"]) == INSTALL
    assert cells[1]["outputs"] == []
    assert sum("Open in Colab" in "".join(cell["source"]) for cell in cells) == 1


def test_the_opening_is_renewed_and_comes_once() -> None:
    notebook = nbformat.read(FOLDER / "decode_rules.ipynb", as_version=4)
    before = [cell.source for cell in notebook.cells]
    other = with_opening(with_opening(notebook, "other"), "decode_rules")
    assert [cell.source for cell in other.cells] == before


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
