"""`latentcode extract | probe | show`: what a trained model's codes are, and what they say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from latentcode.cli.opening import RunName, open_run, print_metrics
from latentcode.errors import LatentCodeError

if TYPE_CHECKING:
    from latentcode.codes import LatentCodes
    from latentcode.runs import Run

Split = Literal["train", "test", "ood", "unknown"]


@dataclass(frozen=True)
class Extract:
    """Run a trained model over a split and save the latent codes of named pairs.

    Memory does not grow with the number of instances. Interrupted, the same command goes on where
    it was.
    """

    path: tyro.conf.Positional[RunName]
    out: Path
    """Folder of the codes."""
    split: Split = "ood"
    """Which instances."""
    n: int = 4_096
    """Number of instances."""
    pairs: tuple[str, ...] = ()
    """Names of pairs, or `all`; default: the paper's."""
    layers: tuple[int, ...] = ()
    """Layers; default: all."""
    inputs: Literal["uniform", "fixed_context", "fixed_query"] | None = None
    """Fuzzy logic: what the instances share; default: as the model was trained."""
    residuals: bool = False
    """Also keep the residual stream at the queries."""
    untrained: bool = False
    """Use the initial weights instead."""
    seed: int = 0
    """Seed of the instances."""
    device: str = "cpu"
    """cpu or cuda."""
    batch_size: int = 512
    """Instances of one forward pass."""
    overwrite: bool = False
    """Replace codes that the folder already holds, or unfinished ones of other settings."""

    def run(self) -> None:
        from latentcode.codes.of_tasks import code_reader
        from latentcode.files.storage import check_free

        run = open_run(self.path)
        task = run.config.task
        if self.inputs is not None:
            if task.name != "logic":
                raise LatentCodeError(
                    f"--inputs is {self.inputs!r}, but task {task.name!r} has no such choice")
            task = replace(task, inputs=self.inputs)
        pairs = _pairs(run, self.pairs)
        check_free(self.out, overwrite=self.overwrite, marker="meta.json")
        reader = code_reader(run, self.split, n=self.n, pairs=pairs,
                             layers=self.layers or None, residuals=self.residuals,
                             untrained=self.untrained, task=task, seed=self.seed,
                             device=self.device, batch_size=self.batch_size)
        reader.to_folder(self.out, overwrite=self.overwrite, progress=_progress("extracting"))
        print(f"{self.n:,} instances of {self.split}, {len(reader.layers)} layers, "
              f"{len(reader.pairs)} pairs")
        print(f"wrote codes {self.out}")


@dataclass(frozen=True)
class Decode:
    """Decode labels from the codes of a run, beside three controls.

    Probes are trained on codes of training combinations and scored on held-out ones. Beside the
    codes stand an untrained model's, shuffled labels and the residual stream at the query.
    """

    path: tyro.conf.Positional[RunName]
    out: Path
    """Folder of the result: tables, figure, settings."""
    labels: tuple[str, ...] = ()
    """What to decode; default: every constituent, such as term_1, term_2 and terms, or rule."""
    pairs: tuple[str, ...] = ()
    """Names of pairs, or `all`; default: the paper's."""
    layers: tuple[int, ...] = ()
    """Layers; default: all."""
    n_train: int = 4_096
    """Instances of training combinations that the probes are fitted on."""
    n_heldout: int = 4_096
    """Instances of held-out combinations that they are scored on."""
    seed: int = 0
    """Seed of instances, shuffling and bootstrap."""
    device: str = "cpu"
    """cpu or cuda, for the extraction."""
    overwrite: bool = False
    """Replace a result that the folder already holds."""

    def run(self) -> None:
        from latentcode.files.storage import check_free
        from latentcode.probes.decoding.of_run import decode

        run = open_run(self.path)
        pairs = _pairs(run, self.pairs)
        check_free(self.out, overwrite=self.overwrite, marker="decoding.json")
        result = decode(run, labels=self.labels or None, pairs=pairs,
                       layers=self.layers or None, n_train=self.n_train,
                       n_heldout=self.n_heldout, seed=self.seed, device=self.device,
                       progress=_progress("probing"))
        result.save(self.out, overwrite=self.overwrite)
        print(result)
        print(f"wrote result {self.out}")


@dataclass(frozen=True)
class Show:
    """Show a run, its codes, what probes or interventions found, or one instance of its task."""

    path: tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="FOLDER")]]
    """A run folder, a model of the zoo such as sraven-hyla, codes, or a folder of results."""
    split: Split | None = None
    """Show an instance of this split of a run's task."""
    index: int = 0
    """Which instance."""

    def run(self) -> None:
        from latentcode.codes import LatentCodes
        from latentcode.experiments.studies import result_kinds
        from latentcode.probes.saved import load_result
        from latentcode.runs.named import folder_of

        folder = folder_of(self.path)
        is_codes = (folder / "codes.safetensors").exists()
        result = load_result(folder, result_kinds)
        if self.split is not None and (is_codes or result is not None):
            raise LatentCodeError(f"--split is {self.split!r}, but {self.path} is not a run, which "
                                  "has instances to show")
        if result is not None:
            print(result)
            return
        if is_codes:
            codes: LatentCodes = LatentCodes.load(folder)
            print(codes)
            print(codes.labels.describe(include="all").T.to_string())
            return
        run = open_run(self.path)
        if self.split is None:
            print(run)
            print_metrics(run)
            return
        from latentcode.seeds import make_generator
        from latentcode.tasks import make_task

        if self.index < 0:
            raise LatentCodeError(f"--index is {self.index}; expected a number of at least 0")
        task = make_task(run.config.task)
        batch = task.sample(self.split, self.index + 1, make_generator(0, f"show {self.split}"))
        print(task.render(batch, self.index))


def _pairs(run: Run, names: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return the pairs that `--pairs` names: those given, all of the task's, or the default."""
    from latentcode.tasks import make_task

    return tuple(make_task(run.config.task).pairs) if names == ("all",) else names or None


def _progress(what: str) -> Callable[..., None]:
    """Return a callback (done, total, ...) that draws a bar with the remaining time."""
    from latentcode.progress import bar

    return bar(what)


__all__ = ["Decode", "Extract", "Show"]
