"""Runs by name: a folder, a model that comes with the library, or one on the hub.

Needs no torch.
"""

from __future__ import annotations

import os
from pathlib import Path

from latentcode.errors import RunError, UnknownNameError, check, check_choice
from latentcode.hub import fetch, is_address
from latentcode.runs.run import CARD, Run

ZOO = Path(__file__).parents[1] / "models" / "zoo"
"""The folder of the entries."""
ZOO_PREFIX = "zoo:"
"""What a name may begin with, to say that no folder of that name is meant."""


def zoo_folders() -> dict[str, Path]:
    """Return the folder of each entry of the zoo that is offered, for it has a card, by name."""
    return {path.name: path for path in all_folders() if (path / CARD).is_file()}


def all_folders() -> list[Path]:
    """Return what lies in the zoo, also entries without a card, which only `verify` takes."""
    return sorted(path for path in ZOO.glob("*/") if not path.name.startswith("."))


def folder_of(name_or_path: str | Path) -> Path:
    """Return the folder that a name of the zoo, an address on the hub or a path stands for.

    Text that begins with `hf://` is an address, and what lies there, run or codes, is downloaded.
    A `Path`, and text with a separator such as `./sraven-hyla`, is always a path, and text that
    begins with `zoo:` always a name. Other text is a name of the zoo, or else a folder that
    exists. Where it is both, nothing is chosen silently: `RunError` says how to write either.
    `UnknownNameError` for what is neither lists the names. For an address it raises what
    `latentcode.hub.fetch` raises.
    """
    if isinstance(name_or_path, str) and is_address(name_or_path):
        return fetch(name_or_path)
    text, entries = str(name_or_path), zoo_folders()
    if isinstance(name_or_path, str) and text.startswith(ZOO_PREFIX):
        name = text.removeprefix(ZOO_PREFIX)
        check_choice("model of the zoo", name, entries)
        return entries[name]
    if isinstance(name_or_path, Path) or _has_separator(text) or text in ("", ".", ".."):
        return Path(name_or_path)
    exists = Path(text).exists() and not (text in entries and entries[text].samefile(text))
    if text not in entries:
        if not exists:
            raise UnknownNameError("model", text, (
                *entries, f"the path of a run folder, which {text} is not, for it does not exist"))
        return Path(text)
    check(not exists, f"{text} is a model of the zoo, and also in the present folder; expected "
          f"{ZOO_PREFIX}{text} for the model, or .{os.sep}{text} for what is here", RunError)
    return entries[text]


def load_run(
    run: Run | str | Path, *, revision: str | None = None, token: str | bool | None = None
) -> Run:
    """Open a model of the zoo, such as `sraven-hyla`, a run folder, or a run on the hub, such as
    `hf://user/name`; a `Run` is itself.

    See `folder_of` for what is a name and what a path.

    revision  of a run on the hub: a branch, a tag or a commit; default: the newest commit
    token     of an account that may read it; default: the one that was saved

    Raises what `folder_of` and `Run.open` raise, and `ConfigError` for a revision or a token of
    what is not on the hub.
    """
    if isinstance(run, str) and is_address(run):
        return Run.open(fetch(run, kind="run", revision=revision, token=token))
    for name, value in (("revision", revision), ("token", token)):
        check(value is None, f"{name} is given, but {run} is not on the hub; expected "
              "hf://user/name")
    return run if isinstance(run, Run) else Run.open(folder_of(run))


def _has_separator(text: str) -> bool:
    return os.sep in text or (os.altsep is not None and os.altsep in text)
