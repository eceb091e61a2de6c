"""The long trainings: resume all, pause all, see how far they are, keep what is finished.

    python -m latentcode.experiments.paper.long_runs resume --at FOLDER
    python -m latentcode.experiments.paper.long_runs pause --at FOLDER
    python -m latentcode.experiments.paper.long_runs status --at FOLDER
    python -m latentcode.experiments.paper.long_runs publish --at FOLDER
    python -m latentcode.experiments.paper.long_runs keep --at FOLDER
    python -m latentcode.experiments.paper.long_runs accept RUN

`resume` trains in the background, at the lowest priority, one thread per model and as many models
as cores, in the order of `QUEUE`, until everything is trained. However it is stopped, the next
`resume` continues from the newest checkpoints. Run it from an installed wheel and in a folder
outside the checkout, so that work in the checkout neither disturbs nor changes the trainings.

Where the folder of the trainings was lost, `--published FOLDER` of `resume` and `status` names the
runs that were published before: those of the same configuration are not trained again. `keep`
copies the newest checkpoints of what is unfinished; `resume --unfinished FOLDER` goes on from them.

`--device cuda` of `resume` and `work` trains on a GPU, in tf32. One model leaves much of it idle:
`--processes` says how many share it, and NVIDIA's MPS (`nvidia-cuda-mps-control -d`, where it is
allowed) lets their kernels run at the same time. A run that was begun on one device, here or in
`--unfinished`, goes on there alone; with `--move`, what `--unfinished` holds goes on here, with the
instances that this device draws. `accept` publishes a run that somebody else has trained, once its
weights give the metrics that it records.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import chdir, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from latentcode.devices import available_cores, resolve_device
from latentcode.errors import RunError, check
from latentcode.experiments.paper.queue import (
    QUEUE,
    Stage,
    is_complete,
    is_published,
    keep,
    left_elsewhere,
    publish,
    queue,
    table,
    take_up,
    write_page,
)
from latentcode.files.locks import exclusive, holder
from latentcode.metrics import is_by_constituent
from latentcode.runs.folder import LOCK as RUN_LOCK
from latentcode.runs.metric_file import recorded_step
from latentcode.sweep.executors import train_job
from latentcode.sweep.grid import load_grid
from latentcode.sweep.run import SWEEP, claim
from latentcode.sweep.texts import make_texts
from latentcode.training.signals import stop_on_signals
from latentcode.training.workers import Workers

LOCK, LOG = "long_runs.lock", "long_runs.log"
LOWEST_PRIORITY = 19
ON_ONE_GPU = 4
"""Models that share a GPU."""
POLL_SECONDS = 5.0
START_SECONDS = 120.0
"""How long `resume` watches the process that it begins."""
PAUSE_SECONDS = 1800.0
"""How long `pause` waits: an evaluation at the lowest priority takes its time on a busy machine."""


def work(
    at: Path, stages: Sequence[Stage] = QUEUE, processes: int | None = None,
    published: Path | None = None, unfinished: Path | None = None, device: str | None = None,
    nice: int | None = None, move: bool = False,
) -> None:
    """Train what is missing, `processes` at a time, until the end.

    published   folder of finished runs that are not trained again; see `is_published`
    unfinished  folder of runs to go on with, where `at` has not begun them; see `take_up`
    device      `cpu` or `cuda`; default: as the grids say, a CPU
    processes   default: one per core, or `ON_ONE_GPU`
    nice        priority, 0 to 19; default: 19, the lowest
    move        go on with those of `unfinished` that were begun on another device, too

    Texts that a grid names by a relative path lie in `at`; `make_texts` writes those it can.
    SIGTERM and Ctrl-C stop it with a checkpoint of every model. A run that fails is left out and
    named in the log, and does not hold up the others. `ConfigError` for a device that is not here
    and another priority.
    """
    at = at.absolute()
    published, unfinished = (
        None if path is None else path.absolute() for path in (published, unfinished))
    resolve_device(device or "cpu")
    check(nice is None or 0 <= nice <= LOWEST_PRIORITY, f"nice is {nice}; expected 0 to "
          f"{LOWEST_PRIORITY}")
    at.mkdir(parents=True, exist_ok=True)
    give_way(LOWEST_PRIORITY if nice is None else nice)
    with exclusive(at / LOCK), chdir(at), stop_on_signals() as request:
        for stage in stages:
            claim_stage(at, stage)
        kept = [] if unfinished is None else [unfinished]
        for folder in kept:
            for path in take_up(folder, at, stages, device, move):
                _say(f"{path.relative_to(at)}: taken up at step {recorded_step(path):,}")
        elsewhere = left_elsewhere(kept, at, stages, device)
        for path in elsewhere:
            _say(f"{path.relative_to(at)}: left to the device on which it was begun")
        todo = {path: config for path, config in queue(at, stages, device).items()
                if not is_complete(path, config) and not is_published(path, config, published)
                and path not in elsewhere}
        make_texts(todo.values())
        _say(f"{len(todo)} runs to go")
        processes = processes or (ON_ONE_GPU if device == "cuda" else available_cores())
        with Workers(train_job, [{}] * processes, lambda: request.interrupted) as workers:
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


def claim_stage(at: Path, stage: Stage) -> None:
    """Keep the grid of a stage in its folder; one that was kept there must be the same.

    A grid of which no run was begun gives way to a changed one. `RunError` otherwise.
    """
    folder = at / stage.grid
    if not any(path.is_dir() for path in folder.glob("*")):
        (folder / SWEEP).unlink(missing_ok=True)
    claim(folder, load_grid(stage.grid))


def give_way(nice: int = LOWEST_PRIORITY) -> None:
    """Take a priority, against other sessions too where Linux shares out among those."""
    os.nice(nice)
    autogroup = Path("/proc/self/autogroup")
    if autogroup.exists() and os.getsid(0) == os.getpid():  # a session that is all ours
        with suppress(OSError):
            autogroup.write_text(str(nice), encoding="ascii")


def _say(message: str) -> None:
    print(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {message}", flush=True)


def owner(at: Path) -> int | None:
    """Return the process that trains in a folder, or None."""
    return holder(at / LOCK)


At = Annotated[Path, tyro.conf.arg(help="Folder of the trainings, outside the checkout.")]
Published = Annotated[Path | None, tyro.conf.arg(
    help="Folder of finished runs, such as experiments/results/runs; those of the same "
         "configuration are not trained again.")]
Unfinished = Annotated[Path | None, tyro.conf.arg(
    help="Folder that `keep` wrote, such as experiments/results/unfinished; its runs are gone on "
         "with.")]


def _known(at: Path) -> Path:
    """Return a folder of trainings; `RunError` for what is none."""
    check((at / LOCK).is_file(), f"{at} holds no long trainings (no {LOCK}); expected a folder "
          "that `resume` was called on", RunError)
    return at.absolute()


def _folder(name: str, folder: Path | None) -> Path | None:
    """Return a folder of runs; `RunError` where there is none, or all would be trained again."""
    check(folder is None or folder.is_dir(), f"{name} is {folder}, which is no folder; expected "
          f"one of runs, such as experiments/results/{'runs' if name == 'published' else name}",
          RunError)
    return None if folder is None else folder.absolute()


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    try:  # a process that has ended but that its parent has not yet collected
        return ") Z " not in Path(f"/proc/{process}/stat").read_text(encoding="ascii")
    except OSError:
        return True


@dataclass(frozen=True)
class Training:
    """The trainings that a command is about."""

    at: At
    published: Published = None
    unfinished: Unfinished = None
    device: Literal["cpu", "cuda"] | None = None
    """Where to train; default: as the grids say, on a CPU."""
    processes: int | None = None
    """Models at once; default: one per core, or four on a GPU."""
    nice: int | None = None
    """Priority, 0 to 19; default: 19, the lowest. A busy machine leaves that next to nothing."""

    move: bool = False
    """Go on with what --unfinished holds of another device, too: a device draws instances of its
    own."""

    def folders(self) -> dict[str, Path | None]:
        """Return where runs lie that are not begun anew.

        `RunError` for a folder that is not there, and for `move` with nothing to move.
        """
        check(not self.move or self.unfinished is not None, "move is set and unfinished is not; "
              "expected the folder of the runs that are to go on here", RunError)
        return {name: _folder(name, getattr(self, name)) for name in ("published", "unfinished")}


@dataclass(frozen=True)
class Resume(Training):
    """Continue all trainings, in the background and at the lowest priority."""

    def run(self) -> None:
        at, folders = self.at.absolute(), self.folders()
        resolve_device(self.device or "cpu")
        check(at.is_dir() or not at.exists(), f"{at} is a file; expected a folder", RunError)
        at.mkdir(parents=True, exist_ok=True)
        busy = owner(at)
        check(busy is None, f"process {busy} trains in {at} already; expected none", RunError)
        with (at / LOG).open("a", encoding="utf-8") as log:
            # A session of its own: it outlives the terminal, and Ctrl-C there is not for it.
            process = subprocess.Popen(
                [sys.executable, "-m", __spec__.name, "work", "--at", str(at),
                 *(word for name, value in {**folders, "device": self.device,
                                             "processes": self.processes,
                                             "nice": self.nice}.items()
                   if value is not None for word in (f"--{name}", str(value))),
                 *(["--move"] if self.move else [])], cwd=at,
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
        while _lives(process):  # for a while after it has released the folder
            check(time.monotonic() < deadline, f"process {process} has not stopped within "
                  f"{PAUSE_SECONDS:.0f} s of being asked to", RunError)
            time.sleep(0.2)
        print(f"paused; continue with: python -m {__spec__.name} resume --at {at}")


@dataclass(frozen=True)
class Status:
    """Say which runs are complete, how far the others are, and how long the rest will take."""

    at: At
    published: Published = None

    def run(self) -> None:
        at = _known(self.at)
        process = owner(at)
        published = _folder("published", self.published)
        print(table(at, published=published).to_string(index=False, na_rep="?"))
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
class Keep:
    """Copy the newest checkpoints of unfinished runs, with which `resume --unfinished` goes on."""

    at: At
    out: Path = Path("experiments/results/unfinished")
    """Folder of the copies, which take the place of those that are there and not as far."""
    published: Published = None

    def run(self) -> None:
        kept = keep(_known(self.at), self.out, published=_folder("published", self.published))
        for path in kept:
            print(f"wrote run {path}")
        print(f"{len(kept)} unfinished run{'s are' if len(kept) != 1 else ' is'} in {self.out}")


@dataclass(frozen=True)
class Work(Training):
    """Train here and now, rather than in the background; what `resume` starts."""

    def run(self) -> None:
        folders = self.folders()
        work(self.at.absolute(), processes=self.processes, published=folders["published"],
             unfinished=folders["unfinished"], device=self.device, nice=self.nice,
             move=self.move)


@dataclass(frozen=True)
class Accept:
    """Publish a run that was trained elsewhere, if its weights give what it records."""

    run_folder: Annotated[Path, tyro.conf.arg(name="run", help="Folder of the run."),
                          tyro.conf.Positional]
    out: Path = Path("experiments/results/runs")
    """Folder of the published runs."""
    device: str = "cpu"
    """Where its metrics are computed again."""

    def run(self) -> None:
        from latentcode.experiments.paper.intake import MOST_APART, accept

        target, table = accept(self.run_folder, self.out, self.device)
        write_page(self.out)
        whole = table[~table["metric"].map(is_by_constituent)]
        print(whole.to_string(index=False, float_format=lambda x: f"{x:.4f}"))
        print(f"{len(table)} metrics, at most {table['apart'].max():.2f} standard errors from what "
              f"the weights give ({MOST_APART:g} are allowed)\nwrote run {target}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command."""
    from latentcode.errors import LatentCodeError

    command = tyro.cli(
        Resume | Pause | Status | Publish | Keep | Accept | Work,
        args=arguments, prog="python -m latentcode.experiments.paper.long_runs")
    try:
        command.run()
    except LatentCodeError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(2) from None


if __name__ == "__main__":
    main()
