"""The command line: `latentcode train | extract | probe | show | parity | import-flax | ...`.

Commands are dataclasses, and tyro makes their flags from the fields, those of the configuration
included. Rooms are opened when a command runs, so that `latentcode --help` imports no torch.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Generic, Literal, TypeVar, Union

import tyro

from latentcode.config import TASKS, RunConfig, TaskConfig, TrainingConfig, load_config
from latentcode.errors import LatentCodeError
from latentcode.models.config import ModelConfig
from latentcode.presets import model_for, preset

if TYPE_CHECKING:
    from latentcode.codes import LatentCodes
    from latentcode.runs import Run

TaskT = TypeVar("TaskT")
Split = Literal["train", "test", "ood", "unknown"]


@dataclass(frozen=True)
class Train(Generic[TaskT]):
    """Train one hooked transformer; the result is a run folder.

    Example: latentcode train logic --kind softmax --out runs/softmax --training.steps 500
    """

    problem: tyro.conf.Positional[Literal["logic", "sraven"]]
    """The task."""
    out: Path
    """Folder of the run."""
    task: TaskT
    model: ModelConfig
    training: TrainingConfig
    preset: Literal["paper", "small", "smoke"] | None = None
    """Where all values come from that are not given; default: small."""
    kind: str | None = None
    """Attention kind, a row of the paper's Table A1: softmax, linear, hyla, ...; default: hyla."""
    config: Path | None = None
    """YAML file with a whole configuration, in place of preset and kind."""
    resume: bool = False
    """Go on from the newest checkpoint of an interrupted run."""
    overwrite: bool = False
    """Replace a run that the folder already holds."""
    log: tuple[Literal["tensorboard", "wandb"], ...] = ()
    """Where metrics go besides metrics.jsonl."""

    def run(self) -> None:
        from latentcode.training import train

        task: Any = self.task
        if task.name != self.problem:
            raise LatentCodeError(f"the flags were read for task {task.name!r}; expected the task "
                                  f"as the first word: latentcode train {self.problem} ...")
        start = _starting_point(self.problem, self.preset, self.kind, self.config)
        # Widths and the T5 bias follow the task, unless they were given values of their own.
        old, new = model_for(start.task), model_for(task)
        fitted = {name: getattr(new, name)
                  for name in ("d_input", "d_output", "n_buckets", "max_distance")
                  if getattr(self.model, name) == getattr(start.model, name)
                  and getattr(old, name) != getattr(new, name)}
        config = RunConfig(task, replace(self.model, **fitted), self.training)
        run = train(config, self.out, resume=self.resume, overwrite=self.overwrite,
                    loggers=self.log)
        print(run)
        print(run.latest().to_string(na_rep=""))
        print(f"wrote run {run.path}")


@dataclass(frozen=True)
class Extract:
    """Run a trained model over a split and save the latent codes of named pairs."""

    path: tyro.conf.Positional[Path]
    """A run folder."""
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
    overwrite: bool = False
    """Replace codes that the folder already holds."""

    def run(self) -> None:
        from latentcode.extraction import extract
        from latentcode.runs import Run
        from latentcode.storage import check_free

        run = Run.open(self.path)
        task = run.config.task
        if self.inputs is not None:
            if task.name != "logic":
                raise LatentCodeError(
                    f"--inputs is {self.inputs!r}, but task {task.name!r} has no such choice")
            task = replace(task, inputs=self.inputs)
        pairs = _pairs(run, self.pairs)
        check_free(self.out, overwrite=self.overwrite, marker="meta.json")
        codes = extract(run, self.split, n=self.n, pairs=pairs,
                        layers=self.layers or None, residuals=self.residuals,
                        untrained=self.untrained, task=task, seed=self.seed, device=self.device,
                        progress=_progress("extracting"))
        codes.save(self.out, overwrite=self.overwrite)
        print(codes)
        print(f"wrote codes {self.out}")


@dataclass(frozen=True)
class Probe:
    """Decode labels from the codes of a run, beside three controls.

    Probes are trained on codes of training combinations and scored on held-out ones. Beside the
    codes stand an untrained model's, shuffled labels and the residual stream at the query.
    """

    path: tyro.conf.Positional[Path]
    """A run folder."""
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
        from latentcode.probes import probe
        from latentcode.runs import Run
        from latentcode.storage import check_free

        run = Run.open(self.path)
        pairs = _pairs(run, self.pairs)
        check_free(self.out, overwrite=self.overwrite, marker="decoding.json")
        result = probe(run, labels=self.labels or None, pairs=pairs,
                       layers=self.layers or None, n_train=self.n_train,
                       n_heldout=self.n_heldout, seed=self.seed, device=self.device,
                       progress=_progress("probing"))
        result.save(self.out, overwrite=self.overwrite)
        print(result)
        print(f"wrote result {self.out}")


@dataclass(frozen=True)
class Show:
    """Show a run, its codes, what was decoded from them, or one instance of its task."""

    path: tyro.conf.Positional[Path]
    """A run folder, a codes folder or a folder that `probe` wrote."""
    split: Split | None = None
    """Show an instance of this split of a run's task."""
    index: int = 0
    """Which instance."""

    def run(self) -> None:
        from latentcode.codes import LatentCodes
        from latentcode.probes import DecodingResult
        from latentcode.runs import Run

        is_codes = (self.path / "codes.safetensors").exists()
        is_result = (self.path / "decoding.json").exists()
        if self.split is not None and (is_codes or is_result):
            raise LatentCodeError(f"--split is {self.split!r}, but {self.path} is not a run, which "
                                  "has instances to show")
        if is_result:
            print(DecodingResult.load(self.path))
            return
        if is_codes:
            codes: LatentCodes = LatentCodes.load(self.path)
            print(codes)
            print(codes.labels.describe(include="all").T.to_string())
            return
        run = Run.open(self.path)
        if self.split is None:
            print(run)
            if not run.metrics().empty:
                print(run.latest().to_string(na_rep=""))
            return
        from latentcode.seeds import make_generator
        from latentcode.tasks import make_task

        if self.index < 0:
            raise LatentCodeError(f"--index is {self.index}; expected a number of at least 0")
        task = make_task(run.config.task)
        batch = task.sample(self.split, self.index + 1, make_generator(0, f"show {self.split}"))
        print(task.render(batch, self.index))


@dataclass(frozen=True)
class Parity:
    """Do our models give the official numbers? Compare files of the official code's outputs.

    Exit status 1 when a number differs by more than its tolerance or a file is damaged.
    """

    files: tyro.conf.Positional[tuple[Path, ...]]
    """Files in .npz format: weights, inputs and outputs, or optimiser steps."""

    def run(self) -> None:
        if not self.files:
            raise LatentCodeError("no file is given; expected at least one .npz")
        from latentcode.parity import compare_all, table

        reports = compare_all(self.files)
        print(table(reports))
        for unread in dict.fromkeys(report.unread for report in reports if report.unread):
            files = [report.file for report in reports if report.unread == unread]
            print(f"not looked at: {', '.join(unread)} (in {files[0]}"
                  + (f" and {len(files) - 1} more)" if len(files) > 1 else ")"))
        problems = [problem for report in reports for problem in report.problems]
        agreeing = sum(report.agrees for report in reports)
        print(f"{agreeing} of {len(reports)} files agree within tolerance")
        for problem in problems:
            print(f"error: {problem}", file=sys.stderr)
        if problems:
            raise SystemExit(1)


@dataclass(frozen=True)
class ImportFlax:
    """Make a run folder of weights of the official code.

    The .npz holds config_json and the parameters under their Flax paths. The official state.pkl
    is a pickle and is not read; the error for it says how to convert it.
    """

    file: tyro.conf.Positional[Path]
    """Official weights, in .npz format."""
    out: Path
    """Folder of the run."""
    problem: Literal["logic", "sraven"] | None = None
    """The task that the model was trained on; default: what its dimensions tell."""
    n_terms: int | None = None
    """Fuzzy logic: number of terms; default: 2."""
    unpermuted: bool = False
    """SRAVEN: the features were not permuted."""
    ood_fraction: float | None = None
    """Share of the combinations held out, drawn anew; default: the paper's."""
    held_out: Path | None = None
    """JSON list of the combinations (lists of indices) that the model was trained without."""
    step: int | None = None
    """Number of updates done; default: what the file says, or 0."""
    overwrite: bool = False
    """Replace a run that the folder already holds."""

    def run(self) -> None:
        from latentcode.official import import_flax

        run = import_flax(self.file, self.out, task=self._task, step=self.step,
                          overwrite=self.overwrite)
        print(run)
        known = run.imported or {}
        if not known["training_known"]:
            print("training settings are not in the file: config.yaml holds the paper's")
        if run.config.task.name in TASKS and not known["held_out_known"]:
            print("held-out combinations are not in the file: `ood` is a fresh draw, in which the "
                  "model may have been trained; give its own with --held-out")
        print(f"wrote run {run.path}")

    def _task(self, model: ModelConfig) -> TaskConfig:
        """Return the task that the model's dimensions tell, with the values that are given."""
        from latentcode.official import infer_task, read_held_out

        task: Any = infer_task(model, self.problem)
        given: dict[str, Any] = {
            "n_terms": self.n_terms, "permuted": False if self.unpermuted else None,
            "ood_fraction": self.ood_fraction,
            "held_out": None if self.held_out is None else read_held_out(self.held_out)}
        given = {name: value for name, value in given.items() if value is not None}
        for name in given:
            if not hasattr(task, name):
                raise LatentCodeError(f"{name} is given, but task {task.name!r} has no such field")
        return replace(task, **given)


@dataclass(frozen=True)
class ExportFlax:
    """Write the weights of a run in the layout of the official code."""

    path: tyro.conf.Positional[Path]
    """A run folder."""
    out: Path
    """The file, in .npz format."""
    step: int | None = None
    """The checkpoint; default: the newest."""
    overwrite: bool = False
    """Replace a file of that name."""

    def run(self) -> None:
        from latentcode.official import export_flax

        out = export_flax(self.path, self.out, step=self.step, overwrite=self.overwrite)
        print(f"wrote weights {out}")


@dataclass(frozen=True)
class Demo:
    """Train HYLA and softmax on fuzzy logic, decode their codes, and write report.html.

    Takes a few minutes on two CPU cores. Interrupted, it goes on where it was.
    """

    out: Path = Path("runs/demo")
    """Folder of the runs and the report."""
    preset: Literal["small", "smoke"] = "small"
    """Size of the fuzzy-logic models."""
    device: str = "cpu"
    """cpu or cuda."""

    def run(self) -> None:
        from latentcode.experiments.demo import demo

        print(demo(self.out, preset_name=self.preset, device=self.device))


def _pairs(run: Run, names: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return the pairs that `--pairs` names: those given, all of the task's, or the default."""
    from latentcode.tasks import make_task

    return tuple(make_task(run.config.task).pairs) if names == ("all",) else names or None


def _starting_point(
    problem: str, name: str | None, kind: str | None, path: Path | None
) -> RunConfig:
    """Return the configuration whose values the flags of `train` change."""
    if path is None:
        return preset(name or "small", problem, kind or "hyla")
    if name or kind:
        raise LatentCodeError(f"--config {path} is given together with --preset or --kind; "
                              "expected one or the other")
    config = load_config(path)
    if config.task.name != problem:
        raise LatentCodeError(f"{path} configures task {config.task.name!r}; expected {problem!r}")
    return config


def _train_command(arguments: Sequence[str]) -> Any:
    """Return the `train` command with the defaults that its preset, kind or file gives.

    The words that choose the defaults are looked up first; then tyro reads all of them.
    """
    problem = next((a for a in arguments if a in TASKS), "logic")
    name, kind, path = (_value(arguments, flag) for flag in ("--preset", "--kind", "--config"))
    chosen = (problem, name, kind, Path(path) if path else None)
    is_train = list(arguments[:1]) == ["train"]
    config = _starting_point(*chosen) if is_train else preset()
    default = Train(tyro.MISSING, tyro.MISSING, config.task, config.model, config.training)
    return Annotated[
        Train[type(config.task)],  # type: ignore[misc]
        tyro.conf.subcommand("train", default=default)]


def _value(arguments: Sequence[str], flag: str) -> str | None:
    """Return what follows `flag`, as `--flag value` or `--flag=value`, or None."""
    for argument, following in zip(arguments, [*arguments[1:], None], strict=True):
        if argument == flag:
            return following
        if argument.startswith(f"{flag}="):
            return argument.partition("=")[2]
    return None


def _progress(what: str) -> Callable[..., None]:
    """Return a callback (done, total, ...) that draws a bar with the remaining time."""
    from latentcode.progress import bar

    return bar(what)


COMMANDS: dict[str, type] = {
    "extract": Extract, "probe": Probe, "show": Show, "parity": Parity, "import-flax": ImportFlax,
    "export-flax": ExportFlax, "demo": Demo}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; an error that a user can act on is one line and exit status 2."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    try:
        others = [Annotated[command, tyro.conf.subcommand(name)]
                  for name, command in COMMANDS.items()]
        # The type is made at run time, because the defaults of `train` are.
        command_type: Any = Union[(_train_command(arguments), *others)]
        command = tyro.cli(
            command_type, args=arguments, prog="latentcode",
            description="Latent codes of attention: train, extract, probe, show.",
            config=(tyro.conf.FlagCreatePairsOff, tyro.conf.OmitSubcommandPrefixes))
        command.run()
    except LatentCodeError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None


if __name__ == "__main__":
    main()
