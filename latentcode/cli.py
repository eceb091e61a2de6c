"""The command line: `latentcode train | extract | probe | show | demo`.

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

from latentcode.config import TASKS, RunConfig, TrainingConfig, load_config
from latentcode.errors import LatentCodeError
from latentcode.models.config import ModelConfig
from latentcode.presets import model_for, preset

if TYPE_CHECKING:
    from latentcode.codes import LatentCodes

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
    preset: Literal["paper", "small", "smoke"] = "small"
    """Where all values come from that are not given."""
    kind: str = "hyla"
    """Attention kind, a row of the paper's Table A1: softmax, linear, hyla, ..."""
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
        start = _starting_point(self.problem, self.preset, self.kind, self.config)
        # Widths follow the task; the T5 bias too, unless it was given a size of its own.
        fitted = {"d_input": task.d_input, "d_output": task.d_output}
        own = (self.model.n_buckets, self.model.max_distance) != (
            start.model.n_buckets, start.model.max_distance)
        if not own and task.n_tokens != start.task.n_tokens:
            like = model_for(task)
            fitted |= {"n_buckets": like.n_buckets, "max_distance": like.max_distance}
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
        from latentcode.tasks import make_task

        run = Run.open(self.path)
        task = run.config.task
        if self.inputs is not None:
            if task.name != "logic":
                raise LatentCodeError(
                    f"--inputs is {self.inputs!r}, but task {task.name!r} has no such choice")
            task = replace(task, inputs=self.inputs)
        pairs = tuple(make_task(task).pairs) if self.pairs == ("all",) else self.pairs
        codes = extract(run, self.split, n=self.n, pairs=pairs or None,
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
    """Folder of the result: tables, figure, report."""
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

        result = probe(Run.open(self.path), labels=self.labels or None, pairs=self.pairs or None,
                       layers=self.layers or None, n_train=self.n_train,
                       n_heldout=self.n_heldout, seed=self.seed, device=self.device,
                       progress=_progress("probing"))
        result.save(self.out, overwrite=self.overwrite)
        print(result)
        print(f"wrote result {self.out}")


@dataclass(frozen=True)
class Show:
    """Show a run, a codes folder, or one instance of a run's task."""

    path: tyro.conf.Positional[Path]
    """A run folder or a codes folder."""
    split: Split | None = None
    """Show an instance of this split of a run's task."""
    index: int = 0
    """Which instance."""

    def run(self) -> None:
        from latentcode.codes import LatentCodes
        from latentcode.runs import Run

        if (self.path / "codes.safetensors").exists():
            codes: LatentCodes = LatentCodes.load(self.path)
            print(codes)
            print(codes.labels.describe(include="all").T.to_string())
            return
        run = Run.open(self.path)
        if self.split is None:
            print(run)
            print(run.latest().to_string(na_rep=""))
            return
        from latentcode.seeds import make_generator
        from latentcode.tasks import make_task

        task = make_task(run.config.task)
        batch = task.sample(self.split, self.index + 1, make_generator(0, f"show {self.split}"))
        print(task.render(batch, self.index))


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


def _starting_point(problem: str, name: str, kind: str, path: Path | None) -> RunConfig:
    """Return the configuration whose values the flags of `train` change."""
    if path is None:
        return preset(name, problem, kind)
    config = load_config(path)
    if config.task.name != problem:
        raise LatentCodeError(f"{path} configures task {config.task.name!r}; expected {problem!r}")
    return config


def _train_command(arguments: Sequence[str]) -> Any:
    """Return the `train` command with the defaults that its preset, kind or file gives.

    The words that choose the defaults are looked up first; then tyro reads all of them.
    """
    problem = next((a for a in arguments if a in TASKS), "logic")
    name, kind = _value(arguments, "--preset", "small"), _value(arguments, "--kind", "hyla")
    path = _value(arguments, "--config", "")
    chosen = (problem, name, kind, Path(path) if path else None)
    is_train = list(arguments[:1]) == ["train"]
    config = _starting_point(*chosen) if is_train else preset()
    default = Train(tyro.MISSING, tyro.MISSING, config.task, config.model, config.training)
    return Annotated[
        Train[type(config.task)],  # type: ignore[misc]
        tyro.conf.subcommand("train", default=default)]


def _value(arguments: Sequence[str], flag: str, default: str) -> str:
    """Return what follows `flag`, as `--flag value` or `--flag=value`."""
    for argument, following in zip(arguments, [*arguments[1:], default], strict=True):
        if argument == flag:
            return following
        if argument.startswith(f"{flag}="):
            return argument.partition("=")[2]
    return default


def _progress(what: str) -> Callable[..., None]:
    """Return a callback (done, total, ...) that draws a bar with the remaining time."""
    from latentcode.progress import bar

    return bar(what)


COMMANDS: tuple[type, ...] = (Extract, Probe, Show, Demo)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; an error that a user can act on is one line and exit status 2."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    try:
        others = [Annotated[c, tyro.conf.subcommand(c.__name__.lower())] for c in COMMANDS]
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
