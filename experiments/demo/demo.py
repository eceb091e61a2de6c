"""The main job in one call: train, ask what codes say and cause, and a report to look at."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd

from latentcode.config import RunConfig, to_dict
from latentcode.config.presets import preset
from latentcode.experiments.demo import shown
from latentcode.experiments.demo.asking import Asked, Sizes, ask
from latentcode.experiments.evidence.html import write_html
from latentcode.experiments.evidence.pages import ROOT, render
from latentcode.figures.style import Figure
from latentcode.files.storage import check_writable, write_json
from latentcode.runs import Run
from latentcode.runs.named import load_run
from latentcode.training import train, train_side_by_side

KINDS: tuple[str, ...] = ("hyla", "softmax")
PUBLISHED: tuple[str, ...] = ("zoo:logic-hyla", "zoo:logic-softmax")
"""Models of the zoo at the published setting, which are asked the same."""
TEMPLATE = Path(__file__).with_name("report.md.jinja2")
SIZES: Mapping[str, Sizes] = {
    "small": Sizes(n_probe=2_000, n_projected=1_000, n_written=800),
    "smoke": Sizes(n_probe=200, n_projected=100, n_written=100)}
"""How much is asked, by preset."""


def demo(out: str | Path, *, preset_name: str = "small", device: str = "cpu") -> Path:
    """Train HYLA and softmax on fuzzy logic, ask what their codes say and cause; return a report.

    Models of the zoo are asked the same, so that the page shows what minutes give and what the
    published setting gives. Runs are kept in `out` and resumed when the demo is called again, so
    it can be interrupted. A SRAVEN model is trained for seconds to show that path too; it learns
    nothing in that time.

    Raises `RunError` when `out` holds runs of another configuration.
    """
    out = Path(out)
    check_writable(out / "report.html")
    began = time.monotonic()
    configs = {out / f"logic-{kind}": preset(preset_name, "logic", kind) for kind in KINDS}
    configs[out / "sraven-smoke"] = preset("smoke", "sraven", "hyla")
    trained = _trained(configs, device)
    runs = {kind: trained[out / f"logic-{kind}"] for kind in KINDS}
    sraven = trained[out / "sraven-smoke"]
    sizes = SIZES[preset_name]
    asked = [*(ask(load_run(name), "of the zoo", sizes, device) for name in PUBLISHED),
             *(ask(run, "trained here", sizes, device) for run in runs.values())]
    print("projecting the held-out codes", flush=True)
    figures, trustworthiness = shown.projections(asked, sizes.n_projected)
    figures |= {"curves": shown.curves(runs), "decoding": shown.decoding(asked), **{
        f"interventions-{one.folder}": one.written.figure() for one in asked
        if one.written is not None and one.answers_enough}}
    tables = shown.tables(asked, sraven)
    _keep(out, figures, runs, asked, tables)
    page = render(
        TEMPLATE, ROOT, tables=tables, n_projected=sizes.n_projected,
        trustworthiness=trustworthiness, sraven_steps=sraven.config.training.steps,
        **shown.values(asked))
    minutes = (time.monotonic() - began) / 60
    path = write_html(
        out / "report.html", page, pictures=out,
        markup={"logic": shown.problem(asked[0].run), "sraven": shown.problem(sraven)},
        provenance={
            "Command": f"latentcode demo --out {out} --preset {preset_name} --device {device}",
            "Minutes in this call": f"{minutes:.1f}",
            **{f"Configuration of {one.name}": to_dict(one.run.config) for one in asked},
            f"Configuration of {sraven.name}": to_dict(sraven.config)})
    print(f"{minutes:.1f} minutes; wrote the report to")
    return path


def _keep(
    out: Path, figures: Mapping[str, Figure], trained_here: Mapping[str, Run],
    asked: Sequence[Asked], tables: Mapping[str, pd.DataFrame],
) -> None:
    """Write results, the figures, and what they show as `results.json`."""
    for name, figure in figures.items():
        figure.savefig(out / f"{name}.png", dpi=150)
    for one in asked:
        for reading, result in one.decoded.items():
            result.save(out / f"probe-{one.folder}-{reading}", overwrite=True, figures=False)
        if one.written is not None:
            one.written.save(out / f"interventions-{one.folder}", overwrite=True, figures=False)
    write_json(out / "results.json", {
        "found": tables["found"].to_dict("records"),
        "metrics": {kind: run.metrics().to_dict("records") for kind, run in trained_here.items()},
        "decoding": {one.name: {reading: result.table.to_dict("records")
                                for reading, result in one.decoded.items()} for one in asked},
        "interventions": {one.name: one.rates().to_dict("records") for one in asked
                          if one.answers_enough},
        "provenance": {one.name: dict(one.run.provenance) for one in asked}})


def _trained(configs: Mapping[Path, RunConfig], device: str) -> dict[Path, Run]:
    """Train the configurations, or resume them; on the CPU side by side."""
    configs = {path: replace(config, training=replace(config.training, device=device))
               for path, config in configs.items()}
    for path, config in configs.items():
        print(f"training {path.name}: {config.training.steps:,} steps", flush=True)
    if device == "cpu":
        return train_side_by_side(configs)
    return {path: train(config, path, resume=(path / "config.yaml").exists())
            for path, config in configs.items()}
