"""Train every member of a grid, in as few goes as the memory allows; write one table.

The table and the summary hold results alone and no times: a sweep that was interrupted and one
that was not write the same bytes.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from latentcode.config import RunConfig
from latentcode.devices import check_precision, resolve_device
from latentcode.errors import LatentCodeError, RunError, check, check_count
from latentcode.files.storage import check_free, check_writable, exclusive, replace_file, write_text
from latentcode.metrics import mean_metric
from latentcode.progress import Bar
from latentcode.runs.checkpoints import recorded_step
from latentcode.runs.run import CONFIG, LOCK, Run, check_resumable, remove_stale
from latentcode.sweep.executors import (
    Executor,
    ExecutorName,
    Job,
    Outcome,
    make_executor,
)
from latentcode.sweep.grid import HYPERPARAMETERS, SEEDS, Grid, load_grid
from latentcode.sweep.texts import make_texts
from latentcode.tasks import make_task, task_class
from latentcode.training.ensemble import ensemble_key
from latentcode.training.loop import StopRequest, check_keeps_enough, stop_on_signals
from latentcode.training.processes import check_alone

SWEEP = "sweep.yaml"
SHOWN = 6
"""How many differences between two grids an error names."""
SelectOn = Literal["test", "ood"]
TABLE_PARQUET, TABLE_CSV, SUMMARY_CSV = "table.parquet", "table.csv", "summary.csv"
RESULTS: tuple[str, ...] = ("split", "metric", "mean", "se", "n", "step", "complete", "error")
"""Columns of the table after `member` and the axes."""
POLL_SECONDS = 1.0
"""How often the folders of the runs are looked at."""


@dataclass(frozen=True)
class SweepResult:
    """The outcome of a sweep.

    table    one row per member, split and metric; see `member_table`
    summary  the best setting of each condition; see `summarize`
    failed   member -> why it cannot continue
    missing  members that are not complete, the failed ones included
    """

    table: pd.DataFrame
    summary: pd.DataFrame
    failed: dict[str, str]
    missing: tuple[str, ...]
    headline: str

    def __str__(self) -> str:
        return render(self.summary, self.headline)


def sweep(
    grid: Grid, out: str | Path, *, executor: ExecutorName = "local",
    processes: int | None = None, members_at_once: int | None = None,
    deadline: float | None = None, ray_address: str | None = None, select_on: SelectOn = "test",
    publish: str | Path | None = None,
) -> SweepResult:
    """Train all members of a grid below `out`; resume those that were begun.

    An error of a member stops no other. A group that fails is halved and tried again, as often
    as it takes to find the member, or a size that fits into memory. Ctrl-C, SIGTERM and SIGHUP stop
    all members with checkpoints, write the tables and then raise `KeyboardInterrupt` or
    `SystemExit`. Texts that the library can write (`make_texts`) are written where they are
    missing.

    Args:
        grid: Base configuration and axes.
        out: Folder of the runs and tables.
        executor: Processes of this machine, or a Ray cluster.
        processes: Jobs at once; default: one per core or visible GPU. More than there are GPUs
            share them.
        members_at_once: Size of an ensemble; default: on CUDA as many as leave every process a
            job, on the CPU 1.
        deadline: Time (seconds, as `time.time()`) by which everything has stopped at a checkpoint
            and the tables are written.
        ray_address: See `make_executor`.
        select_on: Split that chooses the best settings.
        publish: Folder to which every member is copied as soon as it is finished, with the
            weights of its last step and without what only training needs (`Run.publish`).

    Returns:
        The tables, and the members that failed or are not complete.

    Raises:
        RunError: If `out` holds another sweep or something else.
        ConfigError: For a configuration that cannot be trained.
    """
    out = Path(out).absolute()
    published = None if publish is None else Path(publish).absolute()
    if published is not None:
        check(published != out, f"publish is {publish}, the folder of the sweep; expected another",
              RunError)
        check_writable(published / SWEEP)
    members = {out / name: config for name, config in grid.members().items()}
    make_texts(members.values())
    task = task_class(grid.base.task)
    make_task(next(iter(members.values())).task).check_split(select_on)
    with _trained(out, members, lambda: claim(out, grid), executor=executor, processes=processes,
                  members_at_once=members_at_once, deadline=deadline, ray_address=ray_address,
                  published=published) as attempt:
        failed = {path.name: attempt.errors[path] for path in members if path in attempt.errors}
        table = member_table(out, grid.points(), failed)
        summary = summarize(table, task.headline, select_on, lower_is_better=task.lower_is_better)
        write_tables(out, table, summary)
        missing = tuple(dict.fromkeys(table.loc[~table["complete"], "member"]))
        if set(missing) - set(failed):
            why = "stopped" if attempt.stop.requested else "the budget is used up"
            attempt.bar.say(f"{why}: {len(attempt.complete):,} of {len(members):,} members "
                            f"complete; continue with: latentcode sweep --out {out}")
    return SweepResult(table, summary, failed, missing, task.headline)


def train_members(
    out: str | Path, members: Mapping[str, RunConfig], *, deadline: float | None = None
) -> dict[str, str]:
    """Train these models below `out`, or resume them, and return why some could not be trained.

    What `sweep` says of errors, signals and `deadline` holds here, too.

    Args:
        out: Folder of the runs.
        members: Name of a folder below `out` -> configuration.
        deadline: See `sweep`.
    """
    out = Path(out).absolute()
    paths = {out / name: config for name, config in members.items()}
    with _trained(out, paths, lambda: out.mkdir(parents=True, exist_ok=True),
                  deadline=deadline) as attempt:
        return {path.name: error for path, error in attempt.errors.items()}


@contextmanager
def _trained(
    out: Path, members: Mapping[Path, RunConfig], claim_folder: Callable[[], None], *,
    executor: ExecutorName = "local", processes: int | None = None,
    members_at_once: int | None = None, deadline: float | None = None,
    ray_address: str | None = None, published: Path | None = None,
) -> Iterator[_Sweep]:
    """Train members and yield the attempt, with the folder still locked; then raise what a signal
    would have raised. `ConfigError` for what cannot be trained, before anything is made."""
    check_alone("a sweep")
    first = next(iter(members.values())).training
    if members_at_once is not None:
        check_count("members_at_once", members_at_once)
    if (members_at_once or 1) > 1 or first.device != "cpu":
        for config in members.values():
            check_keeps_enough(config)
    for task in dict.fromkeys(config.task for config in members.values()):
        make_task(task)  # an impossible split
    if executor == "local":
        device = resolve_device(first.device)
        for precision in dict.fromkeys(config.training.precision for config in members.values()):
            check_precision(precision, device)
    if deadline is not None:  # some seconds are kept for the end: processes, tables
        deadline -= min(5.0 + 0.05 * len(members), 0.5 * max(0.0, deadline - time.time()))
    with make_executor(executor, first.device, processes=processes, deadline=deadline,
                       ray_address=ray_address) as trainer:
        claim_folder()
        # After Ray was started, which handles signals, too.
        with exclusive(out / LOCK), stop_on_signals() as stop:
            attempt = _Sweep(out, members, trainer, stop, deadline, published)
            attempt.work(members_at_once)
            yield attempt
    if stop.requested:
        raise stop.exception("the sweep was stopped")


def pack(
    configs: Mapping[Path, RunConfig], members_at_once: int,
    checkpoints: Mapping[Path, Collection[int]] | None = None,
) -> list[Job]:
    """Group members that can share one ensemble, in groups of at most `members_at_once`.

    Groups follow the order of their first members, members keep their order, and the groups
    of one kind differ in size by one at most.

    Args:
        configs: Folder -> configuration.
        members_at_once: The most members of a group.
        checkpoints: Steps that a member could resume from. An ensemble resumes from the newest
            that all its members have; in one group that is the newest or (where they were killed
            between two) the one before of every member, so that none loses more than that, for
            example to one that broke long before. Or all have none.
    """
    of_kind: dict[str, list[tuple[set[int], list[Path]]]] = {}
    for path, config in configs.items():
        steps = set(sorted((checkpoints or {}).get(path, ()))[-2:])
        groups = of_kind.setdefault(ensemble_key(config), [])
        for common, paths in groups:
            if common & steps or not (common or steps):
                common &= steps
                paths.append(path)
                break
        else:
            groups.append((steps, [path]))
    jobs: list[Job] = []
    for _, paths in (group for groups in of_kind.values() for group in groups):
        n_jobs = -(-len(paths) // members_at_once)
        for number in range(n_jobs):
            first, last = (len(paths) * n // n_jobs for n in (number, number + 1))
            jobs.append({path: configs[path] for path in paths[first:last]})
    order = list(configs)
    return sorted(jobs, key=lambda job: order.index(next(iter(job))))


def claim(out: Path, grid: Grid) -> None:
    """Make the folder of a sweep and keep its grid there; an existing one must have the same.

    `RunError` names the difference.
    """
    known = existing(out)
    if known is not None:
        differences = known.differences(grid)
        shown, others = differences[:SHOWN], len(differences) - SHOWN
        check(not differences, f"{out} holds another sweep ({'; '.join(shown)}"
              + (f"; and {others} more" if others > 0 else "")
              + "); expected the same grid, or another folder", RunError)
        return
    check_free(out, overwrite=False, marker=SWEEP)
    out.mkdir(parents=True, exist_ok=True)
    write_text(out / SWEEP, grid.to_yaml())


def publish_member(run: Run, folder: Path) -> None:
    """Copy a finished run to `folder`/NAME, unless it is there; `RunError` if another one is."""
    target = folder / run.path.name
    if target.exists():
        known = Run.open(target)
        check(known.id == run.id, f"{target} holds another run, {known.id}; expected {run.id}, or "
              "nothing", RunError)
        return
    remove_stale(folder, f"*-{target.name}")  # of a sweep that was killed
    run.publish(target)


def existing(out: Path) -> Grid | None:
    """Return the grid of a sweep that was begun in a folder, or None."""
    return load_grid(out / SWEEP) if (out / SWEEP).exists() else None


def parse_budget(text: str) -> float:
    """Return the seconds of `90s`, `30m`, `2h` or `1h30m`."""
    try:
        seconds = pd.Timedelta(text).total_seconds()
    except ValueError:
        seconds = 0.0
    check(seconds >= 1, f"budget is {text!r}; expected a time such as 90s, 30m or 2h")
    return seconds


class _Sweep:
    """One attempt to train all members to the last step."""

    def __init__(
        self, out: Path, members: Mapping[Path, RunConfig], trainer: Executor,
        stop: StopRequest, deadline: float | None, published: Path | None = None,
    ) -> None:
        self.out, self.members, self.trainer = out, members, trainer
        self.stop, self.deadline, self.published = stop, deadline, published
        trainer.stopping = lambda: stop.interrupted
        self.errors: dict[Path, str] = {}
        self.checkpoints: dict[Path, list[int]] = {}
        self.complete: set[Path] = set()
        self.bar = Bar(f"{len(members):,} members", transient=False, total=sum(
            config.training.steps for config in members.values()))

    def work(self, members_at_once: int | None) -> None:
        """Train until all jobs have ended, a signal comes, or the time is up; see `sweep`."""
        todo = {path: config for path, config in self.members.items()
                if not self._look(path, config) and path not in self.errors}
        for path in self.complete:
            # Killed after its last checkpoint, a member is complete and not trained again, but it
            # may have been clearing away an older checkpoint.
            with Run.open(path).writing():
                pass
        if members_at_once is None:
            on_cpu = next(iter(self.members.values())).training.device == "cpu"
            # With more on a GPU, some process would have no job.
            members_at_once = 1 if on_cpu else max(1, len(todo) // self.trainer.at_once)
        self.bar.done = self._steps_done()
        with self.bar:
            for job in pack(todo, members_at_once, self.checkpoints):
                self.trainer.submit(job)
            stopped = False
            while self.trainer.n_pending:
                late = self.deadline is not None and time.time() >= self.deadline
                if not stopped and (late or self.stop.requested):
                    stopped = True
                    self.trainer.stop()
                for outcome in self.trainer.wait(POLL_SECONDS):
                    self._take(outcome)
                self.bar.text = f"steps, {len(self.complete):,} members complete"
                self.bar(self._steps_done(), self.bar.total)

    def _steps_done(self) -> int:
        steps = {path: config.training.steps for path, config in self.members.items()}
        return sum(n if path in self.complete else min(n, recorded_step(path))
                   for path, n in steps.items())

    def _take(self, outcome: Outcome) -> None:
        """Record the outcome of a job; try again what is left of it, if that can help."""
        left = {path: config for path, config in outcome.job.items()
                if not self._look(path, config) and path not in self.errors}
        error = outcome.error
        if not left or error is None:  # complete, or everything ends
            return
        if len(outcome.job) > 1:
            # Where some are complete, the others broke; where none is, the group was too large
            # or one of them kept it from beginning.
            broke = len(left) < len(outcome.job)
            self.bar.say(
                f"{len(left)} members of a group of {len(outcome.job)} failed, now "
                f"{'alone' if broke else 'in two halves'}: {self._plain(error)}")
            for part in pack(left, 1 if broke else (len(left) + 1) // 2):
                self.trainer.submit(part)
            return
        path = next(iter(left))
        self.errors[path] = self._plain(error)
        self.bar.say(f"{path.name} failed: {self.errors[path]}")

    def _look(self, path: Path, config: RunConfig) -> bool:
        """Whether a member is complete; note what is wrong with its folder."""
        if not (path / CONFIG).exists():
            return False
        try:
            run = Run.open(path)
            check_resumable(run, config)
        except LatentCodeError as error:
            self.errors[path] = self._plain(error)
            return False
        self.checkpoints[path] = run.checkpoints()
        if run.is_complete and path not in self.complete:
            self.complete.add(path)
            if self.published is not None:
                try:
                    publish_member(run, self.published)
                except LatentCodeError as error:
                    self.errors[path] = f"it is finished and not published: {error}"
        return run.is_complete

    def _plain(self, error: Exception) -> str:
        """Return a message that does not depend on where the sweep is."""
        return str(error).replace(f"{self.out}/", "")


def member_table(
    out: Path, points: Mapping[str, Mapping[str, Any]], errors: Mapping[str, str]
) -> pd.DataFrame:
    """Return one row per member, split and metric: its newest value.

    out     folder of the sweep
    points  member -> field -> value; the fields become columns
    errors  member -> why it cannot continue

    `step` is that of the value, `complete` says whether the member was trained to the last step,
    and `error` why it was not. A member without any value has one row.
    """
    rows: list[dict[str, Any]] = []
    values: list[dict[str, Any]]
    order = {split: number for number, split in enumerate(("train", "test", "ood", "unknown"))}
    for member, point in points.items():
        complete, values = False, []
        with suppress(LatentCodeError):  # not begun, or damaged, which its error says
            run = Run.open(out / member)
            metrics = run.newest_metrics().sort_values(
                ["split", "metric"], kind="stable",
                key=lambda column: column.map(order) if column.name == "split" else column)
            complete = run.is_complete
            columns = ["split", "metric", "mean", "se", "n", "step"]
            values = [dict(zip(columns, row, strict=True))
                      for row in metrics[columns].itertuples(index=False, name=None)]
        fixed = {"member": member, **{
            axis: json.dumps(value) if isinstance(value, (list, dict)) else value
            for axis, value in point.items()}}
        state = {"complete": complete, "error": None if complete else errors.get(member)}
        rows += [{**fixed, **value, **state} for value in values] or [{**fixed, **state}]
    axes = list(next(iter(points.values())))
    table = pd.DataFrame(rows, columns=["member", *axes, *RESULTS])
    for axis in axes:
        with np.errstate(invalid="ignore"):  # pandas 2.2 casts 1e30 to an integer to see if it fits
            table[axis] = table[axis].convert_dtypes()
    return table.astype({
        "member": "string", "split": "string", "metric": "string", "mean": "float64",
        "se": "float64", "n": "Int64", "step": "Int64", "complete": "bool", "error": "string"})


def summarize(
    table: pd.DataFrame, headline: str, select_on: SelectOn = "test", *,
    lower_is_better: bool = False,
) -> pd.DataFrame:
    """Return the best setting of each condition: mean and sd / sqrt(n) over its n seeds.

    A condition is a point on the axes that are neither seeds nor hyperparameters, such as the
    kind of attention; a setting is a point on those of the hyperparameters. The best setting is
    the one with the highest mean over seeds of the metric `headline` on the split `select_on` (the
    lowest where `lower_is_better`), the first of equals. Only settings of which all members are
    complete take part; `settings` says how many there are and `settings_complete` how many took
    part. A condition without one has a row without values.

    The paper selects on `ood`; `test` leaves the held-out combinations out of the choice.
    """
    axes = [name for name in table.columns if name not in ("member", *RESULTS)]
    hyperparameters = [axis for axis in axes if axis in HYPERPARAMETERS]
    conditions = [axis for axis in axes if axis not in (*HYPERPARAMETERS, *SEEDS)]
    rows = []
    for condition, members in _groups(table, conditions):
        settings = _groups(members, hyperparameters)
        complete = [(setting, results) for setting, results in settings
                    if results["complete"].all()]
        fixed = {**condition, "selected_on": select_on, "settings": len(settings),
                 "settings_complete": len(complete)}
        ranked = []
        for setting, results in complete:
            scores = results.loc[
                (results["split"] == select_on) & (results["metric"] == headline), "mean"]
            if len(scores) == results["member"].nunique() and not scores.isna().any():
                ranked.append((float(scores.mean()), setting, results))
        if not ranked:
            rows.append(fixed)
            continue
        best = min if lower_is_better else max
        _, setting, chosen = best(ranked, key=lambda candidate: candidate[0])
        for result, values in _groups(chosen, ["split", "metric"]):
            metric = mean_metric(values["mean"].to_numpy(dtype=np.float64))
            rows.append({**fixed, **setting, **result, "mean": metric.mean, "se": metric.se,
                         "n": metric.n})
    summary = pd.DataFrame(rows, columns=[
        *conditions, *hyperparameters, "selected_on", "settings", "settings_complete", "split",
        "metric", "mean", "se", "n"])
    return summary.astype({"mean": "float64", "se": "float64", "n": "Int64"})


def render(summary: pd.DataFrame, headline: str) -> str:
    """Return the summary of the headline metric as text, a line per condition."""
    fixed = list(summary.columns[:list(summary.columns).index("selected_on")])
    splits = [split for split in dict.fromkeys(summary["split"].dropna())
              if (summary.loc[summary["split"] == split, "metric"] == headline).any()]
    lines = []
    for condition, rows in _groups(summary, fixed):
        line = {name.rpartition(".")[2]: "" if value is None else str(value)
                for name, value in condition.items()}
        for split in splits:
            scores = rows[(rows["split"] == split) & (rows["metric"] == headline)]
            line[f"{split} {headline}"] = "".join(
                f"{mean:.4f}" + ("" if math.isnan(se) else f" +- {se:.4f}")
                for mean, se in zip(scores["mean"], scores["se"], strict=True))
        seeds = rows["n"].dropna()
        line["seeds"] = str(seeds.iloc[0]) if len(seeds) else ""
        line["settings"] = (f"{rows['settings_complete'].iloc[0]} of "
                            f"{rows['settings'].iloc[0]}")
        lines.append(line)
    selected_on = summary["selected_on"].iloc[0]
    how = "as the paper does" if selected_on == "ood" else "`ood` had no say"
    return (f"{pd.DataFrame(lines).to_string(index=False)}\n"
            "mean +- standard error over seeds; of the settings, the best on "
            f"`{selected_on}` ({how})")


def write_tables(out: Path, table: pd.DataFrame, summary: pd.DataFrame) -> None:
    """Write `table.parquet`, `table.csv` and `summary.csv`, each all or nothing."""
    with replace_file(out / TABLE_PARQUET) as temporary:
        table.to_parquet(temporary, index=False)
    write_text(out / TABLE_CSV, table.to_csv(index=False))
    write_text(out / SUMMARY_CSV, summary.to_csv(index=False))


def _groups(
    table: pd.DataFrame, columns: Sequence[str]
) -> list[tuple[dict[str, Any], pd.DataFrame]]:
    """Return the rows of each point on some columns, in the order in which they appear."""
    if not columns:
        return [({}, table)]
    groups: Any = table.groupby(list(columns), sort=False, dropna=False)
    return [({name: None if pd.isna(value) else value
              for name, value in zip(columns, key, strict=True)}, rows) for key, rows in groups]
