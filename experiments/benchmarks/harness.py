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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol, Self

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
Clock = Callable[[], float]

FEWEST_UNITS = 2
"""Fewest units of work in a turn, so that starting and stopping the clock is no large part."""


class Contestant(Protocol):
    """Something that does units of work (steps, batches, fits) and says how long they took."""

    @property
    def name(self) -> str:
        """How tables and figures call it."""

    @property
    def multiple(self) -> int:
        """Turns are multiples of this many units, where units do not all cost the same."""

    def seconds(self, n: int) -> float:
        """Do n units of work to the end and return the seconds that they took."""


@dataclass(frozen=True)
class Local:
    """A contestant of this process: `work` is called n times, and the device waited for."""

    name: str
    work: Callable[[], object]
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    multiple: int = 1
    clock: Clock = time.perf_counter

    def seconds(self, n: int) -> float:
        """Return the seconds of n calls, without a garbage collection in the middle."""
        wait_for(self.device)
        collecting = gc.isenabled()
        gc.disable()
        try:
            begin = self.clock()
            for _ in range(n):
                self.work()
            wait_for(self.device)
            return self.clock() - begin
        finally:
            if collecting:
                gc.enable()


def wait_for(device: torch.device) -> None:
    """Wait until the device has finished."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


@dataclass(frozen=True)
class Spread:
    """The median of repeated measurements and how they lie around it."""

    median: float
    least: float
    lower: float
    """First quartile."""
    upper: float
    """Third quartile."""
    most: float
    n: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Self:
        """Return the median, the quartiles (linear between neighbours) and the extremes."""
        least, lower, median, upper, most = np.quantile(
            np.asarray(values, np.float64), (0.0, 0.25, 0.5, 0.75, 1.0)).tolist()
        return cls(median, least, lower, upper, most, len(values))

    def scaled(self, factor: float) -> "Spread":
        """Return the spread in another unit; `factor` is above 0."""
        return Spread(self.median * factor, self.least * factor, self.lower * factor,
                      self.upper * factor, self.most * factor, self.n)

    def text(self, digits: int = 3) -> str:
        """Return "median (first quartile to third quartile)" to `digits` significant digits."""
        median, lower, upper = (significant(v, digits)
                                for v in (self.median, self.lower, self.upper))
        return f"{median} ({lower} to {upper})"


def spreads(plain: Mapping[str, Mapping[str, Any]]) -> dict[str, Spread]:
    """Return the spreads of a record, by contestant, from plain data."""
    return {name: Spread(**spread) for name, spread in plain.items()}


def significant(value: float, digits: int = 3) -> str:
    """Return a number to `digits` significant digits, never in powers of ten."""
    if value == 0.0 or not math.isfinite(value):
        return f"{value:g}"
    return f"{value:,.{max(0, digits - 1 - math.floor(math.log10(abs(value))))}f}"


@dataclass(frozen=True)
class Sitting:
    """What one sitting measured: seconds per unit of each contestant, round by round."""

    units: Mapping[str, int]
    """Contestant -> units of work in each of its turns."""
    seconds: Mapping[str, list[float]]
    """Contestant -> seconds per unit in each round, in order."""

    def spread(self, name: str) -> Spread:
        """Return the spread of a contestant's seconds per unit."""
        return Spread.of(self.seconds[name])

    def ratio(self, slow: str, fast: str) -> Spread:
        """Return how many times as long `slow` takes as `fast`, round against round."""
        pairs = zip(self.seconds[slow], self.seconds[fast], strict=True)
        return Spread.of([a / b for a, b in pairs])

    def record(self, baseline: str) -> dict[str, Any]:
        """Return everything as plain data; ratios say how many times faster than `baseline`."""
        return {
            "units_per_turn": dict(self.units),
            "milliseconds": {name: asdict(self.spread(name).scaled(1e3)) for name in self.seconds},
            "speedup": {name: asdict(self.ratio(baseline, name))
                        for name in self.seconds if name != baseline},
            "baseline": baseline,
            "raw_seconds_per_unit": dict(self.seconds)}


def sit(
    contestants: Sequence[Contestant],
    *,
    rounds: int,
    turn_seconds: float = 1.0,
    warmup: int = 3,
    units: int | None = None,
    progress: Progress | None = None,
) -> Sitting:
    """Time contestants in turn, `rounds` times, and return seconds per unit of work.

    rounds        turns of every contestant; they alternate, A B A B ...
    turn_seconds  about how long a turn lasts; it is never shorter than `FEWEST_UNITS` units
    warmup        units that each does before anything counts (compilation, caches, clocks)
    units         units per turn, where they are so long that no calibration is needed
    progress      called with (turns done, turns in all)

    Where contestants are several, every turn opens with units that do not count: they bring the
    contestant's memory back into the caches after the others' turns. `ConfigError` for fewer
    than two rounds, which have no spread, and for contestants of one name.
    """
    names = [c.name for c in contestants]
    check(len(names) > 0 and len(set(names)) == len(names),
          f"contestants are {names}; expected at least one, each with a name of its own")
    check(rounds >= 2, f"rounds is {rounds}; expected at least 2, to have a spread")
    check(turn_seconds >= 0 and warmup >= 0, f"turn_seconds is {turn_seconds} and warmup {warmup};"
          " expected at least 0")
    for contestant in contestants:
        if warmup > 0:
            contestant.seconds(warmup)
    turns = {c.name: _units(c, turn_seconds) if units is None else units for c in contestants}
    seconds: dict[str, list[float]] = {name: [] for name in names}
    done, total = 0, rounds * len(contestants)
    for _ in range(rounds):
        for contestant in contestants:
            if len(contestants) > 1:
                contestant.seconds(1)
            n = turns[contestant.name]
            seconds[contestant.name].append(contestant.seconds(n) / n)
            done += 1
            if progress is not None:
                progress(done, total)
    return Sitting(turns, seconds)


def _units(contestant: Contestant, turn_seconds: float) -> int:
    """Return how many units of a contestant make a turn."""
    one = contestant.seconds(1)
    wanted = max(FEWEST_UNITS, round(turn_seconds / one) if one > 0 else 0)
    return math.ceil(wanted / contestant.multiple) * contestant.multiple


@contextmanager
def torch_threads(n: int) -> Iterator[None]:
    """Give torch n threads on the CPU, and back what it had."""
    before = torch.get_num_threads()
    torch.set_num_threads(n)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def reset_peak_memory(device: torch.device) -> bool:
    """Reset the count of `peak_memory`, and return whether that was possible.

    On the CPU this is Linux's /proc/self/clear_refs; where it cannot be written, `peak_memory`
    is the peak since the process began.
    """
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
        return True
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return False
    return True


def peak_memory(device: torch.device) -> float:
    """Return the most memory held since the last reset, in MiB.

    On a GPU what torch has allocated; on the CPU what the process has resident, libraries
    included.
    """
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii")
    except OSError:
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 2**10


class Report:
    """The frame of a result: the command, where it ran, how busy that machine was, and when."""

    def __init__(
        self, question: str, device: torch.device, settings: Mapping[str, Any], out: Path
    ) -> None:
        check_writable(out / f"{question}.json")
        self.question, self.device, self.out = question, device, out
        self.settings = dict(settings)
        self.started, self.load_before = now(), load_average()

    def finish(self, cases: Sequence[Mapping[str, Any]], table: str) -> None:
        """Write `<question>.json` and `<question>.md` into the folder, and print the table.

        Args:
            cases: Plain data; each holds its own measurements.
            table: The same for people, in Markdown.
        """
        self.out.mkdir(parents=True, exist_ok=True)
        result = {
            "question": self.question, "command": command_line(), "started": self.started,
            "finished": now(), "cores": available_cores(),
            "load_average": {"before": self.load_before, "after": load_average()},
            "settings": self.settings, "environment": environment(str(self.device)),
            "cases": [dict(case) for case in cases]}
        write_json(self.out / f"{self.question}.json", result)
        write_text(self.out / f"{self.question}.md", f"{header(result)}\n\n{table}\n")
        print(f"{table}\n\nwrote {self.out}")


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """Options of every benchmark in which contestants take turns."""

    QUESTION: ClassVar[str]

    rounds: int = 7
    """Turns of every contestant."""
    turn_seconds: float = 1.5
    """Approximate length of a turn, in seconds."""
    threads: int | None = None
    """Threads on the CPU; default: all cores."""
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
    def size(self) -> str:
        """The preset whose models are timed."""
        return "smoke" if self.smoke else "paper"

    @property
    def cores(self) -> int:
        """Threads on the CPU."""
        return 1 if self.smoke else self.threads or available_cores()

    @property
    def turns(self) -> dict[str, Any]:
        """The rounds and the length of turns, as `sit` takes them."""
        return ({"rounds": 2, "turn_seconds": 0.0} if self.smoke
                else {"rounds": self.rounds, "turn_seconds": self.turn_seconds})

    @contextmanager
    def report(self, device: torch.device, **settings: Any) -> Iterator[Report]:
        """Give torch its threads, and begin a result."""
        with torch_threads(self.cores):
            yield Report(self.QUESTION, device, {**self.turns, **settings, "smoke": self.smoke},
                         self.folder)


def verdict(what: str, reached: float, target: float, unit: str, *, at_least: bool) -> str:
    """Return the line of a report that says whether a target is reached."""
    good = reached >= target if at_least else reached <= target
    return (f"{what}: {reached:.3g} {unit}, target {'at least' if at_least else 'at most'} "
            f"{target:g}: **{'reached' if good else 'MISSED'}**.")


def header(result: Mapping[str, Any]) -> str:
    """Return one sentence on where and when a result was measured."""
    place, load = result["environment"], result["load_average"]["before"]
    busy = "unknown" if load is None else f"{load[0]:.2f}"
    return (f"`{result['command']}`\n\n{result['finished']}; {place['device_name']} "
            f"({place['device']}), {result['cores']} cores, {place['threads']} torch threads, load "
            f"average {busy} at the start; torch {place['torch']}, latentcode "
            f"{place['git_commit'] or place['latentcode']}.")


def load_average() -> list[float] | None:
    """Return the load of the last 1, 5 and 15 minutes; None where the system does not say."""
    try:
        return list(os.getloadavg())
    except (AttributeError, OSError):
        return None


def command_line() -> str:
    """Return the command that this process was started with, without the paths of a machine."""
    module = getattr(sys.modules.get("__main__"), "__spec__", None)
    words = ["python", *(["-m", module.name] if module is not None
                         else [Path(sys.argv[0]).name])]
    for argument in sys.argv[1:]:
        path = Path(argument)
        words.append(path.name if path.is_absolute() else argument)
    return " ".join(words)
