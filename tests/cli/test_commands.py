"""The command line as a whole: help, errors of one line, and options that are the verbs' own."""

import inspect
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import MISSING, fields
from pathlib import Path

import pytest

import latentcode as lc
from latentcode.cli import COMMANDS, main
from latentcode.cli.options import Question

QUESTIONS = {name: command for name, command in COMMANDS.items()
             if issubclass(command, Question) and name != "extract"}


def help_of(capsys: pytest.CaptureFixture[str], *command: str) -> str:
    with pytest.raises(SystemExit) as stopped:
        main([*command, "--help"])
    assert stopped.value.code == 0
    return capsys.readouterr().out


def test_help_lists_every_command_in_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = help_of(capsys)
    assert len(text.splitlines()) <= 52  # two screens
    assert max(map(len, text.splitlines())) <= 100
    listed = [line.split(maxsplit=1) for line in text.splitlines() if line.startswith("  ")]
    summaries = {words[0]: words[1] for words in listed if words[0] in COMMANDS}
    assert summaries == {name: str(command.__doc__).partition("\n")[0]
                         for name, command in COMMANDS.items()}
    assert list(summaries)[:14] == [
        "train", "extract", "decode", "project", "knn-purity", "similarity",
        "topography", "align", "value-networks", "intervene", "attribute", "das", "show"]


@pytest.mark.parametrize("command", ["train", "decode", "zoo", "sweep"])
def test_help_of_a_command_says_that_it_imports(
    capsys: pytest.CaptureFixture[str], command: str
) -> None:
    assert "With --import FILE, a file of your own" in help_of(capsys, command)


def test_help_of_a_command_is_whole(capsys: pytest.CaptureFixture[str]) -> None:
    text = help_of(capsys, "similarity")
    assert re.search(r"same|similar codes\?\n\nExample: latentcode similarity", text)
    options = re.findall(r"^\W*(--[a-z][a-z-]*)", text, re.MULTILINE)
    assert options == ["--out", "--overwrite", "--split", "--n", "--pairs", "--layers", "--seed",
                       "--device", "--label"]


def test_help_imports_no_torch() -> None:
    code = ("import sys, contextlib, io\nfrom latentcode.cli import main\n"
            "with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):\n"
            "    main(['--help'])\n"
            "assert not {'torch', 'sklearn', 'matplotlib', 'pandas'} & set(sys.modules)")
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_the_package_is_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "latentcode", "show", "nowhere"],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr.startswith("error: unknown model 'nowhere'; expected one of: ")


@pytest.mark.parametrize("name", QUESTIONS)
def test_options_are_the_arguments_of_the_verb(name: str) -> None:
    command = QUESTIONS[name]
    verb, kind = command.verb(object.__new__(command))
    assert verb.__name__ == name.replace("-", "_")
    assert inspect.signature(verb).return_annotation == kind.__name__
    arguments = inspect.signature(verb).parameters
    first, *_ = arguments
    options = {field.name: field.default for field in fields(command)
               if field.name not in ("out", "overwrite")}
    path = "paths" if first == "runs" or name == "project" else "path"
    assert options.pop(path) is MISSING
    settings = {option for option in options if option not in arguments}
    assert settings <= {"project": {"perplexity", "n_neighbors", "metric"}}.get(name, set())
    for option, default in options.items():
        if option not in settings:
            assert arguments[option].default == (None if default == () else default), option


@pytest.mark.parametrize(("arguments", "message"), [
    (["train", "logic", "--kind", "hylla", "--out", "x"],
     "error: unknown attention kind 'hylla'; expected one of: softmax, linear, hyla"),
    (["train", "logic", "--out", "x", "--training.device", "cuda:99"],
     "error: --training.device is"),
    (["train", "logic", "--out", "x", "--task.ood-fraction", "0.99"],
     "the largest possible fraction"),
    (["train", "logic", "--out", "x", "--model.d-model", "0"], "error: --model.d-model is 0"),
    (["train", "sraven", "--config", "nowhere.yaml", "--out", "x"], "nowhere.yaml"),
    (["show", "nowhere"], "nowhere"),
    (["decode", "nowhere", "--out", "y"], "nowhere"),
])
def test_errors_are_one_line_and_nothing_is_written(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    refused: Callable[..., str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert message in refused(*arguments)
    assert not list(tmp_path.iterdir())


def test_a_file_is_no_option(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: Callable[..., str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("some.txt").write_bytes(b"\0")
    said = refused("train", "language", "--task.text", "some.txt", "--out", "x")
    assert said.startswith("error: some.txt is binary")


def test_no_choice_is_silently_ignored(
    run: lc.Run, tmp_path: Path, refused: Callable[..., str]
) -> None:
    config, out, taken = run.path / "config.yaml", tmp_path / "x", tmp_path / "taken"
    taken.mkdir()
    (taken / "meta.json").write_text("{}")
    for arguments, message in (
        (["train", "logic", "--config", config, "--kind", "hyla", "--out", out], "together with"),
        (["train", "--out", "logic", "--preset", "smoke", "sraven"], "as the first word"),
        (["train", "logic", "--preset", "smoke", "--out", out, "--model.d-input", "9"],
         "--model.d-input is 9; expected 4"),
        (["train", "language", "--task.text", tmp_path / "gone", "--out", out], "--task.text is"),
        (["extract", run.path, "--out", out, "--untrained", "--device", "cuda:99"], "device"),
        (["extract", run.path, "--out", taken], "exists already"),
        (["decode", run.path, "--out", taken], "exists already"),
        (["show", run.path, "--split", "ood", "--index", "-2"], "--index is -2"),
    ):
        assert message in refused(*arguments)
    assert not out.exists()


def test_errors_about_a_run_name_what_is_valid(
    run: lc.Run, tmp_path: Path, refused: Callable[..., str]
) -> None:
    out = tmp_path / "x"
    for arguments, message in (
        (["extract", run.path, "--out", out, "--pairs", "q->k"],
         "unknown pair 'q->k'; expected one of: query->query"),
        (["extract", run.path, "--out", out, "--layers", "7"],
         "unknown layer 7; expected one of: 0, 1"),
        (["decode", run.path, "--out", out, "--labels", "colour"], "unknown label 'colour'"),
        (["decode", run.path, "--out", out, "--n-train", "0"],
         "error: --n-train is 0; expected a whole number of at least 1"),
        (["align", run.path, run.path, "--out", out, "--n-heldout", "0"],
         "error: --n-heldout is 0; expected a whole number of at least 1"),
        (["train", "logic", "--preset", "smoke", "--out", run.path], "already holds a run"),
    ):
        assert message in refused(*arguments)
    assert not out.exists()


def test_an_unknown_command_is_named_beside_those_there_are(refused: Callable[..., str]) -> None:
    said = refused("decod", "runs/hyla", "--out", "y")
    assert said == (
        "error: unknown command 'decod'; did you mean decode? (latentcode --help lists all)")


def test_problems_are_shown_of_runs_alone(
    run: lc.Run, tmp_path: Path, refused: Callable[..., str]
) -> None:
    folder = lc.extract(run, n=8).save(tmp_path / "codes")
    assert f"--split is 'ood', but {folder} is not a run" in refused(
        "show", folder, "--split", "ood")
