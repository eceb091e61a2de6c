"""Figures and tables of the paper: runs found or trained, measured, judged, drawn, on one page.

    OUT/PRESET/NAME/result.json   every number, run and verdict
    OUT/PRESET/NAME/*.csv, *.png, *.svg
    WORK/runs/                    what was trained for it
    WORK/measured/                what was measured of single runs, so that nothing is done twice

The page has each claim with its verdict, our number and theirs: first the paper's claims about
trained models, then definitions and counts of its tasks; what has not been run is folded away.
Results without verdicts, of other presets, follow with their figures. It holds no times: a
reproduction that was interrupted and one that was not write the same.
"""

from __future__ import annotations

import io
import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.collections import PathCollection
from PIL import Image

from latentcode import __version__
from latentcode.config import to_dict
from latentcode.errors import (
    ArtifactError,
    ConfigError,
    LatentCodeError,
    ProbeError,
    check,
    check_choice,
)
from latentcode.experiments.paper.claims import (
    RESULTS,
    Claim,
    PermutationOfChanges,
    Setting,
    load_claims,
)
from latentcode.experiments.paper.reproduction import Reproduction, Work, needs_runs
from latentcode.experiments.paper.reproductions import decoded, definitions, planes, scores
from latentcode.experiments.paper.runs import (
    KnownRuns,
    default_folders,
    find_runs,
    minutes,
    missing,
    split_seed,
    trained_on,
)
from latentcode.experiments.paper.verdicts import can_agree, evidence, judge, verb
from latentcode.figures.style import Figure, style
from latentcode.figures.text import markdown_table
from latentcode.files.provenance import check_format, environment, header
from latentcode.files.storage import (
    check_free,
    check_writable,
    read_json,
    replace_folder,
    write_json,
    write_text,
)
from latentcode.models.config import kind_of
from latentcode.sweep.run import train_members
from latentcode.sweep.texts import make_texts

REPRODUCTIONS: Mapping[str, Reproduction] = {
    result.name: result
    for module in (decoded, definitions, planes, scores)
    for result in module.REPRODUCTIONS}
UNUSED = "runs that it can be judged by: all are there, and none can (why: notes in result.json)"
"""What a claim needs whose runs gave no value."""
FORMAT = "latentcode.reproduction"
RESULT = "result.json"
"""What a figure or table that was reproduced has in its folder, OUT/PRESET/NAME."""
KEYS = ("name", "title", "preset", "summary", "notes", "claims", "tables", "figures", "runs",
        "missing", "minutes", "environment")
"""What it holds, beside its format."""
N_SPLITS: Mapping[str, int] = {"paper": 3, "small": 1, "smoke": 1}
"""On how many splits a member should have a run; the paper has three seeds."""
README, VERDICT_TABLE = "README.md", "verdicts.csv"
DEFINITIONS: tuple[str, ...] = ("tabA2", "figA9", "tabA3", "figA1")
"""Results about the tasks, the settings and the equations, and not about what models learn."""
GROUPS: Mapping[str, str] = {
    "empirical": "Empirical claims of the paper", "task": "Definitions and counts of the task"}
PRINTED = "as printed"
"""The verdict of a claim that differs by how something is printed, like an erratum."""
VERDICTS: Mapping[str, str] = {
    "agrees": "agrees", "differs": "**differs**", PRINTED: "erratum-like",
    "undecided": "undecided", "not run": "not run at this size"}
"""Verdicts as they are printed, in the order of the counts."""
COLUMNS = ("id", "source", "kind", "verdict", "rule", "ours", "published", "why", "needs",
           "group", "observation", "questioned", "erratum_like")
"""Columns of the table of verdicts."""
HEAD = """# What the paper claims, and what we find

<!-- Written by `latentcode reproduce --report`. -->
"""
READING = """
{counts}

Rule and reason of each verdict: [verdicts.csv]({table}). The paper has the best of a grid of
settings, we have one; of {numbers} printed numbers {can_agree} can agree at all with three splits.
"""
PAIRS = """
Verdicts on Fig. 5 are at the pair of the paper's text, of runs that confuse sums with differences;
the pair of the released code tells [another story](../FINDINGS.md).
"""
DPI = 110
DIGITS = 6
Row = dict[str, Any]
Results = Mapping[str, Mapping[str, Any]]



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


# The page


def read_result(folder: Path) -> dict[str, Any]:
    """Return what `result.json` of a result holds; `ArtifactError` for a damaged one."""
    result = check_format(read_json(folder / RESULT), FORMAT, folder / RESULT)
    lacking = [key for key in KEYS if key not in result]
    check(not lacking, f"{folder / RESULT} lacks {', '.join(lacking)}; expected a result as "
          "`latentcode reproduce` writes it", ArtifactError)
    return result


def results_in(out: Path, preset: str) -> dict[str, dict[str, Any]]:
    """Return every result of a preset that is there, in the order of the paper."""
    return {name: read_result(out / preset / name) for name in RESULTS
            if (out / preset / name / RESULT).exists()}


def write_pages(results: Path, out: Path) -> list[Path]:
    """Write `README.md` and `verdicts.csv`, a row per claim that was judged; return their paths."""
    by_preset = {preset: results_in(results, preset) for preset in N_SPLITS}
    check(any(by_preset.values()), f"{results} holds no result; expected a folder that `latentcode "
          "reproduce` wrote to", ArtifactError)
    out.mkdir(parents=True, exist_ok=True)
    write_text(out / README, page(by_preset, results, out))
    table = pd.DataFrame(verdict_rows(by_preset["paper"]), columns=list(COLUMNS))
    write_text(out / VERDICT_TABLE, table.to_csv(index=False))
    return [out / README, out / VERDICT_TABLE]


def verdict_rows(results: Results) -> list[Row]:
    """Return a row per claim that was judged, in the order of the paper.

    Beside `COLUMNS`: `result`, the name of its figure or table, and what it is on a page: `claim`,
    `printed_verdict`, and `lacks_runs`, whether it is undecided because a part has no number.
    """
    known = {claim.id: claim for claim in load_claims()}
    rows = []
    for name, judged in ((name, judged) for name, result in results.items()
                         for judged in result["claims"]):
        claim, verdict, published = known[judged["id"]], judged["verdict"], judged["published"]
        error = (f" ± {published['error']:g}" if published and published["error"] is not None
                 else "")
        rows.append({
            **{key: judged[key] for key in ("id", "source", "kind", "verdict", "why", "needs")},
            "result": name, "group": "task" if name in DEFINITIONS else "empirical",
            "rule": rule_in_words(judged), "ours": ours(judged),
            "published": f"{published['value']:g}{error}" if published else "",
            "observation": claim.observation, "questioned": claim.questioned,
            "erratum_like": claim.printing,
            "lacks_runs": verdict == "undecided" and any(
                part["estimate"] is None for part in judged["parts"]),
            "claim": f"{judged['claim']} ({judged['source']}; `{judged['id']}`)".replace(
                "|", "\\|"),
            "printed_verdict": PRINTED if claim.printing and verdict == "differs" else verdict})
    return rows


def page(by_preset: Mapping[str, Results], results: Path, out: Path) -> str:
    """Return the page of every result as Markdown, for a file in `out`."""
    to = Path(os.path.relpath(results, out)).as_posix()
    rows = verdict_rows(by_preset.get("paper", {}))
    groups = {title: [row for row in rows if row["group"] == key] for key, title in GROUPS.items()}
    numbers = [claim for claim in load_claims() if claim.kind == "number"]
    parts = [HEAD, READING.format(
        counts="\n".join(_counts(title, group) for title, group in groups.items() if group),
        numbers=len(numbers), can_agree=sum(map(can_agree, numbers)), table=VERDICT_TABLE)
        if rows else "\nNo claim is judged here: verdicts need `--preset paper`.\n"]
    if (out / "pairs").exists():
        parts.append(PAIRS)
    for title, group in groups.items():
        run, unrun = ([row for row in group if (row["verdict"] == "not run") == missing]
                      for missing in (False, True))
        if run:
            table = markdown_table(["claim", "verdict", "ours", "theirs", "result"], [
                (row["claim"],
                 VERDICTS[row["printed_verdict"]]
                 + " (*threshold questioned*)" * bool(row["questioned"])
                 + " (runs missing)" * row["lacks_runs"],
                 row["ours"], row["published"],
                 f"[{row['result']}]({to}/paper/{row['result']})") for row in run])
            parts.append(f"\n## {title}\n\n{table}\n")
        if unrun:
            table = markdown_table(["claim", "needed"], [
                (row["claim"], row["needs"]) for row in unrun])
            parts.append(f"\n<details markdown>\n<summary>{len(unrun)} not run at this size"
                         f"</summary>\n\n{table}\n\n</details>\n")
    for preset, of_preset in by_preset.items():
        for name, result in of_preset.items():
            if result["claims"]:
                continue
            folder = f"{to}/{preset}/{name}"
            figures = "".join(f"\n![{result['title']}]({folder}/{figure}.png)\n"
                              for figure in result["figures"])
            parts.append(
                f"\n## {name}, {preset}\n\n`latentcode reproduce {name} --preset {preset}` "
                f"([all numbers]({folder}/{RESULT})): {result['summary']}\n{figures}")
    return "".join(parts)


def _counts(title: str, rows: Sequence[Row]) -> str:
    """Return the sentence that counts the verdicts of a group."""
    counts = counted(rows)
    unrun = counted(row for row in rows if row["lacks_runs"]).total()
    merged = (f", {counts.total()} where those on one observation with one verdict count once"
              * (counts.total() < len(rows)))
    verdicts = ", ".join(f"{counts[name]} {verb(printed.strip('*'), counts[name])}"
                         for name, printed in VERDICTS.items() if counts[name])
    return (f"{title}: {len(rows)} entries{merged}: {verdicts}"
            + f" ({unrun} of the undecided for want of runs)" * (unrun > 0) + ".")


def counted(rows: Iterable[Row]) -> Counter[str]:
    """Return verdict -> how many claims have it, those of one observation once."""
    return Counter(verdict for _, verdict in {
        (row["observation"] or row["id"], row["printed_verdict"]) for row in rows})


def ours(claim: Mapping[str, Any]) -> str:
    """Return what we measured, of several tests the least and the most; empty without a value.

    A number stands in the unit printed, a difference has its sign.
    """
    estimates = [part["estimate"] for part in claim["parts"] if part["estimate"] is not None]
    if not estimates:
        return ""
    match claim["rule"]["name"]:
        case "exact":
            held = sum(estimates)
            outcome = ("holds" if held == len(estimates) else "does not hold" if not held
                       else f"holds in {held:g} of {len(estimates)}")
            return outcome + " so far" * (claim["verdict"] == "undecided")
        case "welch":
            value, low, high = (f"{claim['parts'][0][key]:+.2g}"
                                for key in ("estimate", "low", "high"))
            return (f"{claim['published']['value'] + estimates[0]:.4g} "
                    f"({value} [{low}, {high}])")
        case name:
            digits = ".3g" if name == "bound" else "+.2g"
    return " to ".join(dict.fromkeys(
        f"{value:{digits}}" for value in (min(estimates), max(estimates))))


def rule_in_words(claim: Mapping[str, Any]) -> str:
    """Return the rule of a verdict in a few words."""
    rule = claim["rule"]
    match rule["name"]:
        case "welch":
            return f"{rule['quantity']}: difference within ±{claim['margin']:g}"
        case "permutation" | "permutation_of_changes":
            return f"{rule['quantity']}: permutation test over runs"
        case "bound":
            return f"{rule['quantity']}: {rule['side']} {rule['bound']:g}"
        case "excess":
            return (f"{rule['quantity']}: in every run above, and by {rule['least']:g} on average, "
                    f"{', '.join(rule['controls'])}")
    return str(rule["holds"])
