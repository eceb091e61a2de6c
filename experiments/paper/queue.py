"""Which models do the claims need, in which order, how far are they, and what is kept of them?"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from latentcode.config import RunConfig, config_hash, fill_in
from latentcode.errors import LatentCodeError, RunError, check
from latentcode.experiments.paper.reproduction import MEASURED, measured_name
from latentcode.experiments.paper.token_losses import token_losses
from latentcode.experiments.timing import seconds_per_step
from latentcode.figures.markdown import markdown_of
from latentcode.files.locks import exclusive
from latentcode.files.storage import replace_file, replace_folder, write_text
from latentcode.models.config import kind_of
from latentcode.runs import Run
from latentcode.runs.folder import CONFIG, LOCK, TEXT
from latentcode.runs.metric_file import recorded_step
from latentcode.runs.resumption import change_device
from latentcode.sweep.grid import load_grid
from latentcode.tasks import task_class

FIRST_ROWS = ("linear_rms_head", "hyla_linear", "hyla_no_rms_head", "hyla_deep", "hyla_softmax")
LATER_ROWS = ("linear_rms_head_relu", "hyla_linear_no_rms_head", "hyla_softmax_rms_head",
              "softmax_moe", "linear_moe", "hyla_moe")
"""Rows of Table A1: those that take HYLA apart, and the others."""


class Stage(NamedTuple):
    """A grid, and what of it has its turn: its members with seeds `first` to `last`, of `kinds`."""

    grid: str
    first: int = 0
    last: int | None = None
    kinds: tuple[str, ...] | None = None


QUEUE: tuple[Stage, ...] = (
    Stage("sraven_known"), Stage("fig6_small"), Stage("spans_small"), Stage("sraven_confirm"),
    Stage("sraven_replication"), Stage("paper_logic", 0, 2), Stage("paper_sraven"),
    Stage("paper_logic_codes"), Stage("paper_logic_heldout"),
    Stage("paper_logic_ablations", kinds=FIRST_ROWS), Stage("paper_logic", 2),
    Stage("paper_logic_ablations", kinds=LATER_ROWS), Stage("paper_sraven_ablations"))
"""What is trained, in the order of need. Seeds are counted along the first axis of each grid."""
README = "README.md"
MOST_KEPT = 12
"""Unfinished runs that are kept at most, of 5 MB each."""
KEPT = """\
# Trainings that are not finished

The newest checkpoint of each, with the state of training, as `python -m
latentcode.experiments.paper.long_runs keep` wrote them. `resume --at FOLDER --unfinished
experiments/results/unfinished` of the same module goes on with those that were begun on a CPU, and
with `--device cuda` with the others; with `--move`, with all. Hours are those of one core, or of
one GPU that all share, at the pace so far, beside whatever else it did.

"""
ALONG: Mapping[str, tuple[int, ...]] = {
    "sraven_known": (3_000, 4_500, 9_000), "paper_sraven": (39_062, 78_125, 156_250)}
"""Steps that are published of the first seed; of all others, and of other grids, the last alone."""
LARGE: Mapping[str, tuple[Callable[..., pd.DataFrame], ...]] = {"fig6_small": (token_losses,)}
"""Grids whose runs, of 17 MB each, are too large to lie in a checkout, and what is measured of each
run before its weights are left out. One published run of a grid has the text, which all share."""


def members(stage: Stage, at: Path, device: str | None = None) -> dict[Path, RunConfig]:
    """Return run folder -> configuration of a stage, in order.

    device  where it is trained, on `cuda` what the grid has in float32 in tf32; default: as the
            grid says, on a CPU
    """
    grid = load_grid(stage.grid)
    configs = {at / stage.grid / name: _on(config, device)
               for name, config in grid.members().items()}
    of_seed = len(configs) // len(next(iter(grid.axes.values())))
    last = None if stage.last is None else stage.last * of_seed
    return {path: config for path, config in list(configs.items())[stage.first * of_seed:last]
            if stage.kinds is None or kind_of(config.model) in stage.kinds}


def _on(config: RunConfig, device: str | None) -> RunConfig:
    training = config.training
    if device is None:
        return config
    exact = training.precision == "float32" and device == "cuda"
    return replace(config, training=replace(
        training, device=device, precision="tf32" if exact else training.precision))


def queue(
    at: Path, stages: Sequence[Stage] = QUEUE, device: str | None = None
) -> dict[Path, RunConfig]:
    """Return run folder -> configuration of all stages, in order; see `members`."""
    return {path: config for stage in stages
            for path, config in members(stage, at, device).items()}


def is_complete(path: Path, config: RunConfig) -> bool:
    """Whether training has reached its last step, judged by the run's folder alone."""
    return (path / CONFIG).exists() and Run(path, config, {}).is_complete


def is_published(path: Path, config: RunConfig, published: Path | None) -> bool:
    """Whether the run that would be trained at `path` lies finished among the published ones.

    A run of another configuration under its name does not count; one that was trained on another
    device or in another precision does, as it does for the claims.
    """
    if published is None:
        return False
    folder = published / path.parent.name / path.name
    if not folder.exists():
        return False
    run = Run.open(folder)
    return run.is_complete and is_member(run, config)


def is_member(run: Run, config: RunConfig) -> bool:
    """Whether a run has a configuration, but for its device and precision."""
    there = run.config.training
    config = replace(config, training=replace(
        config.training, device=there.device, precision=there.precision))
    return config_hash(fill_in(config, run.config)) == config_hash(run.config)


def table(
    at: Path, stages: Sequence[Stage] = QUEUE, published: Path | None = None
) -> pd.DataFrame:
    """Return one row per stage: runs complete, steps done of all, hours that the rest will take.

    Hours are those of one core each, from what runs of the same grid have taken per step on a CPU.
    A run that is complete nowhere but among the published ones counts as done.
    """
    rows, others = [], left_elsewhere([], at, stages)
    for stage in stages:
        runs = members(stage, at)
        steps = sum(config.training.steps for config in runs.values())
        complete = [path for path, config in runs.items() if is_complete(path, config)]
        elsewhere = [path for path, config in runs.items()
                     if path not in complete and is_published(path, config, published)]
        done = sum(config.training.steps if path in (*complete, *elsewhere)
                   else recorded_step(path) for path, config in runs.items())
        paces = [seconds_per_step(path) for path in queue(at, stages)
                 if path.parent.name == stage.grid and path not in others]
        speeds = [pace for pace in paces if pace is not None]
        left = (steps - done) * sum(speeds) / len(speeds) / 3600 if speeds else float("nan")
        seeds = list(dict.fromkeys(_seeds(path.name) for path in runs))
        rows.append({
            "grid": stage.grid, "seeds": "; ".join(seeds),
            "kinds": "all" if stage.kinds is None else f"{len(stage.kinds)}",
            "complete": len(complete),
            **({} if published is None else {"published elsewhere": len(elsewhere)}),
            "runs": len(runs), "steps": done, "of": steps, "core-hours left": round(left, 1)})
    return pd.DataFrame(rows)


def _seeds(member: str) -> str:
    """Return what a member's name says of its seeds, such as `split 1, seed 0`."""
    found = dict(part.split("=") for part in member.split(",") if "seed" in part)
    return ", ".join(f"{name.removesuffix('_seed')} {value}" for name, value in found.items())


def publish(at: Path, out: Path, stages: Sequence[Stage] = QUEUE) -> list[Path]:
    """Copy every finished run that `out` lacks, without the state of training; list all there.

    Those of `LARGE` are copied without their weights, once they are measured. Returns the folders
    that are new.
    """
    new = []
    for stage in stages:
        for path, config in members(stage, at).items():
            target = out / stage.grid / path.name
            if is_complete(path, config) and not target.exists():
                publish_run(Run.open(path), target)
                new.append(target)
    write_page(out, stages)
    return new


def publish_run(run: Run, target: Path) -> None:
    """Copy a finished run to OUT/GRID/MEMBER as its grid has it: see `ALONG` and `LARGE`.

    A run that was taken up from what `keep` wrote has only the later steps of `ALONG`.
    """
    grid, out = target.parent.name, target.parents[1]
    first = target in members(Stage(grid, 0, 1), out)
    along = [step for step in ALONG.get(grid, ()) if first and step in run.checkpoints()] or None
    target.parent.mkdir(parents=True, exist_ok=True)
    large = grid in LARGE
    for measure in LARGE.get(grid, ()):
        file = out / MEASURED / measured_name(run, measure)
        file.parent.mkdir(exist_ok=True)
        with replace_file(file) as temporary:
            measure(run).to_parquet(temporary, index=False)
    # One text is enough for all: it is known by its revision.
    text = not large or not any(target.parent.glob(f"*/{TEXT}"))
    run.publish(target, step=along, weights=not large, text=text)


def write_page(out: Path, stages: Sequence[Stage] = QUEUE) -> None:
    """List the published runs in a folder, if there is one."""
    if out.is_dir():
        write_text(out / README, page(out, stages))


def keep(
    at: Path, out: Path, stages: Sequence[Stage] = QUEUE, published: Path | None = None
) -> list[Path]:
    """Copy runs that are begun and not finished, so that `take_up` can continue them elsewhere.

    Of each its newest checkpoint, state of training included, be it in `at` or in `out` and on
    whatever device. They take the place of what `out` held: what is finished in `at` or among those
    `published` is left out. Returns their folders. `RunError` while one is being trained, and for
    more than `MOST_KEPT`.
    """
    begun = []
    for path, config in queue(at, stages).items():
        if is_complete(path, config) or is_published(path, config, published):
            continue
        # As far in both: as it was kept, before it was moved to another device.
        found = [Run.open(folder) for folder in (out / path.relative_to(at), path)
                 if (folder / CONFIG).exists()]
        with_any = [run for run in found if run.checkpoints() and is_member(run, config)]
        if with_any:
            begun.append((path.relative_to(at), max(with_any, key=_newest)))
    check(len(begun) <= MOST_KEPT, f"{len(begun)} runs are begun and not finished; expected at "
          f"most {MOST_KEPT}, of 5 MB each", RunError)
    begun.sort(key=lambda one: _newest(one[1]) / one[1].config.training.steps, reverse=True)
    lines = []
    with replace_folder(out, overwrite=True, marker=README) as folder:
        for name, run in begun:
            with exclusive(run.path / LOCK):
                _copy(run, folder / name)
            pace, total = seconds_per_step(run.path), run.config.training.steps
            done = _newest(run)
            lines.append({"run": name.as_posix(), "device": run.config.training.device,
                          "updates": f"{done:,}", "of": f"{total:,}",
                          "hours left": "?" if pace is None
                          else f"{(total - done) * pace / 3600:.1f}"})
        (folder / README).write_text(KEPT + (
            markdown_of(pd.DataFrame(lines)) if lines else "None.") + "\n", encoding="utf-8")
    return [out / line["run"] for line in lines]


def _newest(run: Run) -> int:
    return run.checkpoints()[-1]


def take_up(
    kept: Path, at: Path, stages: Sequence[Stage] = QUEUE, device: str | None = None,
    move: bool = False,
) -> list[Path]:
    """Copy to `at` the runs of `keep` that are not there and can go on on this device.

    move  also those that were begun otherwise (`goes_on`); see `change_device`

    Returns their folders. `RunError` for a run of another configuration than the grid's.
    """
    new = []
    for path, config in queue(at, stages, device).items():
        source = kept / path.relative_to(at)
        if (source / CONFIG).exists() and not path.exists():
            run = Run.open(source)
            check(is_member(run, config), f"{source} has another configuration than its name says "
                  f"in the grid {path.parent.name}; expected the same", RunError)
            stays = goes_on(run, config)
            if stays or (move and not run.is_complete):
                with replace_folder(path, overwrite=False, marker=CONFIG) as folder:
                    _copy(run, folder)
                    if not stays:
                        change_device(folder, config.training.device, config.training.precision)
                new.append(path)
    return new


def goes_on(run: Run, config: RunConfig) -> bool:
    """Whether a run was begun on the device and in the precision of a configuration."""
    return all(getattr(run.config.training, name) == getattr(config.training, name)
               for name in ("device", "precision"))


def left_elsewhere(
    folders: Sequence[Path], at: Path, stages: Sequence[Stage] = QUEUE, device: str | None = None
) -> list[Path]:
    """Return the folders of runs that were begun otherwise (`goes_on`), in `at` or in `folders`."""
    found = []
    for path, config in queue(at, stages, device).items():
        # What lies in `at` is what goes on, whatever is kept of it elsewhere.
        begun = next((folder / path.relative_to(at) for folder in (at, *folders)
                      if (folder / path.relative_to(at) / CONFIG).exists()), None)
        with suppress(LatentCodeError):  # one that cannot be opened says so when its turn comes
            if begun is not None and not goes_on(Run.open(begun), config):
                found.append(path)
    return found


def _copy(run: Run, to: Path) -> None:
    """Copy a run with the newest of its checkpoints, and all that training needs to go on."""
    newest = run.checkpoint_path(_newest(run))

    def others(folder: str, names: list[str]) -> list[str]:
        checkpoints = Path(folder) == newest.parent
        return [name for name in names
                if name == LOCK or (checkpoints and name != newest.name)]

    shutil.copytree(run.path, to, ignore=others, dirs_exist_ok=True)


def page(out: Path, stages: Sequence[Stage] = QUEUE) -> str:
    """Return a Markdown page with a row per published run: how good it is at its end, on every
    split, and the constituent that it knows worst."""
    parts = ["# Trained runs\n\nConfiguration, metrics over the updates, provenance and weights of "
             "the long trainings (`python -m latentcode.experiments.paper.long_runs`), with "
             "standard errors over instances. Runs of "
             f"{', '.join(LARGE)} are too large and have no weights here. "
             "`latentcode show experiments/results/runs/GRID/RUN` tells more of one, "
             "`lc.load_run` opens it.\n"]
    for name in dict.fromkeys(stage.grid for stage in stages):
        runs = [Run.open(path) for path in members(Stage(name), out) if path.exists()]
        if not runs:
            continue
        total = len(members(Stage(name), out))
        parts.append(f"\n## {name}\n\n{len(runs)} of {total} runs.\n\n{_rows(runs)}\n")
    return "".join(parts)


def _rows(runs: Sequence[Run]) -> str:
    headline = task_class(runs[0].config.task).headline
    lines = []
    for run in runs:
        newest = run.newest_metrics()
        scores = newest[newest["metric"] == headline]
        known = newest[newest["metric"].str.startswith(("feature_accuracy[", "r2["))
                       & (newest["split"] == "ood")].sort_values("mean")
        lines.append({"run": run.name, "checkpoints": ", ".join(map(str, run.checkpoints())),
                      **{f"{headline}, {row.split}": f"{row.mean:.3f} ± {row.se:.3f}"
                         for row in scores.itertuples()},
                      "known worst, ood": "".join(
                          f"`{row.metric}` {row.mean:.3f}" for row in known.head(1).itertuples())})
    table = pd.DataFrame(lines).fillna("")
    return markdown_of(table)
