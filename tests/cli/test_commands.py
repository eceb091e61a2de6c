"""The command line as a whole: help, and options that are the arguments of functions."""

from __future__ import annotations

import inspect
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import latentcode as lc
from latentcode.cli import COMMANDS, command_of, main
from latentcode.cli.questions import NOTHING, options_of, patches
from latentcode.errors import ConfigError

CODE_ALONE = {"progress", "distances", "interventions"}
"""Arguments of questions that no words can give."""


def help_of(capsys: pytest.CaptureFixture[str], *command: str) -> str:
    with pytest.raises(SystemExit) as stopped:
        main([*command, "--help"])
    assert stopped.value.code == 0
    return capsys.readouterr().out


def called(name: str) -> Any:
    module, _, attribute = COMMANDS[name][0].rpartition(".")
    return getattr(import_module(module), attribute)


QUESTIONS = [name for name in COMMANDS if not COMMANDS[name][0].startswith("latentcode.cli.")]


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "zoo"])
def test_its_summary_is_the_first_line_of_its_docstring(name: str) -> None:
    assert COMMANDS[name][1] == (inspect.getdoc(called(name)) or "").partition("\n")[0]


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    lines = help_of(capsys).splitlines()
    listed = [line.split()[0] for line in lines if re.match("  [a-z]", line)]
    assert listed == list(COMMANDS)


@pytest.mark.parametrize("words", [["--help"], ["train", "--help"], ["zoo", "list", "--help"]])
def test_help_imports_no_torch(words: list[str]) -> None:
    code = ("import sys, contextlib, io\nfrom latentcode.cli import main\n"
            "with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):\n"
            f"    main({words})\n"
            "assert not {'torch', 'sklearn', 'matplotlib', 'pandas'} & set(sys.modules)")
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_the_package_is_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "latentcode", "show", "nowhere"],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr.startswith("error: unknown model 'nowhere'; expected one of: ")


@pytest.mark.parametrize("name", QUESTIONS)
def test_options_of_a_question_are_the_arguments_of_its_function(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    function = called(name)
    assert getattr(lc, name.replace("-", "_")) is function
    _, *arguments = inspect.signature(function).parameters
    text = help_of(capsys, name)
    assert f"{COMMANDS[name][1]}\n\nExample: latentcode {name} " in text
    assert "--import FILE" in text
    options = {option.removeprefix("no-").replace("-", "_") for option in re.findall(
        r"^\W{1,3}--([a-z][a-z-]*)", text, re.MULTILINE)}
    assert {*arguments} - options <= CODE_ALONE | {"problems"}
    assert options >= {"out", "overwrite", "prompts", "step", "device", "dtype", "prepend_bos",
                       "batch_size", "revision", "device_map"}
    for argument, option in options_of(function).items():
        note, = option.annotation.__metadata__
        assert note.help, argument
        assert option.default is not None or re.search(
            r"[Dd]efault|Without it", note.help) or argument in ("out", "problems"), argument


@pytest.mark.parametrize("name", QUESTIONS)
def test_an_empty_list_is_nothing_or_refused(name: str) -> None:
    options = options_of(called(name)) | (options_of(patches) if name == "intervene" else {})
    for option, parameter in options.items():
        if "tuple[" in str(parameter.annotation) and option not in ("problems", "models"):
            words = [name, "m", "--out", "x", f"--{option.replace('_', '-')}"]
            if NOTHING in parameter.annotation.__metadata__[0].help or parameter.default == ():
                asked: Any = command_of(words)
                assert asked.keywords["options"].get(option, ()) == ()
            else:
                with pytest.raises(ConfigError, match="has nothing after it; expected at least"):
                    command_of(words)


def test_a_run_without_metrics_says_so(
    run: lc.Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(run.path, tmp_path / "run")
    (tmp_path / "run" / "metrics.jsonl").write_text("")
    main(["show", str(tmp_path / "run")])
    assert "no metrics: metrics.jsonl is empty" in capsys.readouterr().out


def test_problems_are_shown_of_runs_alone(
    run: lc.Run, tmp_path: Path, refused: Callable[..., str]
) -> None:
    folder = lc.extract(run, n=8).save(tmp_path / "codes")
    assert f"--split is 'ood', but {folder} is not a run" in refused(
        "show", folder, "--split", "ood")
