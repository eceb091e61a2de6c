"""What all benchmarks share: options that mean the same everywhere, and what is written."""

# Annotations are types here, not text: other modules inherit fields, and do not import Path.
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch

from latentcode.devices import available_cores
from latentcode.errors import ArtifactError
from latentcode.experiments.benchmarks.harness import torch_threads
from latentcode.figures.style import Figure
from latentcode.files.provenance import environment, now
from latentcode.files.storage import replace_file, write_json, write_text

RESULTS = Path("experiments/results/benchmarks")
"""Where results go by default, below the current folder."""

TaskName = Literal["sraven", "logic"]
Kind = Literal["hyla", "softmax", "linear"]
Precision = Literal["float32", "tf32", "bf16_mlp", "bf16"]


class Report:
    """The frame of a result: the command, where it ran, how busy that machine was, and when."""

    def __init__(self, question: str, device: torch.device, settings: Mapping[str, Any]) -> None:
        self.question, self.device = question, device
        self.settings = dict(settings)
        self.started, self.load_before = now(), load_average()

    def finish(
        self, out: Path, cases: Sequence[Mapping[str, Any]], table: str, drawn: Figure,
        **further: Any,
    ) -> None:
        """Write `<question>.json`, `.md` and `.png` into a folder, and print the table.

        cases    plain data; each holds its own measurements
        further  what else was measured, by its name in the JSON

        `ArtifactError` where the folder cannot be made.
        """
        try:
            out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ArtifactError(f"cannot make folder {out}: {error}") from error
        result = {
            "question": self.question, "command": command_line(), "started": self.started,
            "finished": now(), "cores": available_cores(),
            "load_average": {"before": self.load_before, "after": load_average()},
            "settings": self.settings, "environment": environment(str(self.device)),
            "cases": [dict(case) for case in cases], **further}
        write_json(out / f"{self.question}.json", result)
        write_text(out / f"{self.question}.md", f"{header(result)}\n\n{table}\n")
        with replace_file(out / f"{self.question}.png") as temporary:
            drawn.savefig(temporary, format="png", dpi=200, metadata={"Software": None})
        print(f"{table}\n\nwrote {out}")


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
            yield Report(self.QUESTION, device, {**self.turns, **settings, "smoke": self.smoke})


def said(what: str, reached: float, target: float, unit: str, *, at_least: bool) -> str:
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
