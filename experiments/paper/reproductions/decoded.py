"""Fig. 2B and 5F: what probes read from codes of every layer, the terms of functions or the rule.

Claims are judged by the contrasts of `decode`, on two splits at once. Fig. 2B, like 2D and A2, is
shown of two settings and in two readings of which inputs are meant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.lines import Line2D

from latentcode.experiments.paper.claims import Claim, Excess, Setting
from latentcode.experiments.paper.reproduction import (
    KIND_TITLES,
    KINDS,
    ONE_SETTING,
    Findings,
    Reproduction,
    Work,
    about,
    by_preset,
    caveat,
    controls_of,
    joined,
    nothing,
    per_kind,
    titled,
    value_evidence,
)
from latentcode.experiments.paper.verdicts import evidence
from latentcode.figures.style import FEATURE_STYLES, GREY, Figure
from latentcode.probes.common.figures import features_in, layers_in, name_panels, panels, reach
from latentcode.probes.common.harness import read
from latentcode.probes.common.results import where
from latentcode.probes.common.statistics import varies
from latentcode.probes.decoding import decode_readings
from latentcode.runs import Run
from latentcode.subjects import subject
from latentcode.subjects.base import CodesSubject
from latentcode.tasks import make_task

PUBLISHED = Setting("paper", "logic", (KINDS,))
OF_CODE = Setting("paper", "logic", (KINDS, "task.n_examples=96", "task.ood_fraction=0.5"))
"""In which the authors' code keeps codes (its sweeps/logic_latent.yaml)."""
SMOKE = Setting("smoke", "logic", (KINDS,))
SHOWS: Mapping[str, tuple[Setting, ...]] = {
    "paper": (PUBLISHED, OF_CODE), "small": (PUBLISHED,), "smoke": (SMOKE,)}
TITLES: Mapping[Setting, str] = {
    PUBLISHED: "sequence 32, 70 % held out", OF_CODE: "sequence 96, 50 % held out",
    SMOKE: "smoke"}
SUFFIXES: Mapping[Setting, str] = {OF_CODE: "_codes"}
"""Setting -> how its figures and tables are told from those of Table A1."""
READINGS: Mapping[str, str] = {
    "fixed_context": "one context, the query varies",
    "fixed_query": "one query, the context varies"}
"""What all instances share: as section 3.2 of the paper says, and as the authors' code stores the
codes of held-out functions (callbacks.py, lines 111 to 114)."""
NOTE = ("Two readings: with one context the query varies, which is the text of section 3.2; with "
        "one query the context varies, which is what the released code stores of held-out "
        "functions (callbacks.py, lines 111 to 114; it has no such store with one context).")
OF_RULES = by_preset("sraven", small=("training.steps=9000",))
N = {"paper": 4_096, "small": 2_048, "smoke": 200}
SPLITS = ("test", "ood")
"""Where probes are scored: fresh instances of the functions or rules of training, then held-out
combinations. Layers are chosen on the first."""
ALL = "(all)"
"""What stands for a class where a score is of all of them."""
COLUMNS = ["layer", "features", "metric", "class", "against", "value", "low", "high", "chance"]
CONTROLS: Mapping[str, str] = {
    "shuffled labels": "shuffled", "the code of the untrained model": "untrained"}
"""What the claims call a control -> features."""
Probed = tuple[str, Run, pd.DataFrame]
"""Member, run, and what `probe_scores` says of it."""


def terms(work: Work) -> Findings:
    """Return macro F1 over terms, of the code and of its controls, in both readings."""
    tables, figures, sentences, chosen = {}, {}, [], []
    judged: dict[str, pd.DataFrame] = {}
    for setting, runs in runs_by_setting(work):
        probed = {inputs: decoded(work, runs, label="terms", inputs=inputs) for inputs in READINGS}
        scores = pd.concat([joined(of_inputs).assign(inputs=inputs)
                            for inputs, of_inputs in probed.items()])
        suffix = SUFFIXES.get(setting, "")
        tables[f"f1{suffix}"] = scores
        figures[f"fig2b{suffix}"] = scores_figure(
            scores, "F1 on held-out functions", rows=READINGS,
            title=TITLES[setting] if suffix else "")
        place = f"At {TITLES[setting]}, " if suffix else ""
        for inputs, shared in READINGS.items():
            best = with_controls(in_layer(probed[inputs], best_layer))
            sentences.append(f"{place}{shared}: macro F1 over terms on held-out functions, in the "
                             f"layer that is best on new instances of training functions: {best}.")
            # In the layer that is best on the held-out functions themselves.
            other = in_layer(probed[inputs], partial(best_layer, split="ood"))
            chosen.append(f"{place}{shared}: {per_kind(where(other, features='code'))}")
        judged |= {claim.id: above_controls(claim, probed[reading(claim)], best_layer)
                   for claim in work.claims if claim.setting == setting}
    if not tables:
        return nothing("fuzzy logic")
    return Findings(
        summary=" ".join(f"{text[0].upper()}{text[1:]}" for text in sentences),
        tables=tables, figures=figures, evidence=judged,
        notes=(ONE_SETTING, NOTE,
               "Layers are chosen on `test`; the layer that is best on `ood` would give "
               + "; ".join(chosen) + ".",
               "There is no point where all codes are the same: with one query those of layer 0 "
               "are, but in softmax attention.",
               "In a group of terms the best constant answer is to give every one."))


def rules(work: Work) -> Findings:
    """Return the balanced accuracy of the rule, of the code and of its controls, per layer."""
    probed = decoded(work, work.runs_of(OF_RULES[work.preset]), label="rule")
    if not probed:
        return nothing("SRAVEN")
    last, runs = in_layer(probed, last_layer), [run for _, run, _ in probed]
    judged: dict[str, pd.DataFrame] = {}
    for claim in work.claims:
        if claim.id == "fig5f-strongly-predictive":
            judged[claim.id] = value_evidence(where(last, features="code"))
        elif claim.id == "fig5f-later-layers-more":
            judged[claim.id] = evidence(
                (about(member, run)
                 | against(scores, last_layer(scores), f"layer {first_varying(scores)}")
                 for member, run, scores in probed if first_varying(scores) < last_layer(scores)),
                control=controls_of(claim)[0])
        else:
            judged[claim.id] = above_controls(claim, probed, last_layer)
    return Findings(
        summary=f"Balanced accuracy of the rule on held-out combinations, from the code of the "
                f"last layer: {with_controls(last)}.",
        tables={"balanced_accuracy": joined(probed)},
        figures={"fig5f": scores_figure(joined(probed), "balanced accuracy of the rule",
                                        title=titled(runs))},
        evidence=judged, notes=(ONE_SETTING, *caveat(runs)))


def decoded(work: Work, runs: Iterable[tuple[str, Run]], **options: str) -> list[Probed]:
    """Return the `probe_scores` of some runs."""
    n = N[work.preset]
    return [(member, run, work.table(run, probe_scores, **options, n_train=n, n=n))
            for member, run in runs]


def reading(claim: Claim) -> str:
    """Return what all instances of a claim share, as its quantity says."""
    assert isinstance(claim.rule, Excess), claim.id
    return "fixed_query" if "one shared query" in claim.rule.quantity else "fixed_context"


def runs_by_setting(work: Work) -> Iterator[tuple[Setting, list[tuple[str, Run]]]]:
    """Yield (setting, its finished runs with the names of their members), where there are any."""
    for setting in SHOWS[work.preset]:
        runs = list(work.runs_of(setting))
        if runs:
            yield setting, runs


def probe_scores(
    run: Run, *, label: str, inputs: str | None = None, n_train: int = 4_096, n: int = 4_096,
    seed: int = 0, device: str = "cpu",
) -> pd.DataFrame:
    """Return what logistic probes of a label score on the paper's pair, a row per number.

    The columns are `split`, `test` or `ood`; `layer` and `features`, what is read (`code`,
    `residual`, `untrained` or `shuffled`); `varies`, whether that differs between instances at all;
    `metric`, `f1`, the mean over classes, of a group of labels, else `balanced_accuracy`, and `f1`
    of single classes; `class`, `ALL` or the class; `against`, other features, `chance`, or
    `layer 1`, the first in which codes vary, whose score is subtracted, or None; `value`, `low` and
    `high`, with the 95 % interval over combinations, of the difference where there is one;
    `chance`, the best score that any constant answer reaches. Probes are fitted on `n_train`
    instances, and scored on `n` of each split; `inputs` are those of the task, `fixed_context` or
    `fixed_query`, by default as the task is probed.
    """
    task = make_task(run.config.task).probe_config
    if inputs is not None:
        task = replace(task, inputs=inputs)
    model = subject(run, task, device=device)
    sizes = {"train": n_train, **dict.fromkeys(SPLITS, n)}
    codes = [model.reader(split, n=size, residuals=True, seed=seed).read()
             for split, size in sizes.items()]
    untrained = [model.reader(split, n=size, untrained=True, seed=seed).read()
                 for split, size in sizes.items()]
    # An instance of a small task can come twice, which the claims have always counted.
    known = CodesSubject(codes, untrained)
    reads = read(known, [(str(i), len(each)) for i, each in enumerate(codes)], ["code"],
                 pairs=None, layers=None, seed=seed)
    results = decode_readings(known, reads, [label], metrics=["balanced_accuracy"],
                              allow_overlap="instances", seed=seed)
    tables = []
    for split, heldout, initial, result in zip(SPLITS, codes[1:], untrained[1:], results,
                                               strict=True):
        every = (
            result.table.assign(**{"class": ALL, "against": None}),
            result.per_class.rename(columns={"f1": "value"}).assign(metric="f1", against=None),
            result.contrasts.table.rename(columns={"quantity": "metric"}).assign(**{"class": ALL}))
        table = pd.concat([each.reindex(columns=COLUMNS) for each in every if len(each)],
                          ignore_index=True)
        pair, = (pair.name for pair in heldout.pairs)
        points = {(name, layer): heldout.select_residual(layer=layer, pair=pair)
                  if name == "residual" else (
                      initial if name == "untrained" else heldout).select(layer=layer, pair=pair)
                  for name, layer in set(zip(table["features"], table["layer"], strict=True))}
        tables.append(table.assign(
            split=split, n=n, n_combinations=result.table["n_heldout_combinations"].max(),
            varies=[varies(points[place])
                    for place in zip(table["features"], table["layer"], strict=True)]))
    return pd.concat(tables, ignore_index=True).assign(n_train=n_train)


def last_layer(scores: pd.DataFrame) -> int:
    return int(scores["layer"].max())


def best_layer(scores: pd.DataFrame, split: str = "test") -> int:
    """Return the layer whose codes score best on a split."""
    codes = where(scores, split=split, features="code", **{"class": ALL})
    return int(codes[codes["against"].isna()].set_index("layer")["value"].idxmax())


def first_varying(scores: pd.DataFrame) -> int:
    """Return the first layer whose codes differ between instances."""
    return int(scores.loc[(scores["features"] == "code") & scores["varies"], "layer"].min())


def against(scores: pd.DataFrame, layer: int, other: str) -> dict[str, Any]:
    """Return the difference of a layer's code from other features or another layer, on `ood`."""
    rows = where(scores, split="ood", features="code", layer=layer, against=other)
    return {name: float(rows[name].iloc[0]) for name in ("value", "low", "high")}


def above_controls(
    claim: Claim, probed: Sequence[Probed], layer: Callable[[pd.DataFrame], int]
) -> pd.DataFrame:
    """Return evidence that the code of a layer is read better than the controls of a claim."""
    return evidence(
        about(member, run) | {"control": control}
        | against(scores, layer(scores), CONTROLS[control])
        for member, run, scores in probed for control in controls_of(claim))


def in_layer(
    probed: Sequence[Probed], layer: Callable[[pd.DataFrame], int]
) -> pd.DataFrame:
    """Return the scores of all features on `ood` in one layer of each run, a row each."""
    scores = joined((member, run, where(table, split="ood", layer=layer(table), **{"class": ALL}))
                    for member, run, table in probed)
    return scores[scores["against"].isna()].reset_index(drop=True)


def with_controls(scores: pd.DataFrame) -> str:
    """Say the scores of a layer (`in_layer`): per kind, with those of the controls.

    What does not vary between instances, as a residual stream where all share the query, is left
    out.
    """
    parts = [per_kind(where(scores, features="code"))]
    for features, name in (("untrained", "the untrained model"), ("shuffled", "shuffled labels"),
                         ("residual", "the residual stream")):
        rows = where(scores, features=features)
        parts += [f"{name} {per_kind(rows, runs=False)}"] if rows["varies"].any() else []
    return "; ".join(parts)


def scores_figure(
    table: pd.DataFrame, ylabel: str, *, rows: Mapping[str, str] | None = None, title: str = ""
) -> Figure:
    """Return scores on held-out combinations over layers, a column per kind.

    With a row for each value of `inputs` that `rows` names. Small dots are single classes of the
    code; the dashed line is the best constant answer. What is the same for all instances in every
    run is left out.
    """
    rows = rows or {}
    table = table[(table["split"] == "ood") & table["against"].isna()]
    whole = table[table["class"] == ALL]
    classes = table[(table["class"] != ALL) & (table["features"] == "code")]
    kinds = [kind for kind in KIND_TITLES if kind in set(table["kind"])]
    layers, feature_sets = layers_in(table), features_in(table)
    dots_color = FEATURE_STYLES["code"][0]
    per_panel = max(1.7, 0.42 * len(layers) + 0.7)
    with panels(max(len(rows), 1), len(kinds), per_panel * len(kinds) + 2.1,
                2.1 * max(len(rows), 1) + 0.5, title, sharex=True, sharey=True) as (figure, grid):
        for line, inputs in zip(grid, rows or [None], strict=True):
            for kind, axes in zip(kinds, line, strict=True):
                chosen = {"kind": kind} | ({} if inputs is None else {"inputs": inputs})
                block, dots = where(whole, **chosen), where(classes, **chosen)
                scores = over_runs(of_varying(block), ["layer", "features"])
                for i, features in enumerate(feature_sets):
                    points = where(scores, features=features).sort_values("layer")
                    place = np.array([layers.index(layer) for layer in points["layer"]])
                    color, marker, _ = FEATURE_STYLES[features]
                    axes.errorbar(place + 0.16 * (i - (len(feature_sets) - 1) / 2),
                                  points["value"], yerr=reach(points), color=color, marker=marker,
                                  markersize=4.0, linestyle="", elinewidth=1.1)
                axes.set_xticks(range(len(layers)), [str(layer) for layer in layers])
                axes.set_xlim(-0.5, len(layers) - 0.5)
                means = of_varying(dots).groupby(
                    ["layer", "class"], sort=False)["value"].mean().reset_index()
                left = 0.16 * (len(feature_sets) - 1) / 2
                axes.scatter([layers.index(layer) - left - 0.13 for layer in means["layer"]],
                             means["value"], s=5, color=dots_color, alpha=0.45, linewidths=0)
                level = block.groupby("layer")["chance"].mean().reindex(layers).to_numpy()
                axes.step(np.r_[-0.5, np.arange(len(layers)) + 0.5], np.r_[level[:1], level],
                          color=GREY, linestyle="--", linewidth=1.0, zorder=1)
        grid[0, 0].set_ylim(-0.02, 1.02)
        name_panels(grid, [KIND_TITLES[kind] for kind in kinds],
                    [f"{ylabel}\n{name}" for name in rows.values()] or [ylabel], "layer")
        handles = [*(Line2D([], [], color=color, marker=marker, linestyle="", markersize=4.5,
                            label=words)
                     for color, marker, words in (FEATURE_STYLES[each] for each in feature_sets)),
                   Line2D([], [], color=GREY, linestyle="--", label="best constant answer")]
        if len(classes):
            handles.insert(1, Line2D([], [], color=dots_color, marker=".", linestyle="",
                                     alpha=0.6, label="code, one class"))
        figure.legend(handles=handles, loc="outside right upper")
    return figure


def over_runs(table: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """Return the mean over runs with `low`, `high` a standard error away.

    A single run keeps its own interval, which is clustered by combination.
    """
    groups = table.groupby(keys, sort=False)
    rows, mean, error = groups.first(), groups["value"].mean(), groups["value"].sem()
    several = groups.size() > 1
    rows.loc[several, "low"], rows.loc[several, "high"] = mean - error, mean + error
    return rows.assign(value=mean).reset_index()


def of_varying(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of layers and features that vary between instances in some run.

    A run in which they do not counts, too, or the mean would be over the others alone.
    """
    return table[table.groupby(["layer", "features"])["varies"].transform("any").astype(bool)]


REPRODUCTIONS = (
    Reproduction(
        "fig2b",
        "F1 of probes for the terms of held-out functions, per layer, from the code of the query",
        SHOWS, terms),
    Reproduction(
        "fig5f", "Balanced accuracy of probes for the rule on held-out combinations, per layer",
        OF_RULES, rules))
