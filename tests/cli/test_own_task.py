"""`--import FILE`: a task of one's own on the command line."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from places import EXAMPLE, environment

import latentcode as lc
from latentcode import registry
from latentcode.cli import main, take_imports
from latentcode.config import TASKS
from latentcode.models.config import NONLINEARITIES

LITTLE = ["--preset", "smoke", "--training.steps", "2", "--training.warmup-steps", "0",
          "--training.eval-every", "2", "--training.eval-instances", "64"]


def latentcode(folder: Path, *arguments: str) -> str:
    """Run a command in a folder, which must succeed, and return what it prints."""
    done = subprocess.run([sys.executable, "-m", "latentcode", *arguments], cwd=folder,
                          env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_example_learns_what_cannot_be_remembered(
    tmp_path: Path, own_names: Callable[[], None]
) -> None:
    registry.import_file(str(EXAMPLE))
    config = lc.preset("small", task="modadd", kind="softmax")
    config = replace(config, training=replace(config.training, steps=500))
    run = lc.train(config, tmp_path / "run", progress=False)
    assert run.newest("ood", "accuracy").mean > 0.95
    result = lc.decode(run, labels="sum", layers=1, n_train=1_000, n_heldout=1_000)
    scores = result.table.query("metric == 'accuracy'").set_index("features")
    # The code tells the sum of numbers that were never added in training, and only a trained one.
    assert scores.loc["code", "low"] > scores.loc["untrained", "high"]
    assert scores.loc["code", "low"] > scores.loc["shuffled", "high"]


@pytest.mark.slow
@pytest.mark.parametrize("executor", ["local", "ray"])
def test_workers_of_a_sweep_import_it(tmp_path: Path, executor: str) -> None:
    if executor == "ray":
        pytest.importorskip("ray")
    (tmp_path / "tasks").mkdir()
    shutil.copy(EXAMPLE, tmp_path / "tasks" / "modadd.py")
    said = latentcode(
        tmp_path, "sweep", "--import", "tasks/modadd.py", "--out", "sweep", "--task", "modadd",
        "--preset", "smoke", "--fix", "training.steps=2", "--fix", "training.warmup_steps=0",
        "--fix", "training.eval_instances=64", "--axis", "task.modulus=5,7", "--executor",
        executor, "--processes", "1")
    assert "wrote table sweep/table.csv" in said
    table = (tmp_path / "sweep" / "table.csv").read_text()
    assert "modulus=7" in table


@pytest.mark.slow
def test_a_task_of_a_notebook_says_that_workers_do_not_know_it(tmp_path: Path) -> None:
    script = (f"exec(open({str(EXAMPLE)!r}).read(), globals())\n"
              "from latentcode.sweep import Grid, sweep\n"
              "grid = Grid(lc.preset('smoke', task='modadd'), {'training.seed': (0,)})\n"
              "print(sweep(grid, 'runs', processes=1).failed['seed=0'])")
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, env=environment(),
                          capture_output=True, text=True, check=False, timeout=300)
    assert "a process that trains does not know the task" in done.stdout
    assert "expected it in a file of its own" in done.stdout


def test_an_own_run_names_the_file_to_import(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], refused: Callable[..., str],
    own_names: Callable[[], None],
) -> None:
    folder = tmp_path / "run"
    main(["train", "modadd", "--import", str(EXAMPLE), "--out", str(folder), *LITTLE])
    known = json.loads((folder / "provenance.json").read_text())
    assert known["registered"] == {"task": {"modadd": "modadd.py"}}
    own_names()
    capsys.readouterr()  # how far training is, where it takes long enough to be told
    said = refused("show", folder)
    assert "has task 'modadd', which is not registered here" in said
    assert "`import modadd` first, or --import modadd.py on the command line" in said
    assert "modadd" not in sys.modules
    main(["--import", str(EXAMPLE), "show", str(folder), "--split", "ood"])
    assert "sum: " in capsys.readouterr().out
    with pytest.raises(lc.LatentCodeError, match="task 'modadd' offers no minimal pairs"):
        lc.intervene(folder)


def test_an_unknown_task_is_named_before_its_flags(refused: Callable[..., str]) -> None:
    said = refused("train", "modadd", "--task.modulus", "7", "--out", "x")
    assert said.startswith("error: unknown task 'modadd'; expected one of: logic, sraven")
    assert "--import FILE" in said
    said = refused("sweep", "--task", "modadd", "--axis", "training.seed=0", "--out", "x")
    assert "unknown task 'modadd'" in said


@pytest.mark.parametrize(("name", "text", "message"), [
    ("missing.py", None, "cannot import missing.py: there is no such file"),
    ("broken.py", "x = 1\nraise RuntimeError('no\\nluck')\n",
     "cannot import broken.py: broken.py, line 2: RuntimeError: no luck"),
    ("typo.py", "def f(:\n",
     "cannot import typo.py: SyntaxError: invalid syntax (typo.py, line 1)"),
    ("leaves.py", "import sys\nsys.exit('bye')\n", "leaves.py, line 2: SystemExit: bye"),
    ("own.py", "import latentcode as lc\nlc.register_task('x', config=dict)(lc.Task)\n",
     "cannot import own.py: own.py, line 2: Task lacks combinations"),
    ("json.py", "", "json is the name of another module"),
    ("my-tasks.py", "", "expected a file whose name is that of a module"),
    (".", None, "cannot import .: expected a file such as my_tasks.py, or a module"),
    ("no.such.module", None, "ModuleNotFoundError: No module named 'no'"),
])
def test_a_file_that_cannot_be_imported_is_one_line(
    name: str, text: str | None, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    refused: Callable[..., str], own_names: Callable[[], None],
) -> None:
    monkeypatch.chdir(tmp_path)
    if text is not None:
        Path(name).write_text(text)
    said = refused("show", "sraven-hyla", "--import", name)
    assert said.startswith("error: cannot import")
    assert message in said
    assert registry.asked_for() == ()


def test_the_flag_stands_anywhere_and_several_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: Callable[..., str],
    own_names: Callable[[], None],
) -> None:
    monkeypatch.chdir(tmp_path)
    package = tmp_path / "latentcode_own_package"
    package.mkdir()
    for file in (tmp_path / "latentcode_own_file.py", package / "__init__.py", package / "b.py"):
        file.touch()
    words = ["--import=latentcode_own_file.py", "show", "--import", "latentcode_own_package.b", "x"]
    assert take_imports(words) == ["show", "x"]
    assert registry.asked_for() == (("latentcode_own_file", str(tmp_path)),
                                   ("latentcode_own_package.b", str(tmp_path)))
    assert json.loads(registry.in_environment()[registry.IMPORTS])[0][0] == "latentcode_own_file"
    assert "--import names nothing" in refused("show", "x", "--import")
    assert "--import names nothing" in refused("show", "--import", "--split", "ood")


def test_the_server_of_the_explorer_imports_it_too(
    monkeypatch: pytest.MonkeyPatch, own_names: Callable[[], None]
) -> None:
    pytest.importorskip("streamlit")
    from latentcode.app.server import environment as server_environment

    registry.import_file(str(EXAMPLE))
    variables = server_environment(())
    own_names()
    assert "modadd" not in TASKS
    monkeypatch.setenv(registry.IMPORTS, variables[registry.IMPORTS])
    registry.import_from_environment()
    assert "modadd" in TASKS


def test_a_module_that_takes_a_file_s_name_is_not_taken_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_names: Callable[[], None]
) -> None:
    for folder in ("mine", "other"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "charts.py").touch()
    monkeypatch.syspath_prepend(tmp_path / "other")
    asked = [("charts", str(tmp_path / "mine"))]
    with pytest.raises(lc.LatentCodeError, match="charts is the name of another module"):
        registry.import_again(asked)
    assert registry.asked_for() == ()
    sys.path.remove(str(tmp_path / "other"))
    registry.import_again(asked)
    assert registry.asked_for() == tuple(asked)


def test_modules_of_the_explorer_do_not_stand_before_a_user_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_names: Callable[[], None]
) -> None:
    testing = pytest.importorskip("streamlit.testing.v1")
    from latentcode.app import main as entry

    (tmp_path / "words.py").write_text("import latentcode as lc\n"
                                       "lc.register_nonlinearity('own', lambda x: x.exp())\n")
    monkeypatch.setenv(registry.IMPORTS, json.dumps([["words", str(tmp_path)]]))
    test = testing.AppTest.from_file(str(Path(entry.__file__)), default_timeout=60).run()
    assert not test.exception
    assert "own" in NONLINEARITIES


def test_an_error_of_a_library_names_the_user_s_line(
    tmp_path: Path, own_names: Callable[[], None]
) -> None:
    library = tmp_path / ".venv" / "site-packages" / "latentcode_fails.py"
    library.parent.mkdir(parents=True)
    library.write_text("def fail(): raise ValueError('no luck')\n")
    sys.path.append(str(library.parent))
    (tmp_path / "latentcode_caller.py").write_text("import latentcode_fails as f\nf.fail()\n")
    with pytest.raises(lc.LatentCodeError, match=r"latentcode_caller\.py, line 2: ValueError"):
        registry.import_file(str(tmp_path / "latentcode_caller.py"))
