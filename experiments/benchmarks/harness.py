"""The harness of the benchmarks: contestants take turns in one sitting, A B A B ...

Two times that are measured one after the other on a shared machine differ by what else it did
meanwhile. Here a round gives every contestant one turn, a ratio is taken within each round, and
what is reported is the median over rounds with the spread beside it. A result is written as JSON
(raw timings, device, load of the machine, versions, settings) and as a table.
"""

# Annotations are types here, not text: tyro reads those of inherited fields in other modules.
import gc
import math
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch

from latentcode.devices import available_cores
from latentcode.errors import check
from latentcode.files.provenance import environment, now
from latentcode.files.storage import check_writable, write_json, write_text
from latentcode.progress import Progress

RESULTS = Path("experiments/results/benchmarks")
"""Folder of the results, below the current one."""

TaskName = Literal["sraven", "logic"]
Kind = Literal["hyla", "softmax", "linear"]
Precision = Literal["float32", "tf32", "bf16_mlp", "bf16"]
CPU = torch.device("cpu")

FEWEST_UNITS = 2
"""Fewest units of work in a turn, so that starting and stopping the clock is no large part."""


@dataclass(frozen=True)
class Contestant:
    """Work that is timed against other work."""

    name: str
    seconds: Callable[[int], float]
    """Does n units of work, such as steps or batches, and returns the seconds that they took."""
    multiple: int = 1
    """Turns are multiples of this many units, where units do not all cost the same."""


def timed(
    work: Callable[[], object], device: torch.device = CPU,
    clock: Callable[[], float] = time.perf_counter,
) -> Callable[[int], float]:
    """Return a function of n: the seconds of n calls of `work`, without collecting garbage."""

    def wait() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    def seconds(n: int) -> float:
        wait()
        collecting = gc.isenabled()
        gc.disable()
        try:
            begin = clock()
            for _ in range(n):
                work()
            wait()
            return clock() - begin
        finally:
            if collecting:
                gc.enable()

    return seconds


def spread(values: Sequence[float]) -> dict[str, float]:
    """Return the median of values, their quartiles (linear between neighbours) and extremes."""
    names = ("least", "lower", "median", "upper", "most")
    quantiles = np.quantile(np.asarray(values, np.float64), (0.0, 0.25, 0.5, 0.75, 1.0)).tolist()
    return {**dict(zip(names, quantiles, strict=True)), "n": len(values)}


def spread_text(spread: Mapping[str, float], scale: float = 1.0) -> str:
    """Return "median (first quartile to third)" of scaled values, three significant digits each.

    Large numbers have commas in place of powers of ten.
    """
    values = [scale * spread[name] for name in ("median", "lower", "upper")]
    median, lower, upper = (
        f"{value:,.{max(0, 2 - math.floor(math.log10(abs(value))))}f}" if value else "0"
        for value in values)
    return f"{median} ({lower} to {upper})"


def ratio(slow: Sequence[float], fast: Sequence[float]) -> dict[str, float]:
    """Return how many times as long one contestant takes as another, round against round."""
    return spread([a / b for a, b in zip(slow, fast, strict=True)])


def record(seconds: Mapping[str, Sequence[float]], units: Mapping[str, int]) -> dict[str, Any]:
    """Return the times of one sitting as plain data: seconds per unit of work in each round.

    The first contestant is the baseline: `speedup` says how many times faster the others are.
    """
    baseline, *others = seconds
    return {
        "units_per_turn": dict(units),
        "milliseconds": {name: spread([1e3 * value for value in values])
                         for name, values in seconds.items()},
        "speedup": {name: ratio(seconds[baseline], seconds[name]) for name in others},
        "baseline": baseline,
        "raw_seconds_per_unit": {name: list(values) for name, values in seconds.items()}}


def sit(
    contestants: Sequence[Contestant],
    *,
    rounds: int,
    turn_seconds: float = 1.0,
    warmup: int = 3,
    units: int | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Time contestants in turn, A B A B ...; return the `record` of their seconds per unit.

    Where contestants are several, every turn opens with a unit that does not count: it brings the
    contestant's memory back into the caches after the others' turns.

    Args:
        contestants: The first one is the baseline of the others.
        rounds: Turns of every contestant; at least two, or there is no spread.
        turn_seconds: About how long a turn lasts; it has `FEWEST_UNITS` units at least.
        warmup: Units that each does before anything counts (compilation, caches, clocks).
        units: Units per turn, where they are so long that no calibration is needed.
        progress: Called with (turns done, turns in all).
    """
    check(rounds >= 2, f"rounds is {rounds}; expected at least 2, to have a spread")
    for contestant in contestants if warmup else ():
        contestant.seconds(warmup)
    turns: dict[str, int] = {}
    for contestant in contestants:
        wanted = units or max(FEWEST_UNITS, round(turn_seconds / contestant.seconds(1)))
        turns[contestant.name] = math.ceil(wanted / contestant.multiple) * contestant.multiple
    seconds: dict[str, list[float]] = {name: [] for name in turns}
    for number, contestant in enumerate([*contestants] * rounds):
        if len(contestants) > 1:
            contestant.seconds(1)
        n = turns[contestant.name]
        seconds[contestant.name].append(contestant.seconds(n) / n)
        if progress is not None:
            progress(number + 1, rounds * len(contestants))
    return record(seconds, turns)


def reset_peak_memory(device: torch.device) -> None:
    """Reset the count of `peak_memory`, where the system allows it."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
        return
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def peak_memory(device: torch.device) -> float:
    """Return the most memory held since the last reset, in MiB; NaN where the system does not say.

    On a GPU what torch has allocated; on the CPU what the process has resident, libraries included.
    """
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    status = Path("/proc/self/status")
    lines = status.read_text(encoding="ascii").splitlines() if status.exists() else []
    return next((int(line.split()[1]) / 2**10 for line in lines if line.startswith("VmHWM")),
                math.nan)


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """Options of every benchmark, and the frame of its result."""

    QUESTION: ClassVar[str]
    """Name of the result."""

    rounds: int = 7
    """How often everything is measured, in turn."""
    out: Path | None = None
    """Folder of the result; default: one named after the question in
    experiments/results/benchmarks."""
    smoke: bool = False
    """Tiny models and two short rounds, to see that it works."""

    @property
    def folder(self) -> Path:
        """Folder of the result."""
        return self.out or RESULTS / self.QUESTION

    @property
    def device(self) -> str:
        """Where it is measured."""
        return "cpu"

    @property
    def cores(self) -> int:
        """Threads on the CPU."""
        return 1

    def measure(self) -> tuple[list[dict[str, Any]], str]:
        """Return the measurements as plain data, one of each case, and their Markdown table."""
        raise NotImplementedError

    def run(self) -> None:
        """Measure with `cores` threads; write `QUESTION.json` and `QUESTION.md`, print the table.

        Both say the command, where it ran and when, and how busy that machine was.
        """
        check_writable(self.folder)
        started, load, threads = now(), os.getloadavg(), torch.get_num_threads()
        torch.set_num_threads(self.cores)
        try:
            cases, table = self.measure()
            place = environment(self.device)
        finally:
            torch.set_num_threads(threads)
        settings = {name: value.name if isinstance(value, Path) else value
                    for name, value in asdict(self).items() if name != "out"}
        # Without the paths of a machine.
        module = getattr(sys.modules.get("__main__"), "__spec__", None)
        program = f"-m {module.name}" if module is not None else Path(sys.argv[0]).name
        words = [Path(word).name if Path(word).is_absolute() else word for word in sys.argv[1:]]
        command, finished = " ".join(["python", program, *words]), now()
        self.folder.mkdir(parents=True, exist_ok=True)
        write_json(self.folder / f"{self.QUESTION}.json", {
            "question": self.QUESTION, "command": command, "started": started,
            "finished": finished, "cores": available_cores(),
            "load_average": {"before": load, "after": os.getloadavg()},
            "settings": settings, "environment": place, "cases": cases})
        header = (f"`{command}`\n\n{finished}; {place['device_name']} ({place['device']}), "
                  f"{available_cores()} cores, {place['threads']} torch threads, load average "
                  f"{load[0]:.2f} at the start; torch {place['torch']}, latentcode "
                  f"{place['git_commit'] or place['latentcode']}.")
        write_text(self.folder / f"{self.QUESTION}.md", f"{header}\n\n{table}\n")
        print(f"{table}\n\nwrote {self.folder}")


@dataclass(frozen=True, kw_only=True)
class ModelBenchmark(Benchmark):
    """Options of benchmarks of models with random weights."""

    device: str = "cpu"
    """cpu, cuda or cuda:N."""
    threads: int | None = None
    """Threads on the CPU; default: all cores."""
    turn_seconds: float = 1.5
    """Approximate length of a turn, in seconds."""

    @property
    def cores(self) -> int:
        return 1 if self.smoke else self.threads or available_cores()

    @property
    def size(self) -> str:
        """The preset whose models are timed."""
        return "smoke" if self.smoke else "paper"

    @property
    def turns(self) -> dict[str, Any]:
        """The rounds and the length of turns, as `sit` takes them."""
        return ({"rounds": 2, "turn_seconds": 0.0} if self.smoke
                else {"rounds": self.rounds, "turn_seconds": self.turn_seconds})


def verdict(what: str, reached: float, target: float, unit: str, *, at_least: bool) -> str:
    """Return the line of a report that says whether a target is reached."""
    good = reached >= target if at_least else reached <= target
    return (f"{what}: {reached:.3g} {unit}, target {'at least' if at_least else 'at most'} "
            f"{target:g}: **{'reached' if good else 'MISSED'}**.")
