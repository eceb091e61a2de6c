"""The language model and texts that the explorer was started with, checked before that.

The command tells the server through its environment. Nothing here imports torch until a model and
its texts are checked.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

from latentcode.errors import ArtifactError, ConfigError, check, check_count
from latentcode.hub import is_address
from latentcode.runs.run import ZOO_PREFIX, load_run

VARIABLE = "LATENTCODE_LANGUAGE"
"""Environment variable with what was given, as JSON."""
TEXTS, LONGEST = 1_000, 128
"""Texts that are read, and tokens of each."""
PAIRS = 5_000
"""Pairs of a query and a key whose codes are kept."""
Encode: TypeAlias = Callable[[str], list[int]]
"""Returns the tokens of a text."""
FEWEST = 4
"""Texts of at least two tokens that are needed: clusters are chosen on some, measured on others."""


@dataclass(frozen=True)
class Model:
    """A model as it was asked for.

    name      a folder, a name on the hub, also with @revision, or a run on text
    identity  tells its weights from others, without reading them
    """

    name: str
    identity: str

    @property
    def short(self) -> str:
        """What pages call it."""
        return Path(self.name).name if Path(self.name).exists() else self.name


@dataclass(frozen=True)
class Given:
    """What was given.

    texts    the file of texts
    digest   of what it holds
    n        texts that are read at most, the first ones
    longest  tokens of each, longer ones are cut
    """

    model: Model
    texts: str
    digest: str
    n: int = TEXTS
    longest: int = LONGEST

    def to_json(self) -> str:
        """Return it as the server reads it."""
        return json.dumps(asdict(self))


def given() -> Given | None:
    """Return what the server was started with; None where that was no language model."""
    text = os.environ.get(VARIABLE)
    return _read(text) if text else None


@cache
def _read(text: str) -> Given:
    found = json.loads(text)
    return Given(**{**found, "model": Model(**found["model"])})


def checked(
    models: Sequence[str], texts: str, *, n: int = TEXTS, longest: int = LONGEST
) -> Given:
    """Return what the server is to show; no weight is read for it.

    Raises what opening a model raises, `ArtifactError` for texts that cannot be read, and
    `ConfigError` for texts that are too few or too short.
    """
    check(len(models) == 1, f"--texts is given with {len(models)} models"
          f"{': ' + ', '.join(models) if models else ''}; expected one language model: "
          "latentcode explore gpt2 --texts texts.txt")
    check_count("--n", n)
    check_count("--longest", longest, 2)
    from latentcode.prompts.texts import source_of

    source = source_of(texts)
    model, encode = _looked_up(models[0])
    found, tried = [], 0
    for one in source.read():
        if tried == n:
            break
        tried += 1
        check(not one.is_prompt, f"row {tried - 1} of {texts} is a prompt; expected texts: a .txt "
              'with one text per line, or a .jsonl with {"text": ...} per line')
        found.append(encode(str(one.text))[:longest])
    long = sum(len(ids) >= 2 for ids in found)
    check(tried > 0, f"{texts} holds no texts; expected at least {FEWEST}, one text per line")
    check(long >= FEWEST, f"{texts} has {long} texts of two tokens or more among the {tried} that "
          f"are read; expected at least {FEWEST}: a pair is a token and one before it")
    return Given(model, str(Path(texts).resolve()), source.digest(), n, longest)


def _looked_up(model: str) -> tuple[Model, Encode]:
    """Return a model, which is not loaded, and how it makes tokens of a text."""
    from latentcode.models.pretrained import find_model, is_run, one_line

    if is_run(model) or is_address(model) or model.startswith(ZOO_PREFIX):
        return _of_run(model)
    files = find_model(model)
    files.check_tokenizer()
    with one_line(files):
        from transformers import AutoTokenizer

        tokenizer: Any = AutoTokenizer.from_pretrained(**files.options)
    check(tokenizer.is_fast, f"the tokenizer of model {files.called!r} does not tell which "
          "characters a token stands for; expected a 'fast' one, with tokenizer.json")
    identity = files.commit or _stamp(files.folder)
    return (Model(str(files.folder.resolve()) if files.repo is None else model, identity),
            lambda text: list(tokenizer(text)["input_ids"]))


def _of_run(model: str) -> tuple[Model, Encode]:
    from latentcode.tasks import make_task
    from latentcode.tasks.text.task import Text

    run = load_run(model)
    task = make_task(run.config.task)
    if not isinstance(task, Text):
        raise ConfigError(f"run {run.name!r} was trained on task {run.config.task.name!r}, whose "
                          "models take no text; expected a language model, or no --texts")
    tokenizer = task.data.tokenizer
    steps = run.checkpoints()
    check(len(steps) > 0, f"run {run.name!r} holds no trained weights yet; expected a checkpoint",
          ArtifactError)
    path = str(Path(model).resolve()) if Path(model).is_dir() else model
    return Model(path, f"{run.id}@{steps[-1]}"), lambda text: tokenizer.locate(text)[0]


def _stamp(folder: Path) -> str:
    """Return what changes when a file of a folder is replaced."""
    files = sorted((entry.name, entry.stat().st_mtime_ns, entry.stat().st_size)
                   for entry in os.scandir(folder) if entry.is_file())
    return hashlib.sha256(json.dumps([str(folder.resolve()), files]).encode()).hexdigest()
