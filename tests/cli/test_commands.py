"""The command line as a whole: help, errors of one line, and options that are the functions' own.
"""

import inspect
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields
from importlib import import_module
from pathlib import Path

import pytest

import latentcode as lc
from latentcode.cli import COMMANDS, FORMER, main
from latentcode.cli.asking import SUBJECT
from latentcode.cli.overview import summary
from latentcode.cli.questions import VERBS
from latentcode.documented import REQUIRED, options_of


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
    listed = [line.split(maxsplit=1) for line in text.splitlines() if line.startswith("  ")]
    summaries = {words[0]: words[1] for words in listed if words[0] in COMMANDS}
    assert summaries == {name: summary(command) for name, command in COMMANDS.items()}


def test_help_of_a_command_is_whole(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    text = help_of(capsys, "similarity")
    assert f"{summary(VERBS['similarity'])}\n\nExample: latentcode similarity runs/hyla" in text
    options = set(re.findall(r"^\W{1,3}(--[a-z][a-z-]*)", text, re.MULTILINE))
    own = {f"--{name.replace('_', '-')}" for name, option in options_of(
        "latentcode.probes.similarity.similarity").items()
        if option.words and name not in ("model", "problems", "controls")}
    assert options == {"--out", "--overwrite", "--prompts", "--no-controls", "--step", "--device",
                       "--dtype", "--prepend-bos", "--batch-size", "--revision",
                       "--device-map"} | own
    for command in ("train", "decode", "zoo", "sweep"):
        assert "--import FILE" in help_of(capsys, command)


@pytest.mark.parametrize("words", [["--help"], ["decode", "--help"], ["zoo", "list", "--help"]])
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


@pytest.mark.parametrize("name", VERBS)
def test_options_are_the_arguments_of_the_function(name: str) -> None:
    verb = VERBS[name]
    module, _, called = str(verb.function).rpartition(".")
    function = getattr(import_module(module), called)
    arguments = inspect.signature(function).parameters
    assert called == name.replace("-", "_")
    assert list(verb.described.options) == list(arguments)
    for option, argument in arguments.items():
        known = verb.described.options[option]
        assert known.default == (
            REQUIRED if argument.default is argument.empty else argument.default), option
        # Everything has a text, and what is None by default says what that means.
        assert known.text, option
        assert (known.default is not None or known.said_default or known.words is None
                or option in ("problems", "out")), option
    _, asked, own = (field.type for field in fields(verb.command) if field.name in (
        "model", "asked", "own"))
    taken = {field.name for group in (asked, own) for field in fields(group.__origin__)}
    given = {option for option, known in verb.described.options.items() if known.words}
    assert given - taken <= {*list(arguments)[:1], "problems", "out", "overwrite"}
    assert issubclass(getattr(lc, inspect.signature(function).return_annotation), object)


def test_every_option_of_a_subject_is_one_of_every_question() -> None:
    known = {name for name, option in options_of(SUBJECT).items() if option.words}
    assert known - {"model", "problems"} == {
        "step", "revision", "device", "device_map", "dtype", "prepend_bos", "batch_size"}


@pytest.mark.parametrize("name", FORMER)
def test_a_former_command_names_what_is_in_its_place(
    name: str, refused: Callable[..., str]
) -> None:
    said = refused(name, "gpt2", "--out", "x")
    assert said == f"error: latentcode {name} is now latentcode {FORMER[name]}"
    assert name not in COMMANDS
    assert FORMER[name].split()[0] in COMMANDS


@pytest.mark.parametrize(("command", "message"), [
    ("train logic --kind hylla --out x",
     "error: unknown attention kind 'hylla'; expected one of: softmax, linear, hyla"),
    ("train logic --out x --training.device cuda:99", "error: --training.device is"),
    ("train logic --out x --task.ood-fraction 0.99", "the largest possible fraction"),
    ("train logic --out x --model.d-model 0", "error: --model.d-model is 0"),
    ("train sraven --config nowhere.yaml --out x", "nowhere.yaml"),
    ("train language --task.text some.txt --out x", "error: some.txt is binary"),
    ("train language --task.text /no/text --out x", "--task.text is"),
    ("train logic --config run/config.yaml --kind hyla --out x", "together with"),
    ("train --out logic --preset smoke sraven", "as the first word"),
    ("train logic --preset smoke --out x --model.d-input 9", "--model.d-input is 9; expected 4"),
    ("train logic --preset smoke --out run", "already holds a run"),
    ("show nowhere", "nowhere"), ("decode nowhere --out y", "nowhere"),
    ("show run --split ood --index -2", "--index is -2"),
    ("extract run --out x --untrained --device cuda:99", "device"),
    ("extract run --out taken", "exists already"), ("decode run --out taken", "exists already"),
    ("extract run --out x --pairs q->k", "unknown pair 'q->k'; expected one of: query->query"),
    ("extract run --out x --layers 7", "unknown layer 7; expected one of: 0, 1"),
    ("decode run --out x --labels colour", "unknown label 'colour'"),
    ("decode run --out x --n-train 0",
     "error: --n-train is 0; expected a whole number of at least 1"),
    ("align run copy --out x --n-heldout 0",
     "error: --n-heldout is 0; expected a whole number of at least 1"),
])
def test_errors_are_one_line_and_nothing_is_written(
    command: str, message: str, run: lc.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    refused: Callable[..., str],
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("run", "copy"):
        shutil.copytree(run.path, name)
    Path("taken").mkdir()
    Path("taken/meta.json").write_text("{}")
    Path("some.txt").write_bytes(b"\0")
    before = sorted(tmp_path.rglob("*"))
    assert message in refused(*command.split())
    assert sorted(tmp_path.rglob("*")) == before


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
