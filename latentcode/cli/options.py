"""The options that commands share, and what a command does with what it computed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from latentcode.errors import ConfigError, check

if TYPE_CHECKING:
    from latentcode.codes import LatentCodes
    from latentcode.probes.common.results import TableResult
    from latentcode.progress import Progress

Split = Literal["train", "test", "ood", "unknown"]
RunName = Annotated[str, tyro.conf.arg(
    metavar="RUN", help="A run folder, a model of the zoo such as sraven-hyla, or hf://user/name.")]
"""The argument of a command that takes one run."""


def take_imports(arguments: Sequence[str]) -> list[str]:
    """Import what every `--import FILE` names, before anything else is read; return the rest."""
    from latentcode.imports import import_file

    rest: list[str] = []
    words = iter(arguments)
    for word in words:
        flag, equals, name = word.partition("=")
        if flag != "--import":
            rest.append(word)
            continue
        name = name if equals else next(words, "")
        check(bool(name) and not name.startswith("-"), "--import names nothing; expected a file "
              "such as my_tasks.py, or a module", ConfigError)
        import_file(name)
    return rest


def default_is(text: str) -> Any:
    """Say in `--help` what an option that is left out means, where its default does not tell."""
    return tyro.conf.arg(help_behavior_hint=f"(default: {text})")


@dataclass(frozen=True, kw_only=True)
class Saving:
    """Where the result goes."""

    out: Path
    """folder to save the result in"""
    overwrite: bool = False
    """replace an earlier result in that folder, finished or not"""

    def check_out(self, marker: str) -> None:
        """Raise an error if `out` cannot take the result: before the work, not after it."""
        from latentcode.files.storage import check_free

        check_free(self.out, overwrite=self.overwrite, marker=marker)

    def save_result(
        self, doing: str, compute: Callable[[Progress], TableResult | LatentCodes], *,
        is_saved: bool = False,
    ) -> None:
        """Compute under a progress bar, save, print, and say where it is.

        is_saved  what is computed is in the folder then, and the same command goes on with it
        """
        from latentcode.progress import bar

        try:
            with bar(doing) as progress:
                result = compute(progress)
        except KeyboardInterrupt as interruption:
            if not is_saved:
                interruption.add_note(f"{self.out} was not written; the same command starts again")
            raise
        if not is_saved:
            result.save(self.out, overwrite=self.overwrite)
        print(result)
        print(f"wrote {'result' if hasattr(result, 'marker') else 'codes'} {self.out}")
