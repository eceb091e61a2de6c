"""Addresses on the hub: `hf://user/name`, `hf://datasets/user/name`, either with `@revision`.

These are the addresses of `huggingface_hub`. Runs lie in repositories of models, codes in
repositories of data sets.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from latentcode.errors import HubError, check

PREFIX = "hf://"
MAIN = "main"
"""The revision that is meant where none is named: the newest commit."""
NAME = r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*"
REVISION = r"(?!.*\.\.)[A-Za-z0-9_][\w./+-]*"
COMMIT = re.compile(r"[0-9a-f]{40}")

Kind = Literal["run", "codes"]
"""What a shared folder holds."""


TITLES: Mapping[Kind, str] = {"run": "a shared run", "codes": "shared codes"}
"""Kinds in words."""


@dataclass(frozen=True)
class Address:
    """A repository of the hub, at a revision.

    repo      `user/name`
    kind      `codes` for a repository of data sets, `run` for one of models
    revision  a branch, a tag or a commit; None for the newest commit
    """

    repo: str
    kind: Kind = "run"
    revision: str | None = None

    @classmethod
    def parse(cls, text: str, revision: str | None = None) -> Address:
        """Read an address; `HubError` for what is none, and for two revisions that differ."""
        match = re.fullmatch(rf"{PREFIX}(datasets/)?({NAME})(?:@([^@\s]+))?", text, re.ASCII)
        if match is None:
            raise HubError(f"{text!r} is not an address on the hub; expected {PREFIX}user/name or "
                           f"{PREFIX}datasets/user/name, either with @revision")
        datasets, repo, named = match.groups()
        check(None in (revision, named) or revision == named, f"{text} names revision {named}; "
              f"expected no other, but revision is {revision!r}", HubError)
        revision = named if revision is None else revision
        # It becomes part of a path in the cache.
        check(revision is None or re.fullmatch(REVISION, revision, re.ASCII) is not None,
              f"{text} has {revision!r} as revision; expected a branch, a tag or a commit",
              HubError)
        return cls(repo, "codes" if datasets else "run", revision)

    @property
    def repo_type(self) -> str:
        """What the hub calls the kind of the repository."""
        return "dataset" if self.kind == "codes" else "model"

    def check_kind(self, wanted: Kind | None) -> None:
        """Raise `HubError` unless this is the address of a kind; None takes either."""
        how = {"run": f"lc.load_run({str(self)!r}) opens it",
               "codes": f"LatentCodes.load({str(self)!r}) opens them"}[self.kind]
        check(wanted in (None, self.kind), f"{self} is the address of {TITLES[self.kind]}; "
              f"expected {TITLES[wanted or self.kind]} ({how})", HubError)

    def __str__(self) -> str:
        datasets = "datasets/" if self.kind == "codes" else ""
        at = "" if self.revision is None else f"@{self.revision}"
        return f"{PREFIX}{datasets}{self.repo}{at}"


def is_address(text: object) -> bool:
    """Whether a text is meant as an address on the hub."""
    return isinstance(text, str) and text.startswith(PREFIX)


def origin(folder: Path) -> Address | None:
    """Return where a folder was downloaded from, at its commit; None for any other folder.

    The cache of `huggingface_hub` says so in its paths: `models--user--name/snapshots/commit`.
    """
    parts = folder.absolute().parts[-3:]
    if len(parts) < 3 or parts[1] != "snapshots" or not COMMIT.fullmatch(parts[2]):
        return None
    match = re.fullmatch(r"(models|datasets)--(.+)", parts[0])
    repo = "" if match is None else match[2].replace("--", "/", 1)
    if match is None or not re.fullmatch(NAME, repo, re.ASCII):
        return None
    return Address(repo, "codes" if match[1] == "datasets" else "run", parts[2])


__all__ = ["COMMIT", "MAIN", "NAME", "PREFIX", "TITLES", "Address", "Kind", "is_address", "origin"]
