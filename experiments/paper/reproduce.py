"""A figure or table of the paper: its runs found or trained, measured, judged, drawn and kept.

    OUT/PRESET/NAME/result.json   every number, run and verdict
    OUT/PRESET/NAME/*.csv, *.png, *.svg
    WORK/runs/                    what was trained for it
    WORK/measured/                what was measured of single runs, so that nothing is done twice
"""

from __future__ import annotations

import hashlib
import io
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.collections import PathCollection
from PIL import Image

from latentcode import __version__
from latentcode.config import RunConfig, to_dict
from latentcode.errors import (
    ConfigError,
    LatentCodeError,
    ProbeError,
    check,
    check_choice,
)
from latentcode.experiments.paper.claims import RESULTS, Claim, PermutationOfChanges
from latentcode.experiments.paper.reproduction import (
    Findings,
    OutOfTime,
    Reproduction,
    Work,
    needs_runs,
    reproduction,
)
from latentcode.experiments.paper.results import FORMAT, N_SPLITS, RESULT, read_result
from latentcode.experiments.paper.runs import (
    KnownRuns,
    default_folders,
    find_runs,
    folder_name,
    missing,
    missing_of_same_seeds,
    on_device,
    split_seed,
    trained_on,
    training_flops,
)
from latentcode.experiments.paper.verdicts import Judgement, evidence, judge
from latentcode.experiments.timing import minutes
from latentcode.figures.style import Figure, style
from latentcode.files.formats import header
from latentcode.files.provenance import environment
from latentcode.files.storage import (
    check_free,
    check_writable,
    replace_folder,
    write_json,
    write_text,
)
from latentcode.models.config import ATTENTION_KINDS, kind_of
from latentcode.runs import Run
from latentcode.sweep.run import train_members
from latentcode.sweep.texts import make_texts

UNUSED = "what the notes say, as all its runs are there and none can be judged by"
"""What a claim needs whose runs gave no value."""
DPI = 110
N_COLOURS = 256
DIGITS = 6
Say = Callable[[str], None]


@dataclass(frozen=True)
class Request:
    """What to reproduce, and where.

    preset    `paper`, `small` or `smoke`
    out       folder of the results
    work      folder of the runs that are trained for them and of what was measured
    runs      further folders of runs, such as that of a sweep; never written to
    train     train the runs that are missing; otherwise work with those that are there
    search    train and choose among all points of the grid of Table A3, not the preset's alone
    kinds     train runs of these kinds of attention alone; none: of all
    missing   only results that are not there yet or lack runs, the cheapest first
    deadline  time (as `time.time`) by which training has stopped, and after which no measurement
              is begun
    """

    preset: str = "small"
    out: Path = Path("results/paper")
    work: Path = Path("runs/paper")
    runs: tuple[Path, ...] = ()
    device: str = "cpu"
    train: bool = True
    search: bool = False
    missing: bool = False
    deadline: float | None = None
    kinds: tuple[str, ...] = ()

    def folder(self, name: str) -> Path:
        """Return where a result is kept."""
        return self.out / self.preset / name

    def known(self) -> KnownRuns:
        """Return every run that is there: the library's, those of `runs`, and our own."""
        own = self.work / "runs"
        return find_runs([*default_folders(), *self.runs, *([own] if own.is_dir() else [])])

    def late(self) -> bool:
        """Whether the time is up."""
        return self.deadline is not None and time.time() >= self.deadline


def reproduce(names: Sequence[str], request: Request, say: Say = print) -> list[str]:
    """Reproduce figures and tables one after the other; return those that lack nothing.

    Where runs are missing and may be trained, they are. However this is interrupted, the next call
    goes on, and what is there already is not computed again.

    Raises `UnknownNameError` for a name or kind, `RunError` for a folder that cannot be written
    to. What cannot be measured holds up nothing else, and is raised at the end.
    """
    for name in names:
        check_choice("result", name, RESULTS)
    check_choice("preset", request.preset, tuple(N_SPLITS))
    check(not request.search or request.preset == "paper", f"search is asked for at preset "
          f"{request.preset}; expected paper, whose grid Table A3 has")
    for kind in request.kinds:
        ATTENTION_KINDS.find(kind)
    for name in names:  # before long work, not after it
        check_free(request.folder(name), overwrite=True, marker=RESULT)
    check_writable(request.work / "runs")
    wanted = {name: reproduction(name) for name in names}
    order = _by_need(wanted, request) if request.missing else list(names)
    done = [name for name in names if name not in order]
    failed: dict[str, LatentCodeError] = {}
    for number, name in enumerate(order, 1):
        state = f"{number} of {len(order)}, {name}"
        if request.late():
            say(f"{state}: not begun, the budget is used up; the same command continues")
            continue
        try:
            if _reproduce(wanted[name], request, partial(_say, say, state)):
                done.append(name)
        except OutOfTime as error:
            say(f"{state}: {error}")
        except LatentCodeError as error:
            say(f"{state}: failed, {error}")
            failed[name] = error
    for failure in failed.values() if len(failed) == 1 else ():
        raise failure
    why = "; ".join(f"{name}: {error}" for name, error in failed.items())
    check(not failed, f"{len(failed)} of {len(names)} could not be reproduced: {why}", ProbeError)
    return done


def _say(say: Say, state: str, text: str) -> None:
    say(f"{state}: {text}")


def _by_need(wanted: Mapping[str, Reproduction], request: Request) -> list[str]:
    """Return results that are not there, or lack runs: first what takes the least training."""
    known, needs = request.known(), {}
    for name, result in wanted.items():
        lacking = _lacking(result, request, known)
        if lacking or not _is_there(result, request, known, lacking):
            needs[name] = sum(map(training_flops, lacking.values()))
    return sorted(needs, key=needs.__getitem__)


def _is_there(
    wanted: Reproduction, request: Request, known: KnownRuns, lacking: Mapping[str, RunConfig]
) -> bool:
    """Whether the result that is kept is of these runs, claims and version of the library."""
    folder = request.folder(wanted.name)
    return (folder / RESULT).exists() and read_result(folder)["digest"] == _digest(
        wanted, request, _used(wanted, request, known), lacking)


def _reproduce(wanted: Reproduction, request: Request, say: Say) -> bool:
    """Reproduce one result; return whether it lacks nothing."""
    known = request.known()
    lacking = _lacking(wanted, request, known)
    elsewhere = {name: state for name, config in lacking.items()
                 if (state := _under_way(known, request, config)) is not None}
    for state in list(dict.fromkeys(elsewhere.values()))[:3]:
        say(f"a run that it needs is under way {state}")
    own = {name: config for name, config in lacking.items() if name not in elsewhere
           and (not request.kinds or kind_of(config.model) in request.kinds)}
    if request.train and own:
        make_texts(own.values())
        updates = sum(config.training.steps for config in own.values())
        say(f"training {len(own)} run{'s' * (len(own) > 1)} of {updates:,} updates")
        failed = train_members(request.work / "runs", on_device(own, request.device),
                               deadline=request.deadline)
        for name, why in failed.items():
            say(f"{name} could not be trained: {why}")
        known = request.known()
        lacking = _lacking(wanted, request, known)
    used = _used(wanted, request, known)
    if _is_there(wanted, request, known, lacking):
        say("is there already" + (f", without {len(lacking)} runs" if lacking else ""))
        return not lacking
    if request.late():
        raise OutOfTime("the budget is used up; the same command continues")
    began = time.monotonic()
    work = Work(request.preset, known, request.work / "measured", request.device,
                request.deadline, wanted.claims if request.preset == "paper" else (), say)
    findings = wanted.measure(work)
    judged = [judged_claim(claim, findings.evidence, known) for claim in work.claims]
    result = {
        **header(FORMAT), "name": wanted.name, "title": wanted.title, "preset": request.preset,
        "digest": _digest(wanted, request, used, lacking), "summary": findings.summary,
        "notes": list(findings.notes),
        "claims": judged,
        "tables": {name: _records(table) for name, table in findings.tables.items()},
        "figures": list(findings.figures),
        "selection": known.selection(wanted.settings(request.preset)),
        "runs": [_run_row(run) for run in used],
        "missing": [{"run": name, "kind": kind_of(config.model),
                     "updates": config.training.steps,
                     # How far it is; whether somebody trains it now is soon no longer true.
                     "under_way": elsewhere.get(name, "").rpartition(", ")[0] or None}
                    for name, config in lacking.items()],
        "minutes": round((time.monotonic() - began) / 60, 2),
        "environment": environment(request.device)}
    _keep(request.folder(wanted.name), result, findings)
    say(findings.summary)
    return not lacking


def _lacking(wanted: Reproduction, request: Request, known: KnownRuns) -> dict[str, RunConfig]:
    return {**missing(wanted.settings(request.preset), known, N_SPLITS[request.preset],
                      search=request.search),
            **(_of_same_seeds(wanted.claims, known) if request.preset == "paper" else {})}


def _of_same_seeds(claims: Iterable[Claim], known: KnownRuns) -> dict[str, RunConfig]:
    """Return what claims about changes lack, as a change is taken between runs of the same seeds.

    Runs on three splits are not enough for these where the models' seeds differ.
    """
    return {name: config for claim in claims if isinstance(claim.rule, PermutationOfChanges)
            for name, config in missing_of_same_seeds(
                claim.setting, known, N_SPLITS["paper"]).items()}


def _under_way(known: KnownRuns, request: Request, config: RunConfig) -> str | None:
    """Say how far a run is that somebody else has begun; our own are resumed."""
    own = request.work / "runs" / folder_name(config)
    return None if own in known.begun else known.under_way(config)


def _used(wanted: Reproduction, request: Request, known: KnownRuns) -> list[Run]:
    """Return the finished runs that a result is about, each once."""
    runs = {run.id: run for setting in wanted.settings(request.preset)
            for of_member in known.of_setting(setting).values() for run in of_member}
    return list(runs.values())


def _digest(
    wanted: Reproduction, request: Request, used: Sequence[Run], lacking: Mapping[str, RunConfig]
) -> str:
    """Return what changes where the result has to be computed again."""
    text = json.dumps([
        request.preset, __version__, [repr(claim) for claim in wanted.claims],
        [(run.id, run.checkpoints()[-1]) for run in used], list(lacking)])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def judged_claim(
    claim: Claim, values: Mapping[str, pd.DataFrame], known: KnownRuns
) -> dict[str, Any]:
    """Return a claim with its verdict, as plain data; without values of its own it is not run."""
    judgement: Judgement = judge(claim, values.get(claim.id, evidence([])))
    lacking = {**missing([claim.setting], known, N_SPLITS["paper"]),
               **_of_same_seeds([claim], known)} if needs_runs(claim) else {}
    unused = judgement.verdict == "not run" and needs_runs(claim) and not lacking
    return {
        **{key: getattr(claim, key) for key in ("id", "source", "claim", "kind", "margin",
                                                "reading", "seen")},
        "published": None if claim.published is None else asdict(claim.published),
        "setting": asdict(claim.setting), "rule": asdict(claim.rule),
        "verdict": judgement.verdict, "why": judgement.why,
        "needs": UNUSED if unused else judgement.needs,
        "parts": [asdict(part) for part in judgement.parts]}


def _run_row(run: Run) -> dict[str, Any]:
    precision, device = (", then ".join(names) for names in trained_on(run))
    return {"run": run.name, "id": run.id, "kind": kind_of(run.config.model),
            "seed": run.config.training.seed, "split_seed": split_seed(run.config),
            "updates": run.checkpoints()[-1], "precision": precision,
            "device": device, "minutes": minutes(run.path),
            "config": to_dict(run.config)}


def _records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Return a table as JSON has it: rounded, and null where there is no number."""
    rounded = table.map(lambda value: float(f"{value:.{DIGITS}g}") if isinstance(value, float)
                        else value)
    records: list[dict[str, Any]] = json.loads(
        rounded.to_json(orient="records", double_precision=15))
    return records


def _keep(folder: Path, result: Mapping[str, Any], findings: Findings) -> None:
    """Write a result, all or nothing."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with replace_folder(folder, overwrite=True, marker=RESULT) as temporary:
        for name, table in {**findings.tables, **findings.raw}.items():
            write_text(temporary / f"{name}.csv", table.to_csv(index=False,
                                                               float_format=f"%.{DIGITS}g"))
        for name, figure in findings.figures.items():
            save_figure(figure, temporary / name)
        write_json(temporary / RESULT, result)


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure as PNG and SVG; clouds of points are pixels in both, or the SVG is large."""
    for axes in figure.axes:
        for collection in axes.collections:
            if isinstance(collection, PathCollection):
                collection.set_rasterized(True)
    with style():
        figure.savefig(pixels := io.BytesIO(), format="png", dpi=DPI)
        # Without a date the same figure gives the same bytes.
        figure.savefig(path.with_suffix(".svg"), dpi=DPI, metadata={"Date": None})
    # A palette is enough for drawings, and a third as large: the wheel carries these pictures.
    with Image.open(pixels) as image:
        few = image.convert("RGB").quantize(N_COLOURS, dither=Image.Dither.NONE)
        few.save(path.with_suffix(".png"), optimize=True)


def names_of(asked: Iterable[str]) -> list[str]:
    """Return the results that words stand for: names, or `all`.

    Raises `UnknownNameError` for what is neither, `ConfigError` for none.
    """
    asked = list(asked)
    check(bool(asked), f"no result is named; expected all, or some of: {', '.join(RESULTS)}",
          ConfigError)
    for name in asked:
        check_choice("result", name, ("all", *RESULTS))
    return list(RESULTS) if "all" in asked else list(dict.fromkeys(asked))


