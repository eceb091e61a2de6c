"""The long trainings: resume all, pause all, see how far they are, keep what is finished.

    python -m latentcode.experiments.paper.long_runs resume --at FOLDER
    python -m latentcode.experiments.paper.long_runs pause --at FOLDER
    python -m latentcode.experiments.paper.long_runs status --at FOLDER
    python -m latentcode.experiments.paper.long_runs publish --at FOLDER

`resume` goes on in the background, at the lowest priority, one thread a model and as many models
as cores, in the order of `QUEUE`, until everything is trained. Stopped in whatever way, it goes on
from the newest checkpoints. Run it from an installed wheel and in a folder outside the checkout:
then work in the checkout neither disturbs nor changes the trainings.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import pandas as pd
import tyro

from latentcode.config import RunConfig
from latentcode.devices import available_cores
from latentcode.errors import RunError, check
from latentcode.experiments.sweep.executors import train_job
from latentcode.experiments.sweep.grid import load_grid
from latentcode.experiments.sweep.run import claim
from latentcode.files.locks import exclusive, holder
from latentcode.files.storage import parse_json, write_text
from latentcode.runs import Run
from latentcode.runs.metric_file import recorded_step
from latentcode.runs.run import CONFIG, TIMING
from latentcode.runs.run import LOCK as RUN_LOCK
from latentcode.training.signals import stop_on_signals
from latentcode.training.workers import Workers

LOCK, LOG, README = "long_runs.lock", "long_runs.log", "README.md"
LOWEST_PRIORITY = 19
POLL_SECONDS = 5.0
START_SECONDS = 120.0
"""How long `resume` watches the process that it begins."""
PAUSE_SECONDS = 1800.0
"""How long `pause` waits: an evaluation at the lowest priority takes its time on a busy machine."""


class Stage(NamedTuple):
    """A grid, and what of it has its turn: its members with seeds `first` to `last`."""

    grid: str
    first: int = 0
    last: int | None = None


QUEUE: tuple[Stage, ...] = (
    Stage("sraven_known"), Stage("paper_logic", 0, 2), Stage("paper_sraven", 0, 1),
    Stage("paper_logic_heldout", 0, 1), Stage("paper_logic_ablations", 0, 1),
    Stage("paper_logic", 2), Stage("paper_sraven", 1), Stage("paper_logic_heldout", 1),
    Stage("paper_logic_ablations", 1), Stage("paper_sraven_ablations"))
"""What is trained, in the order of need. Seeds are counted along the first axis of each grid."""

ALONG: Mapping[str, tuple[int, ...]] = {
    "sraven_known": (3_000, 4_500, 9_000), "paper_sraven": (39_062, 78_125, 156_250)}
"""Steps that are published of the first seed; of all others, and of other grids, the last alone."""


def members(stage: Stage, at: Path) -> dict[Path, RunConfig]:
    """Return run folder -> configuration of a stage, in order."""
    grid = load_grid(stage.grid)
    configs = {at / stage.grid / name: config for name, config in grid.members().items()}
    of_seed = len(configs) // len(next(iter(grid.axes.values())))
    last = None if stage.last is None else stage.last * of_seed
    return dict(list(configs.items())[stage.first * of_seed:last])


def queue(at: Path, stages: Sequence[Stage] = QUEUE) -> dict[Path, RunConfig]:
    """Return run folder -> configuration of all stages, in order."""
    return {path: config for stage in stages for path, config in members(stage, at).items()}


def is_complete(path: Path, config: RunConfig) -> bool:
    """Whether a run is trained to its end; the folder alone is looked at."""
    return (path / CONFIG).exists() and Run(path, config, {}).is_complete


def work(at: Path, stages: Sequence[Stage] = QUEUE, processes: int | None = None) -> None:
    """Train what is missing, `processes` at a time (default: one per core), until the end.

    SIGTERM and Ctrl-C stop it with a checkpoint of every model. A run that fails is left out and
    named in the log, and does not keep the others from going on.
    """
    at.mkdir(parents=True, exist_ok=True)
    _give_way()
    with exclusive(at / LOCK), stop_on_signals() as request:
        for stage in stages:
            claim(at / stage.grid, load_grid(stage.grid))
        todo = {path: config for path, config in queue(at, stages).items()
                if not is_complete(path, config)}
        _say(f"{len(todo)} runs to go")
        with Workers(train_job, [{}] * (processes or available_cores()),
                     lambda: request.interrupted) as workers:
            for path, config in todo.items():
                workers.submit({path: config})
            while workers.n_pending:
                for outcome in workers.wait(POLL_SECONDS):
                    path = next(iter(outcome.job))
                    _say(f"{path.relative_to(at)}: "
                         + (f"failed: {outcome.error}" if outcome.error else
                            f"at step {recorded_step(path):,}"))
                    if outcome.error and holder(path / RUN_LOCK) is not None:
                        # A worker that outlived its owner; it stops after an update or evaluation.
                        time.sleep(POLL_SECONDS)
                        workers.submit(outcome.job)
                if request.interrupted:
                    workers.stop()
        _say("paused" if request.interrupted else "nothing left to train")


def _give_way() -> None:
    """Take the lowest priority, against other sessions too where Linux shares out among those."""
    os.nice(LOWEST_PRIORITY)
    autogroup = Path("/proc/self/autogroup")
    if autogroup.exists() and os.getsid(0) == os.getpid():  # a session that is all ours
        with suppress(OSError):
            autogroup.write_text(str(LOWEST_PRIORITY), encoding="ascii")


def _say(message: str) -> None:
    print(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {message}", flush=True)


def owner(at: Path) -> int | None:
    """Return the process that trains in a folder, or None."""
    return holder(at / LOCK)


def table(at: Path, stages: Sequence[Stage] = QUEUE) -> pd.DataFrame:
    """Return one row per stage: runs complete, steps done of all, hours that the rest will take.

    Hours are those of one core each, from what the runs of the same grid have taken per step.
    """
    rows = []
    for stage in stages:
        runs = members(stage, at)
        steps = sum(config.training.steps for config in runs.values())
        done = sum(config.training.steps if is_complete(path, config) else recorded_step(path)
                   for path, config in runs.items())
        speeds = [speed for path in queue(at, stages) if path.parent.name == stage.grid
                  for speed in _seconds_per_step(path)]
        left = (steps - done) * sum(speeds) / len(speeds) / 3600 if speeds else float("nan")
        seeds = list(dict.fromkeys(_seeds(path.name) for path in runs))
        rows.append({
            "grid": stage.grid, "seeds": "; ".join(seeds),
            "complete": sum(is_complete(*run) for run in runs.items()),
            "runs": len(runs), "steps": done, "of": steps, "core-hours left": round(left, 1)})
    return pd.DataFrame(rows)


def _seeds(member: str) -> str:
    """Return what a member's name says of its seeds, such as `split 1, seed 0`."""
    found = dict(part.split("=") for part in member.split(",") if "seed" in part)
    return ", ".join(f"{name.removesuffix('_seed')} {value}" for name, value in found.items())


def _seconds_per_step(path: Path) -> Iterator[float]:
    """Yield the pace of the newest attempt at a run that got anywhere."""
    records = timing(path)
    starts = [index for index, record in enumerate(records) if record["event"] == "start"]
    for start in reversed(starts):
        steps = records[-1]["step"] - records[start]["step"]
        if steps > 0:
            yield (records[-1]["seconds"] - records[start]["seconds"]) / steps
            return
        records = records[:start]


def timing(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a run's `timing.jsonl`, without one that was torn."""
    try:
        lines = (path / TIMING).read_text(encoding="utf-8").split("\n")[:-1]
    except OSError:
        return []
    return [parse_json(line) for line in lines]


def publish(at: Path, out: Path, stages: Sequence[Stage] = QUEUE) -> list[Path]:
    """Copy every finished run that `out` lacks, without the state of training; list all there.

    Returns the folders that are new.
    """
    new = []
    for stage in stages:
        first_seed = members(Stage(stage.grid, 0, 1), at)
        for path, config in members(stage, at).items():
            target = out / stage.grid / path.name
            if is_complete(path, config) and not target.exists():
                kept = ALONG.get(stage.grid) if path in first_seed else None
                target.parent.mkdir(parents=True, exist_ok=True)
                Run.open(path).publish(target, step=kept)
                new.append(target)
    if out.is_dir():
        write_text(out / README, page(out, stages))
    return new


def page(out: Path, stages: Sequence[Stage] = QUEUE) -> str:
    """Return a Markdown page with a row per published run: how good it is at its end, on every
    split, and the constituent that it knows worst."""
    parts = ["# Trained runs\n\nWeights, configuration, metrics over the updates and provenance of "
             "the long trainings (`python -m latentcode.experiments.paper.long_runs`), with "
             "standard errors over instances. `latentcode show experiments/results/runs/GRID/RUN` "
             "tells more of one, `lc.load_run` opens it.\n"]
    for name in dict.fromkeys(stage.grid for stage in stages):
        runs = [Run.open(path) for path in members(Stage(name), out) if path.exists()]
        if not runs:
            continue
        total = len(members(Stage(name), out))
        parts.append(f"\n## {name}\n\n{len(runs)} of {total} runs.\n\n{_rows(runs)}\n")
    return "".join(parts)


def _rows(runs: Sequence[Run]) -> str:
    from latentcode.tasks import make_task

    headline = make_task(runs[0].config.task).headline
    lines = []
    for run in runs:
        metrics = run.metrics()
        last = metrics[metrics["step"] == metrics["step"].max()]
        scores = {row.split: f"{row.mean:.3f} ± {row.se:.3f}"
                  for row in last[last["metric"] == headline].itertuples()}
        known = last[last["metric"].str.startswith(("feature_accuracy[", "r2["))
                     & (last["split"] == "ood")].sort_values("mean")
        weakest = [f"`{row.metric}` {row.mean:.3f}" for row in known.head(1).itertuples()]
        lines.append({"run": run.name, "checkpoints": ", ".join(map(str, run.checkpoints())),
                      **{f"{headline}, {split}": text for split, text in scores.items()},
                      "known worst, ood": "".join(weakest)})
    columns = dict.fromkeys(column for line in lines for column in line)
    rows = [list(columns), ["---"] * len(columns),
            *([line.get(column, "") for column in columns] for line in lines)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


At = Annotated[Path, tyro.conf.arg(help="Folder of the trainings, outside the checkout.")]


def _known(at: Path) -> Path:
    """Return a folder of trainings; `RunError` for what is none."""
    check((at / LOCK).is_file(), f"{at} holds no long trainings (no {LOCK}); expected a folder "
          "that `resume` was called on", RunError)
    return at.absolute()


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    try:  # a process that has ended, and whose parent has not asked yet
        return ") Z " not in Path(f"/proc/{process}/stat").read_text(encoding="ascii")
    except OSError:
        return True


@dataclass(frozen=True)
class Resume:
    """Go on with all trainings, in the background and at the lowest priority."""

    at: At

    def run(self) -> None:
        at = self.at.absolute()
        check(at.is_dir() or not at.exists(), f"{at} is a file; expected a folder", RunError)
        at.mkdir(parents=True, exist_ok=True)
        busy = owner(at)
        check(busy is None, f"process {busy} trains in {at} already; expected none", RunError)
        with (at / LOG).open("a", encoding="utf-8") as log:
            # A session of its own: it outlives the terminal, and Ctrl-C there is not for it.
            process = subprocess.Popen(
                [sys.executable, "-m", __spec__.name, "work", "--at", str(at)], cwd=at,
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        deadline = time.monotonic() + START_SECONDS
        while owner(at) != process.pid and time.monotonic() < deadline:
            check(process.poll() is None, f"the training ended at once; {at / LOG} says why",
                  RunError)
            time.sleep(0.2)
        print(f"process {process.pid} trains in {at}; its log is {at / LOG}")


@dataclass(frozen=True)
class Pause:
    """Stop all trainings, each with a checkpoint, and wait until they have stopped."""

    at: At

    def run(self) -> None:
        at = self.at.absolute()
        process = owner(at) if (at / LOCK).is_file() else None
        check(process is not None, f"nothing trains in {at}", RunError)
        assert process is not None
        os.kill(process, signal.SIGTERM)
        deadline = time.monotonic() + PAUSE_SECONDS
        while _lives(process):  # which it does for a while after it has let go of the folder
            check(time.monotonic() < deadline, f"process {process} has not stopped within "
                  f"{PAUSE_SECONDS:.0f} s of being asked to", RunError)
            time.sleep(0.2)
        print(f"paused; go on with: python -m {__spec__.name} resume --at {at}")


@dataclass(frozen=True)
class Status:
    """Say which runs are complete, how far the others are, and what the rest will take."""

    at: At

    def run(self) -> None:
        at = _known(self.at)
        process = owner(at)
        print(table(at).to_string(index=False, na_rep="?"))
        print("paused" if process is None else f"process {process} is training")


@dataclass(frozen=True)
class Publish:
    """Copy finished runs, without what only training needs, and list them on a page."""

    at: At
    out: Path = Path("experiments/results/runs")
    """Folder of the copies; those that are there stay as they are."""

    def run(self) -> None:
        new = publish(_known(self.at), self.out)
        for path in new:
            print(f"wrote run {path}")
        print(f"{len(new)} finished run{'s are' if len(new) != 1 else ' is'} new in {self.out}")


@dataclass(frozen=True)
class Work:
    """Train here and now, rather than in the background; what `resume` starts."""

    at: At
    processes: int | None = None
    """Models at once; default: one per core."""

    def run(self) -> None:
        work(self.at.absolute(), processes=self.processes)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command."""
    from latentcode.errors import LatentCodeError

    command = tyro.cli(
        Resume | Pause | Status | Publish | Work,
        args=arguments, prog="python -m latentcode.experiments.paper.long_runs")
    try:
        command.run()
    except LatentCodeError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(2) from None


if __name__ == "__main__":
    main()
