"""The errors that a newcomer meets first: one line, which names the word and writes nothing."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import latentcode as lc
from latentcode.cli.options import in_one_line
from latentcode.errors import ArtifactError, ConfigError, RunError, UnknownNameError

COMMANDS = [
    ("decod runs/hyla --out new", "unknown command 'decod'; did you mean decode?"),
    ("--versoin", "unknown option '--versoin'; did you mean --version?"),
    ("official parity x.npz", "unknown command 'official'"),
    ("decode", "--out"),
    ("decode --out new", "MODEL is missing"),
    ("decode runs/hyla", "--out"),
    ("decode runs/hyla --output new", "--out"),
    ("decode runs/hyla --out", "--out"),
    ("decode runs/hyla runs/softmax --out new", "folders of codes"),
    ("decode --labels term_1 runs/hyla --out new", "MODEL is missing"),
    ("decode runs/hyla --out new --n 100", "--n, 100; did you mean --n-train?"),
    ("decode runs/hyla --out new --n-train many", "--n-train"),
    ("decode runs/hyla --out new --layers 0,1", "--layers"),
    ("decode runs/hyla --out new --layers 2", "layer 2"),
    ("decode runs/hyla --out new --labels hue", "label 'hue'"),
    ("decode runs/hyla --out new --device gpu", "device is 'gpu'"),
    ("decode runs/hyla --out new --seed -1", "seed is -1"),
    ("decode runs/hyla --out notes.txt/new", "notes.txt is a file"),
    ("decode runs/hyla --out runs", "runs exists already"),
    ("decode runs/nowhere --out new", "runs/nowhere does not exist"),
    ("decode notes.txt --out new", "notes.txt is a file"),
    ("decode runs --out new", "config.yaml is missing"),
    ("decode gpt2 --prompts nowhere.jsonl --out new", "--prompts is 'nowhere.jsonl'"),
    ("decode gpt2 --texts notes.txt --prompts notes.txt --out new", "one or the other"),
    ("topography --out new", "MODEL"),
    ("extract runs/hyla --out new --split valid", "--split"),
    ("extract runs/hyla --out new --n 0", "n is 0"),
    ("extract runs/hyla --out new --pairs q->k", "pair 'q->k'"),
    ("extract runs/hyla --out new --pairs all q->k", "pairs are all, q->k; expected all alone"),
    ("knn-purity runs/nowhere --out new --n-bootstrap 0", "n_bootstrap is 0"),
    ("decode runs/nowhere --out new --n-shuffles -1", "n_shuffles is -1"),
    ("knn-purity runs/nowhere --out new --k 0", "k is 0"),
    ("das runs/nowhere --out new --heldout 1.5", "heldout is 1.5"),
    ("generate nowhere text --max-new-tokens 0", "max_new_tokens is 0"),
    ("extract runs/hyla --out new --untrained --device cuda:99", "device"),
    ("intervene runs/nowhere --out new --scope pair", "--scope given without --patch"),
    ("intervene runs/hyla --out new --patch give", "patch 'give'"),
    ("align runs/hyla --out new", "1 model is given"),
    ("align runs/hyla runs/hyla --out new", "different names"),
    ("show nowhere", "nowhere"),
    ("show runs/hyla --split ood --index -1", "--index is -1"),
    ("explore nowhere", "folder nowhere"),
    ("explore --texts notes.txt", "--texts"),
    ("explore runs/hyla --longest 64", "--longest is 64"),
    ("zoo lst", "lst"),
    ("zoo", "list"),
    ("sweep --out new", "--grid"),
    ("sweep --out new --task modadd --axis training.seed=0", "unknown task 'modadd'"),
    ("train --out new", "PROBLEM"),
    ("train logic --out runs/hyla", "already holds a run"),
    ("train logic --out new --preset tiny", "unknown preset 'tiny'"),
    ("train logic --out new --kind hylla", "unknown attention kind 'hylla'"),
    ("train logic --out new --steps 500", "--steps, 500; did you mean --training.steps?"),
    ("train logic --out new --overwrite true", "true"),
    ("train logic --out new --training.steps 100 --training.warmup-steps 50", "warmup_steps is 50"),
    ("train logic --out new --training.learning-rate high", "--training.learning-rate"),
    ("train logic --out new --training.device cuda:99", "device is 'cuda:99'"),
    ("train logic --out new --task.ood-fraction 0.99", "largest possible fraction"),
    ("train logic --out new --model.d-model 0", "model.d_model is 0"),
    ("train logic --out new --preset smoke --model.d-input 9", "model.d_input is 9"),
    ("train --out logic --preset smoke sraven", "as the first word"),
    ("train logic --out new --config nowhere.yaml", "nowhere.yaml"),
    ("train logic --out new --config broken.yaml", "broken.yaml: configuration is not valid YAML"),
    ("train logic --out new --config lacking.yaml", "lacks key(s) model, training"),
    ("train logic --out new --config runs/hyla/config.yaml --kind hyla", "together with"),
    ("train language --out new --task.text binary.txt", "binary.txt holds no text"),
    ("train language --out new --task.text /no/text", "task.text is"),
    ("heads text-softmax --texts pages.txt --out new", "--texts is 'pages.txt'"),
    ("heads text-softmax --texts notes.txt --longest 4096 --out new", "longest is 4,096"),
    ("show nowhere --import", "--import names nothing"),
]
"""Words after `latentcode`, and what their error names."""
CALLS: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (lambda: lc.load_run("runs/nowhere"), RunError, "runs/nowhere"),
    (lambda: lc.preset("tiny"), UnknownNameError, "preset 'tiny'"),
    (lambda: lc.extract("runs/hyla", split="valid"), UnknownNameError, "split 'valid'"),
    (lambda: lc.extract("runs/hyla", seed=1.5), ConfigError,  # type: ignore[arg-type]
     "seed is 1.5"),
    (lambda: lc.TrainingConfig(steps=0), ConfigError, "training.steps is 0"),
    (lambda: lc.ModelConfig(d_model="64"), ConfigError,  # type: ignore[arg-type]
     "model.d_model is '64'"),
    (lambda: lc.load_pretrained("gpt2", revision="step1000"), ArtifactError, "'gpt2@step1000'"),
    (lambda: lc.load_pretrained("gpt2", dtype="int8"), UnknownNameError, "dtype 'int8'"),
    (lambda: lc.load_pretrained("gpt2", attn_implementation="sdpa"), ConfigError,
     "attn_implementation is 'sdpa'"),
    (lambda: lc.load_pretrained("gpt2", device_map="balanced"), ConfigError,
     "device_map is 'balanced'"),
    (lambda: lc.generate("text-softmax", "def f(", max_new_tokens=1000), ConfigError,
     "max_new_tokens is 1000"),
    (lambda: lc.generate("text-softmax", "def f(", patches=lc.Patch("interchange")), ConfigError,
     "patch 'interchange'"),
]
"""Calls of public functions, the class of their error, and what it names."""


@pytest.fixture(autouse=True)
def newcomer(run: lc.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder as a newcomer may have it."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(run.path, "runs/hyla")
    Path("notes.txt").write_text("nothing of ours\n")
    Path("binary.txt").write_bytes(b"\0")
    Path("broken.yaml").write_text("task:\n  name: logic\n   n_terms: 2\n")
    Path("lacking.yaml").write_text("task: {name: logic}\n")


@pytest.mark.parametrize(("words", "named"), COMMANDS)
def test_an_error_of_a_command_is_one_line(
    words: str, named: str, refused: Callable[..., str]
) -> None:
    before = sorted(Path().rglob("*"))
    line = refused(*shlex.split(words))
    assert line.startswith("error: ")
    assert named in line
    assert sorted(Path().rglob("*")) == before


def test_what_tyro_draws_on_a_terminal_is_one_line() -> None:
    box = ("╭─ \x1b[31mUnrecognized options\x1b[0m ───╮\n"
           "│ Unrecognized \x1b[1moptions: --lables\x1b[0m │\n│ ────────── │\n"
           "│ Perhaps you meant: │\n│   \x1b[m--labels\x1b[0m STR │\n"
           "│ ────────── │\n│ For full helptext, run latentcode decode --help │\n╰────────╯\n")
    assert in_one_line(box) == ("Unrecognized options: --lables; did you mean --labels? "
                                "(latentcode decode --help lists all options)")


@pytest.mark.parametrize(("call", "kind", "named"), CALLS)
def test_an_error_of_a_function_names_its_argument(
    call: Callable[[], Any], kind: type[Exception], named: str
) -> None:
    with pytest.raises(kind) as raised:
        call()
    assert named in str(raised.value)
