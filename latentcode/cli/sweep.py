"""`latentcode sweep`: a grid of models and their table."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from latentcode.cli.parsing import default_is
from latentcode.config import load_config, preset
from latentcode.errors import LatentCodeError

if TYPE_CHECKING:
    from latentcode.sweep import Grid


@dataclass(frozen=True)
class Sweep:
    """Train a grid of models, and write one table.

    Example: latentcode sweep --out runs/sweep --preset small --task logic
    --axis kind=softmax,hyla --axis training.seed=0,1,2

    If interrupted, `latentcode sweep --out OUT` continues where it stopped.
    """

    out: Path
    """Folder for the runs and tables."""
    grid: Annotated[str | None, default_is("a grid of the options below")] = None
    """YAML file with base and axes, whose fields --fix and --axis change; or a built-in grid:
    sraven_known, sraven_confirm, sraven_replication, fig6_small, spans_small, paper_logic,
    paper_sraven, paper_sraven_confirm, paper_logic_codes, paper_logic_heldout,
    paper_logic_ablations, paper_sraven_ablations, smoke_logic."""
    preset: Annotated[Literal["paper", "small", "smoke"] | None, default_is("small")] = None
    """Configuration that all members start from."""
    task: Annotated[str | None, default_is("logic")] = None
    """Task of all members: logic, sraven, language, or one that --import registers."""
    kind: Annotated[str | None, default_is("hyla, unless it is an axis")] = None
    """Attention kind of all members."""
    config: Annotated[Path | None, default_is("as --preset, --task and --kind say")] = None
    """YAML file with a whole configuration that all members start from."""
    fix: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """A field and its value for all members, such as training.steps=500."""
    axis: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """A field and its values, such as training.seed=0,1,2; replaces the axis of --grid that has
    the same name. Fields joined by + vary together: training.seed+task.split_seed=[0,0],[1,1]."""
    device: Annotated[str | None, default_is("as in the grid")] = None
    """cpu or cuda, for all members."""
    executor: Literal["local", "ray"] = "local"
    """Processes on this machine, or a Ray cluster (needs latentcode[sweep])."""
    ray_address: Annotated[str | None, default_is("start a cluster")] = None
    """Address of a running Ray cluster, or auto."""
    processes: Annotated[int | None, default_is("one per core or GPU")] = None
    """Number of jobs at a time; more than there are GPUs share them."""
    members_at_once: Annotated[int | None, default_is("on CUDA what fits in memory, else 1")] = None
    """Number of members that one job trains together."""
    budget: Annotated[str | None, default_is("none")] = None
    """Time after which every job has stopped at a checkpoint: 90s, 30m, 2h."""
    select_on: Literal["test", "ood"] = "test"
    """Split on which the best settings are selected; the paper selects on ood."""
    publish: Annotated[Path | None, default_is("publish nothing")] = None
    """Folder to which each member is copied as soon as it is finished: configuration, metrics,
    provenance and final weights, from which training cannot go on."""

    def run(self) -> None:
        began = time.time()  # a budget begins before the imports, which take seconds
        from latentcode.sweep import existing, parse_budget, sweep

        budget = None if self.budget is None else parse_budget(self.budget)
        deadline = None if budget is None else began + budget
        grid = self._grid() or existing(self.out)
        if grid is None:
            raise LatentCodeError(f"{self.out} holds no sweep to continue; expected --axis, or "
                                  "--grid with a YAML file or a name")
        if self.device is not None:
            base = replace(grid.base, training=replace(grid.base.training, device=self.device))
            grid = replace(grid, base=base)
        result = sweep(grid, self.out, executor=self.executor, processes=self.processes,
                       members_at_once=self.members_at_once, deadline=deadline,
                       ray_address=self.ray_address, select_on=self.select_on,
                       publish=self.publish)
        print(result)
        print(f"wrote table {self.out / 'table.csv'}")
        for member, why in result.failed.items():
            print(f"error: member {member}: {why}", file=sys.stderr)
        if result.failed:
            raise SystemExit(1)

    def _grid(self) -> Grid | None:
        """Return the grid that the flags describe, or None where they describe none."""
        from latentcode.sweep import Grid, load_grid
        from latentcode.sweep.grid import KIND, check_field, with_fields

        start = {"--preset": self.preset, "--task": self.task, "--kind": self.kind}
        whole = {"--grid": self.grid, "--config": self.config}
        given = [flag for flag, value in {**whole, **start}.items() if value]
        if not (given or self.fix or self.axis):
            return None
        if len(given) > 1 and any(whole.values()):
            raise LatentCodeError(f"{given[0]} {whole[given[0]]} is given together with "
                                  f"{', '.join(given[1:])}; expected one or the other")
        axes: dict[str, tuple[Any, ...]] = {}
        if self.grid is not None:
            grid = load_grid(self.grid)
            base, axes = grid.base, grid.axes
        elif self.config is not None:
            base = load_config(self.config)
        else:
            base = preset(self.preset or "small", self.task or "logic", self.kind or "hyla")
        fixed = self._fields("--fix", self.fix)
        for field, values in fixed.items():
            if field == KIND:
                raise LatentCodeError(f"--fix {field} is no field; expected --axis kind=... or, "
                                      "without --grid, --kind")
            check_field(field)
            taken = [axis for axis in axes if field in axis.split("+")]
            if taken:
                raise LatentCodeError(f"--fix {field} is an axis of grid {self.grid}; expected "
                                      f"--axis {taken[0]}=...")
            if len(values) != 1:
                raise LatentCodeError(f"--fix {field} has {len(values)} values; expected one, or "
                                      "--axis")
        base = with_fields(base, {field: values[0] for field, values in fixed.items()})
        return Grid(base, {**axes, **self._fields("--axis", self.axis)})

    @staticmethod
    def _fields(flag: str, texts: tuple[str, ...]) -> dict[str, tuple[Any, ...]]:
        from latentcode.sweep import parse_axis

        fields: dict[str, tuple[Any, ...]] = {}
        for text in texts:
            name, values = parse_axis(text, flag)
            if name in fields:
                raise LatentCodeError(f"{flag} {name} is given twice; expected every field once")
            fields[name] = values
        return fields
