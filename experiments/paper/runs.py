"""Which runs count for a setting, and which ones are missing?

All finished runs count that are equal in what `claims.yaml` says: task (but the split's seed
and the revision of a text), model, updates, batch, learning rate, weight decay, warm-up and
clipping. Precision, device and what is evaluated or kept along the way do not tell runs apart; of
those with the same two seeds, which are not independent, one counts.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path

from latentcode.config import RunConfig, to_dict
from latentcode.errors import LatentCodeError, RunError, check
from latentcode.experiments.paper.claims import Setting
from latentcode.files.storage import is_locked, parse_json
from latentcode.models.config import kind_of
from latentcode.runs.run import CONFIG, LOCK, TIMING, ZOO, Run
from latentcode.sweep.grid import with_fields

TRAINING: tuple[str, ...] = (
    "steps", "batch_size", "learning_rate", "weight_decay", "warmup_steps", "grad_clip")
"""What of a training tells runs apart."""
PUBLISHED = Path(str(files("latentcode.experiments"))) / "results" / "runs"
"""Where a checkout's trained runs lie."""
DEEPEST = 3
"""How many folders below a given one runs are looked for."""


@cache
def signature(config: RunConfig) -> str:
    """Return 12 hex digits that are equal for runs that count as the same but for their seeds."""
    task = {**to_dict(config.task), "split_seed": None}
    task.pop("revision", None)
    training = to_dict(config.training)
    text = json.dumps([task, to_dict(config.model), {key: training[key] for key in TRAINING}],
                      sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def split_seed(config: RunConfig) -> int:
    """Return the seed of a run's split; where its task draws none, that of the run, so that runs
    of several seeds are several values."""
    return int(getattr(config.task, "split_seed", config.training.seed))


def seeded(config: RunConfig, seed: int, split: int | None = None) -> RunConfig:
    """Return a configuration with this seed for all but the split, whose own may differ."""
    fields = {"training.seed": seed}
    if hasattr(config.task, "split_seed"):
        fields["task.split_seed"] = seed if split is None else split
    return with_fields(config, fields)


def folder_name(config: RunConfig) -> str:
    """Return the name of the folder that a run alone is trained in: `logic-hyla-3f2a...-seed-0`."""
    kind = kind_of(config.model).replace("/", "-")  # of a model that is no row of Table A1
    split, seed = split_seed(config), config.training.seed
    return (f"{config.task.name}-{kind}-{signature(config)}-seed-{seed}"
            + f"-split-{split}" * (split != seed))


@dataclass(frozen=True)
class KnownRuns:
    """Every finished run that was found, by signature, each once, in the order of their seeds."""

    finished: Mapping[str, tuple[Run, ...]]

    def of(self, config: RunConfig) -> tuple[Run, ...]:
        """Return the finished runs of a configuration, whatever their seeds."""
        return self.finished.get(signature(config), ())

    def seeds(self, config: RunConfig) -> set[tuple[int, int]]:
        """Return the seeds of split and model that there are runs of."""
        return set(map(_seeds_of, self.of(config)))


def default_folders() -> list[Path]:
    """Return where runs lie that come with the library: the zoo, and a checkout's trained runs."""
    return [ZOO, *([PUBLISHED] if PUBLISHED.is_dir() else [])]


def find_runs(folders: Iterable[str | Path]) -> KnownRuns:
    """Return the finished runs in some folders, and in those below them.

    A run that lies in several places counts once, and so does a training that was repeated with
    the same seeds: one with its weights, in float32 where it was, and otherwise the one that is
    found first. Damaged ones raise what `Run.open` raises; `RunError` for a folder that is not
    there.
    """
    def merit(run: Run) -> tuple[bool, bool]:
        return run.has_weights, set(trained_on(run)[0]) == {"float32"}

    complete: dict[str, dict[tuple[int, int], Run]] = {}
    for folder in map(Path, folders):
        check(folder.is_dir(), f"{folder} is no folder; expected one of runs", RunError)
        patterns = ("/".join(["*"] * depth + [CONFIG]) for depth in range(DEEPEST + 1))
        for path in sorted(path.parent for pattern in patterns for path in folder.glob(pattern)):
            if any(part.startswith(".") for part in path.relative_to(folder).parts):
                continue
            try:
                run = Run.open(path)
            except LatentCodeError:
                if is_locked(path / LOCK):  # being made at this moment
                    continue
                raise
            if run.imported is None and run.is_complete:
                runs = complete.setdefault(signature(run.config), {})
                known = runs.setdefault(_seeds_of(run), run)
                runs[_seeds_of(run)] = max(known, run, key=merit)
    return KnownRuns({key: tuple(sorted(runs.values(), key=_seeds_of))
                      for key, runs in complete.items()})


def _seeds_of(run: Run) -> tuple[int, int]:
    return split_seed(run.config), run.config.training.seed


def trained_on(run: Run) -> tuple[list[str], list[str]]:
    """Return the precisions and the devices of a run; several where 1.0 moved it to another."""
    moves = [note for note in run.provenance["resumed"] if "from" in note]
    return ([*(note["from"]["precision"] for note in moves), run.config.training.precision],
            [run.provenance["device_name"], *(note["device_name"] for note in moves)])


def minutes(path: Path) -> float | None:
    """Return how long training took, all attempts together; None where no clock was kept."""
    # Every attempt begins with an event `start`; a last line that was torn does not count.
    try:
        lines = (path / TIMING).read_text(encoding="utf-8").split("\n")[:-1]
    except OSError:
        return None
    seconds: list[float] = []  # of each attempt
    for record in map(parse_json, lines):
        if record["event"] == "start" or not seconds:
            seconds.append(0.0)
        seconds[-1] = max(seconds[-1], record["seconds"])
    return round(sum(seconds) / 60, 1) if seconds else None


def missing(
    known: KnownRuns, settings: Iterable[Setting], n: int, compared: Iterable[Setting] = ()
) -> dict[str, RunConfig]:
    """Return the runs that settings lack: name of a folder -> configuration.

    Every member of `settings` should have runs on n splits; all members of one that is `compared`
    seed by seed, runs of the same n pairs of seeds, of split and model. On a split a run takes the
    model's seed that most members have there, so that they can be compared with the fewest
    trainings, or else the split's own.
    """
    def of_seeds(config: RunConfig, split: int, seeds: Sequence[set[tuple[int, int]]]) -> RunConfig:
        counts = Counter(seed for present in seeds for at, seed in present if at == split)
        common = min(counts, key=lambda seed: (-counts[seed], seed != split, seed), default=split)
        return seeded(config, common, split)

    def others(splits: set[int], n_there: int) -> list[int]:
        lacking = [split for split in range(n + len(splits)) if split not in splits]
        return lacking[:max(0, n - n_there)]

    configs = [config for setting in settings for config in setting.grid.members().values()]
    seeds = list(map(known.seeds, configs))
    wanted = []
    for config, present in zip(configs, seeds, strict=True):
        splits = {split for split, _ in present}
        wanted += [of_seeds(config, split, seeds) for split in others(splits, len(splits))]
    for setting in compared:
        configs = list(setting.grid.members().values())
        seeds = list(map(known.seeds, configs))
        common = set.intersection(*seeds)
        for config, present in zip(configs, seeds, strict=True):
            runs = [of_seeds(config, split, seeds)
                    for split in others({split for split, _ in common}, len(common))]
            wanted += [run for run in runs
                       if (split_seed(run), run.training.seed) not in present]
    return {folder_name(config): config for config in wanted}
