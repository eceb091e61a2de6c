"""`latentcode demo | sweep`: whole experiments in one command."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from latentcode.config import load_config
from latentcode.config.presets import preset
from latentcode.errors import LatentCodeError

if TYPE_CHECKING:
    from latentcode.experiments.sweep import Grid


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
        from latentcode.experiments.demo.demo import demo

        print(demo(self.out, preset_name=self.preset, device=self.device))


@dataclass(frozen=True)
class Sweep:
    """Train a grid of models and write one table: kinds, settings, seeds.

    Interrupted, it goes on with `latentcode sweep --out OUT`.
    Example: latentcode sweep --out runs/sweep --preset small --task logic
    --axis kind=softmax,hyla --axis training.seed=0,1,2
    """

    out: Path
    """Folder of the runs and tables."""
    grid: str | None = None
    """YAML file with base and axes, or a grid of the library: sraven_known, paper_logic,
    paper_sraven, paper_logic_heldout, paper_logic_ablations, paper_sraven_ablations, small_logic,
    smoke_logic. --fix and --axis change its fields and add axes."""
    preset: Literal["paper", "small", "smoke"] | None = None
    """Base of the grid; default: small."""
    task: Literal["logic", "sraven"] | None = None
    """Task of the grid; default: logic."""
    kind: str | None = None
    """Attention kind of all members; default: hyla, or an axis."""
    config: Path | None = None
    """YAML file with a whole configuration as the base, in place of preset, task and kind."""
    fix: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """A field of all members, such as training.steps=500; may be given several times."""
    axis: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """A field and its values, such as training.seed=0,1,2; may be given several times, and takes
    the place of the axis of --grid that has the same name. Fields joined by + vary together:
    training.seed+task.split_seed=[0,0],[1,1]."""
    device: str | None = None
    """cpu or cuda, of all members; default: as the grid says."""
    executor: Literal["local", "ray"] = "local"
    """Processes of this machine, or a Ray cluster (needs latentcode[sweep])."""
    ray_address: str | None = None
    """Address of a running Ray cluster, or auto; default: start one."""
    processes: int | None = None
    """Jobs at once; default: one per core or GPU."""
    members_at_once: int | None = None
    """Members trained as one; default: on CUDA what fits into memory, on the CPU 1."""
    budget: str | None = None
    """Time after which everything has stopped at a checkpoint: 90s, 30m, 2h."""
    select_on: Literal["test", "ood"] = "test"
    """Split that chooses the best settings; ood is the paper's way."""

    def run(self) -> None:
        began = time.time()  # a budget begins before the imports, which take seconds
        from latentcode.experiments.sweep import existing, parse_budget, sweep

        budget = None if self.budget is None else parse_budget(self.budget)
        deadline = None if budget is None else began + budget
        grid = self._grid() or existing(self.out)
        if grid is None:
            raise LatentCodeError(f"{self.out} holds no sweep to go on with; expected --axis, or "
                                  "--grid with a YAML file or a name")
        if self.device is not None:
            base = replace(grid.base, training=replace(grid.base.training, device=self.device))
            grid = replace(grid, base=base)
        result = sweep(grid, self.out, executor=self.executor, processes=self.processes,
                       members_at_once=self.members_at_once, deadline=deadline,
                       ray_address=self.ray_address, select_on=self.select_on)
        print(result)
        print(f"wrote table {self.out / 'table.csv'}")
        for member, why in result.failed.items():
            print(f"error: member {member}: {why}", file=sys.stderr)
        if result.failed:
            raise SystemExit(1)

    def _grid(self) -> Grid | None:
        """Return the grid that the flags describe, or None where they describe none."""
        from latentcode.experiments.sweep import Grid, load_grid
        from latentcode.experiments.sweep.grid import KIND, check_field, with_fields

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
        from latentcode.experiments.sweep import parse_axis

        fields: dict[str, tuple[Any, ...]] = {}
        for text in texts:
            name, values = parse_axis(text, flag)
            if name in fields:
                raise LatentCodeError(f"{flag} {name} is given twice; expected every field once")
            fields[name] = values
        return fields


__all__ = ["Demo", "Sweep"]
