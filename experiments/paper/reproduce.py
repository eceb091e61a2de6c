"""A figure or table of the paper: its runs found or trained, measured, judged, drawn and kept.

    OUT/PRESET/NAME/result.json   every number, run and verdict
    OUT/PRESET/NAME/*.csv, *.png, *.svg
    WORK/runs/                    what was trained for it
    WORK/measured/                what was measured of single runs, so that nothing is done twice
"""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.collections import PathCollection
from PIL import Image

from latentcode import __version__
from latentcode.config import to_dict
from latentcode.errors import ConfigError, LatentCodeError, ProbeError, check, check_choice
from latentcode.experiments.paper.claims import RESULTS, Claim, PermutationOfChanges, Setting
from latentcode.experiments.paper.report import FORMAT, N_SPLITS, RESULT, read_result
from latentcode.experiments.paper.reproduction import Reproduction, Work, needs_runs
from latentcode.experiments.paper.reproductions import (
    decoded,
    definitions,
    fig6,
    mean_codes,
    planes,
    scores,
)
from latentcode.experiments.paper.runs import (
    KnownRuns,
    default_folders,
    find_runs,
    missing,
    split_seed,
    trained_on,
)
from latentcode.experiments.paper.verdicts import evidence, judge
from latentcode.experiments.timing import minutes
from latentcode.figures.style import Figure, style
from latentcode.files.provenance import environment, header
from latentcode.files.storage import (
    check_free,
    check_writable,
    replace_folder,
    write_json,
    write_text,
)
from latentcode.models.config import kind_of
from latentcode.sweep.run import train_members
from latentcode.sweep.texts import make_texts

REPRODUCTIONS: Mapping[str, Reproduction] = {
    result.name: result
    for module in (decoded, definitions, fig6, mean_codes, planes, scores)
    for result in module.REPRODUCTIONS}
UNUSED = "runs that it can be judged by: all are there, and none can (why: notes in result.json)"
"""What a claim needs whose runs gave no value."""
DPI = 110
DIGITS = 6


@dataclass(frozen=True)
class Request:
    """What to reproduce, and where.

    Attributes:
        preset: `paper`, `small` or `smoke`.
        out: Folder of the results.
        work: Folder of the runs that are trained for them and of what was measured.
        runs: Further folders of runs, such as that of a sweep; never written to.
        device: `cpu` or `cuda`.
        train: Train the runs that are missing; otherwise work with those that are there.
        missing: Leave alone what is there already, of the same runs.
    """

    preset: str = "small"
    out: Path = Path("results/paper")
    work: Path = Path("runs/paper")
    runs: tuple[Path, ...] = ()
    device: str = "cpu"
    train: bool = True
    missing: bool = False

    def known(self) -> KnownRuns:
        """Return every run that is there: the library's, those of `runs`, and our own."""
        trained = self.work / "runs"
        return find_runs([*default_folders(), *self.runs, *([trained] if trained.is_dir() else [])])


def reproduce(
    names: Sequence[str], request: Request, say: Callable[[str], None] = print
) -> list[str]:
    """Reproduce figures and tables one after the other; return those that lack nothing.

    Where runs are missing and may be trained, they are. However this is interrupted, the next call
    goes on: trainings are resumed, and what was measured of a run is not measured again. What
    cannot be measured holds up nothing else, and is raised at the end.
    """
    for name in names:
        check_choice("result", name, RESULTS)
        # Before long work, not after it.
        check_free(request.out / request.preset / name, overwrite=True, marker=RESULT)
    check_writable(request.work / "runs")
    done: list[str] = []
    failed: dict[str, LatentCodeError] = {}
    for number, name in enumerate(names, 1):
        def say_of(text: str, state: str = f"{number} of {len(names)}, {name}") -> None:
            say(f"{state}: {text}")

        try:
            if _reproduce(REPRODUCTIONS[name], request, say_of):
                done.append(name)
        except LatentCodeError as error:
            say_of(f"failed, {error}")
            failed[name] = error
    if len(failed) == 1:
        raise next(iter(failed.values()))
    why = "; ".join(f"{name}: {error}" for name, error in failed.items())
    check(not failed, f"{len(failed)} of {len(names)} could not be reproduced: {why}", ProbeError)
    return done


def _reproduce(wanted: Reproduction, request: Request, say: Callable[[str], None]) -> bool:
    """Reproduce one result; return whether it lacks nothing."""
    claims = wanted.claims if request.preset == "paper" else ()
    known = request.known()
    settings = wanted.settings(request.preset)
    needed = (settings, N_SPLITS[request.preset], _compared(claims))
    lacking = missing(known, *needed)
    if request.train and lacking:
        make_texts(lacking.values())
        updates = sum(config.training.steps for config in lacking.values())
        say(f"training {len(lacking)} run{'s' * (len(lacking) > 1)} of {updates:,} updates")
        failed = train_members(request.work / "runs", {
            name: replace(config, training=replace(config.training, device=request.device))
            for name, config in lacking.items()})
        for name, why in failed.items():
            say(f"{name} could not be trained: {why}")
        known = request.known()
        lacking = missing(known, *needed)
    began = time.monotonic()
    # Another version of the library may measure something else.
    work = Work(request.preset, known, request.work / "measured" / __version__, request.device,
                claims, say)
    runs = [run for _, run in work.runs_of(settings)]
    folder = request.out / request.preset / wanted.name
    if request.missing and (folder / RESULT).exists():
        kept = read_result(folder)
        if ([row["id"] for row in kept["runs"]] == [run.id for run in runs]
                and [row["run"] for row in kept["missing"]] == list(lacking)):
            say("is there already" + (f", without {len(lacking)} runs" if lacking else ""))
            return not lacking
    findings = wanted.measure(work)
    rows = []
    for run in runs:
        precision, device = (", then ".join(names) for names in trained_on(run))
        rows.append({
            "run": run.name, "id": run.id, "kind": kind_of(run.config.model),
            "seed": run.config.training.seed, "split_seed": split_seed(run.config),
            "updates": run.checkpoints()[-1], "precision": precision, "device": device,
            "minutes": minutes(run.path), "config": to_dict(run.config)})
    result = {
        **header(FORMAT), "name": wanted.name, "title": wanted.title, "preset": request.preset,
        "summary": findings.summary, "notes": list(findings.notes),
        "claims": [judged_claim(claim, findings.evidence, known) for claim in work.claims],
        "tables": {name: json.loads(_rounded(table).to_json(orient="records", double_precision=15))
                   for name, table in findings.tables.items()},
        "figures": list(findings.figures), "runs": rows,
        "missing": [{"run": name, "kind": kind_of(config.model), "updates": config.training.steps}
                    for name, config in lacking.items()],
        "minutes": round((time.monotonic() - began) / 60, 2),
        "environment": environment(request.device)}
    folder.parent.mkdir(parents=True, exist_ok=True)
    with replace_folder(folder, overwrite=True, marker=RESULT) as temporary:
        for name, table in {**findings.tables, **findings.raw}.items():
            write_text(temporary / f"{name}.csv", table.to_csv(index=False,
                                                               float_format=f"%.{DIGITS}g"))
        for name, figure in findings.figures.items():
            save_figure(figure, temporary / name)
        write_json(temporary / RESULT, result)
    say(findings.summary)
    return not lacking


def _compared(claims: Iterable[Claim]) -> list[Setting]:
    """Return the settings of claims about changes, which are taken between runs of the same seeds.
    """
    return [claim.setting for claim in claims if isinstance(claim.rule, PermutationOfChanges)]


def judged_claim(
    claim: Claim, values: Mapping[str, pd.DataFrame], known: KnownRuns
) -> dict[str, Any]:
    """Return a claim with its verdict, as plain data; without values of its own it is not run."""
    judgement = judge(claim, values.get(claim.id, evidence([])))
    unused = (judgement.verdict == "not run" and needs_runs(claim) and not missing(
        known, [claim.setting], N_SPLITS["paper"], _compared([claim])))
    return {
        **{key: getattr(claim, key) for key in ("id", "source", "claim", "kind", "margin",
                                                "reading", "seen")},
        "published": None if claim.published is None else asdict(claim.published),
        "setting": asdict(claim.setting), "rule": asdict(claim.rule),
        "verdict": judgement.verdict, "why": judgement.why,
        "needs": UNUSED if unused else judgement.needs,
        "parts": [asdict(part) for part in judgement.parts]}


def _rounded(table: pd.DataFrame) -> pd.DataFrame:
    return table.map(lambda value: float(f"{value:.{DIGITS}g}") if isinstance(value, float)
                     else value)


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
    # A palette is enough for drawings, and a third as large.
    with Image.open(pixels) as image:
        few = image.convert("RGB").quantize(256, dither=Image.Dither.NONE)
        few.save(path.with_suffix(".png"), optimize=True)


def names_of(words: Iterable[str]) -> list[str]:
    """Return the results that words stand for: names, or `all`; `ConfigError` for none."""
    words = list(words)
    check(bool(words), f"no result is named; expected all, or some of: {', '.join(RESULTS)}",
          ConfigError)
    for name in words:
        check_choice("result", name, ("all", *RESULTS))
    return list(RESULTS) if "all" in words else list(dict.fromkeys(words))
