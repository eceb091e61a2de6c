"""The main job in one call: train, extract, probe, project, and a report to look at."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd

from latentcode.codes import LatentCodes
from latentcode.config import RunConfig, TaskConfig, to_dict
from latentcode.config.presets import preset
from latentcode.devices import available_cores
from latentcode.experiments.demo.report import (
    Block,
    Figure,
    Html,
    Section,
    Table,
    Text,
    write_report,
)
from latentcode.experiments.studies.curves import learning_curves
from latentcode.files.storage import check_writable, write_json
from latentcode.probes.common.extraction import extract_with_untrained
from latentcode.probes.decoding.of_codes import decode_codes
from latentcode.probes.decoding.result import DecodingResult
from latentcode.probes.projection.figure import ScatterCell, scatter_figure
from latentcode.probes.projection.methods import fit_projection
from latentcode.progress import bar
from latentcode.runs import Run
from latentcode.seeds import make_generator
from latentcode.tasks import make_task
from latentcode.training import train, train_side_by_side

KINDS: tuple[str, ...] = ("hyla", "softmax")
N_PROBE = 2_000
"""Instances that probes are fitted on, and that they are scored on."""
N_PROJECTED = 1_000
"""Points of a projection."""


def demo(out: str | Path, *, preset_name: str = "small", device: str = "cpu") -> Path:
    """Train HYLA and softmax on fuzzy logic, decode their codes; return the path of a report.

    Runs are kept in `out` and resumed when the demo is called again, so it can be interrupted.
    Codes are read with one shared context and varying query (paper, 3.2). A SRAVEN model is trained
    for seconds to show that path too; it learns nothing in that time.

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
    own = make_task(runs["hyla"].config.task)
    heldout, results = {}, {}
    for kind, run in runs.items():
        print(f"decoding the codes of {kind}", flush=True)
        heldout[kind], results[kind] = _decoded(run, own.probe_config, own.probe_labels, device)
        results[kind].save(out / f"probe-{kind}", overwrite=True)
    print("projecting the held-out codes", flush=True)
    sections = [
        _idea(), _what_is_learned(runs, own.probe_config), _decoding(results),
        _projections(heldout), _sraven(sraven)]
    minutes = (time.monotonic() - began) / 60
    _keep(out, sections, runs, results)
    path = write_report(
        out / "report.html", "What do latent codes say?", sections,
        lead="Two small transformers learn fuzzy-logic functions from examples in context. Their "
        "attention scores over the heads, the latent codes, are read out on functions that were "
        "never trained on.",
        provenance={
            "Command": f"latentcode demo --out {out} --preset {preset_name} --device {device}",
            "Minutes in this call": f"{minutes:.1f}",
            **{f"Configuration of {run.name}": to_dict(run.config)
               for run in (*runs.values(), sraven)}})
    print(f"{minutes:.1f} minutes; wrote the report to")
    return path


def _keep(
    out: Path, sections: Sequence[Section], runs: Mapping[str, Run],
    results: Mapping[str, DecodingResult],
) -> None:
    """Write the report's figures as PNG, and what they show as `results.json`, beside it."""
    figures = [block.figure for section in sections for block in section.blocks
               if isinstance(block, Figure)]
    names = ("curves", *(f"decoding-{kind}" for kind in results), "tsne-target", "tsne-term_1")
    for name, figure in zip(names, figures, strict=True):
        figure.savefig(out / f"{name}.png", dpi=150)
    write_json(out / "results.json", {
        "metrics": {kind: run.metrics().to_dict("records") for kind, run in runs.items()},
        "decoding": {kind: result.table.to_dict("records") for kind, result in results.items()},
        "provenance": {kind: dict(run.provenance) for kind, run in runs.items()}})


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


def _decoded(
    run: Run, task: TaskConfig, labels: tuple[str, ...], device: str
) -> tuple[LatentCodes, DecodingResult]:
    """Return the held-out codes of a run, and what its codes and the controls say."""
    train, heldout = (extract_with_untrained(run, split, n=N_PROBE, task=task, device=device)
                      for split in ("train", "ood"))
    result = decode_codes(train[0], heldout[0], labels, untrained=(train[1], heldout[1]),
                          n_jobs=available_cores(), progress=bar("fitting probes"))
    return heldout[0], result


def _idea() -> Section:
    return Section("The idea", [
        Text("An attention layer adds up, for a query q, what its heads make of every key k. "
             "Ordered by pairs instead of heads it is a hypernetwork: the scores over the heads, "
             "a[:, q, k], are a latent code that generates a value network for that pair."),
        Text("MHA_q(X) = sum_k W_qk x_k,   W_qk = sum_h a_hqk W_out^h W_value^h", True),
        Text("HYLA puts a nonlinearity into that value network and normalises the code over the "
             "heads. If codes configure operations, then the operation should be readable "
             "from the code, also for functions that are new combinations of known terms.")])


def _what_is_learned(runs: dict[str, Run], shown: TaskConfig) -> Section:
    task = make_task(shown)
    batch = task.sample("ood", 1, make_generator(0, "demo instance"))
    rows = []
    for kind, run in runs.items():
        newest = run.newest_metrics()
        latest = newest[newest["metric"] == task.headline]
        rows.append({"attention": kind, **{
            r.split: f"{r.mean:.3f} +- {r.se:.3f}" for r in latest.itertuples()}})
    config = runs["hyla"].config.task
    return Section("What the models learn", [
        Html(task.render(batch, 0, "html"), "One held-out problem: the model sees the examples and "
             "the query's inputs, and predicts its value."),
        Figure(learning_curves(runs, task.headline, task.splits, low=-0.5),
               "R2 over training, with bands of two standard errors. test: fresh instances of "
               "training functions; ood: held-out combinations of known terms; unknown: terms "
               "never trained on. R2 is averaged over instances, as in the paper; functions "
               "that vary little among their examples pull it far down."),
        Table(pd.DataFrame(rows), "R2 at the end, with standard errors. These are small models; "
              "they show how the parts work together and say nothing about which attention is "
              f"better. {getattr(config, 'ood_fraction', 0):.0%} of the combinations are held "
              "out.")])


def _decoding(results: dict[str, DecodingResult]) -> Section:
    blocks: list[Block] = [Text(
        "Logistic probes are fitted on codes of the query attending to itself, on training "
        "functions, and scored on held-out ones. Beside them stand the same probes on the codes "
        "of the untrained model, with shuffled labels, and on the residual stream at the query, "
        "which is what the layer starts from: what a code says matters as far as it exceeds "
        "these. Intervals are 95 %, over held-out combinations. Layer 0 cannot know the function: "
        "the query has seen no example yet. Models of this size, trained for minutes, need not "
        "have codes that tell the terms; the published setting trains 25 times longer.")]
    for kind, result in results.items():
        blocks += [Figure(result.figure(), f"{kind}: score per layer."),
                   Table(result.summary(), f"{kind}: scores with intervals.")]
        blocks += [Text(note) for note in result.caveats]
    return Section("What the codes say", blocks)


def _projections(heldout: dict[str, LatentCodes]) -> Section:
    cells: dict[str, list[ScatterCell]] = {"target": [], "term_1": []}
    qualities = []
    for kind, codes in heldout.items():
        pair = codes.pairs[0].name
        for layer in codes.layers:
            points = codes.select(layer=layer, pair=pair)[:N_PROJECTED]
            projection = fit_projection(
                points, progress=bar(f"t-SNE {kind} layer {layer}")).projection
            qualities.append(f"{kind} layer {layer}: "
                             f"{projection.quality['trustworthiness']:.3f}")
            for label, drawn in cells.items():
                drawn.append(ScatterCell(kind, f"layer {layer}", projection.coordinates,
                                         codes.label(label, pair)[:N_PROJECTED]))
    return Section("How the codes lie", [
        Figure(scatter_figure(cells["target"]), "t-SNE of held-out codes, coloured by the value "
               "of the function at the query."),
        Figure(scatter_figure(cells["term_1"]), "The same points, coloured by the first term of "
               "the function."),
        Text(f"t-SNE of the first {N_PROJECTED:,} held-out codes, perplexity 30, seed 0. "
             f"Trustworthiness: {'; '.join(qualities)}.")])


def _sraven(run: Run) -> Section:
    task = make_task(run.config.task)
    batch = task.sample("ood", 1, make_generator(0, "demo instance"))
    return Section("SRAVEN", [
        Html(task.render(batch, 0, "html"), "A small symbolic Raven matrix from a held-out "
             "combination of rules."),
        Table(run.latest(), f"A model trained for {run.config.training.steps} steps, which only "
              "shows that the path works: nothing is learned in that time.", index=True)])
