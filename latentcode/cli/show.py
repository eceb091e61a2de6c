"""`latentcode show`: the contents of a folder, as text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import tyro

from latentcode.cli.parsing import Split, default_is
from latentcode.errors import LatentCodeError, check_count

if TYPE_CHECKING:
    from latentcode.runs import Run


@dataclass(frozen=True, kw_only=True)
class Show:
    """Show what a folder holds.

    Example: latentcode show sraven-hyla --split ood --index 3

    Shows a run, codes, a result, or a problem of a run's task.
    """

    path: tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="FOLDER")]]
    """A run folder, a model of the zoo such as sraven-hyla, codes, a result, or hf://user/name."""
    split: Annotated[Split | None, default_is("show the run itself")] = None
    """Show a problem of this split of the run's task."""
    index: int = 0
    """Which problem, from 0."""

    def run(self) -> None:
        from latentcode.codes import LatentCodes
        from latentcode.probes.saved import load_result, result_kind
        from latentcode.runs.run import folder_of, load_run

        folder = folder_of(self.path)
        is_codes = (folder / "codes.safetensors").is_file()
        is_result = not is_codes and result_kind(folder) is not None
        if self.split is not None and (is_codes or is_result):
            raise LatentCodeError(f"--split is {self.split!r}, but {self.path} is not a run; "
                                  "expected a run, whose task has problems to show")
        if is_codes:
            codes: LatentCodes = LatentCodes.load(folder)
            print(codes)
            shown = codes.labels.iloc[:, :100]  # wide tables take minutes
            print(shown.describe(include="all").T.to_string())
            if len(shown.columns) < len(codes.labels.columns):
                print(f"... the first 100 of {len(codes.labels.columns):,} labels")
        elif is_result:
            print(load_result(folder))
        elif self.split is not None:
            print(_problem(load_run(folder), self.split, self.index))
        else:
            run = load_run(folder)
            print(run)
            print_metrics(run)


def _problem(run: Run, split: str, index: int) -> str:
    """Return one problem of a split, as text."""
    from latentcode.devices import make_generator
    from latentcode.tasks import make_task

    check_count("--index", index, 0, LatentCodeError, most=10**6)  # all before it are drawn
    task = make_task(run.config.task)
    return task.render(task.sample(split, index + 1, make_generator(0, f"show {split}")), index)


def print_metrics(run: Run) -> None:
    """Print the newest means on every split, then those of single rules or terms."""
    from latentcode.zoo import constituent_metrics

    latest, constituents = run.latest(), constituent_metrics(run)
    if not latest.empty:
        print(latest.to_string(na_rep=""))
    if not constituents.empty:
        table = constituents.to_string(na_rep="", float_format="{:.3f}".format)
        print(f"\nby constituent\n{table}")
