"""Fig. 2B, 5E, 5F and A8: what codes say, by probes, and by the mean codes of rules.

Probes of every layer read the terms of functions, or the rule; claims are judged by the contrasts
of `decode`, on two splits at once. Fig. 2B, like 2D and A2, is shown of two settings and in two
readings of which inputs are meant. Mean codes of rules in the last layer have cosines (5E), and
heads that they use (A8).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.colors import Normalize, TwoSlopeNorm
from matplotlib.lines import Line2D

from latentcode.codes.reader import instances
from latentcode.config import SravenConfig
from latentcode.experiments.paper.claims import Claim, Setting
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
    knows_rules,
    n_runs,
    nothing,
    per_kind,
    titled,
    value_evidence,
)
from latentcode.experiments.paper.verdicts import evidence
from latentcode.figures.panels import heat_map, signed_norm
from latentcode.figures.style import FEATURE_STYLES, GREY, Figure
from latentcode.models.hooks import evaluating
from latentcode.probes.common.figures import features_in, layers_in, name_panels, panels, reach
from latentcode.probes.common.harness import read
from latentcode.probes.common.labels import make_target
from latentcode.probes.common.results import where
from latentcode.probes.common.statistics import varies
from latentcode.probes.decoding import decode_readings
from latentcode.probes.similarity import SimilarityResult, similarity
from latentcode.runs import Run
from latentcode.subjects import extract, subject
from latentcode.subjects.base import CodesSubject
from latentcode.tasks import make_task
from latentcode.tasks.sraven.task import DISTRIBUTE, RULES, aligned, complete, rules_shown

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
    quantity = getattr(claim.rule, "quantity", "")
    return "fixed_query" if "one shared query" in quantity else "fixed_context"


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
    codes = codes[codes["against"].isna()]
    return int(codes["layer"].iloc[codes["value"].argmax()])


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


# Fig. 5E and A8: mean codes of rules

N_MEANS = {"paper": 4_096, "small": 2_048, "smoke": 300}
OF_5E = by_preset("sraven", kinds="kind=hyla", small=("training.steps=9000",))
OF_A8 = by_preset("sraven", kinds="kind=softmax", paper=("training.steps=312500",),
                  small=("training.steps=9000",))
PAIR_OF_RULES = ("sum", "difference")
"""The rules that the paper says have very similar codes."""
LARGEST_OTHER = "the largest cosine of sum or difference with any other rule"
SHUFFLED = "the same of sum and difference with rules shuffled among combinations"
"""Controls, in the words of the claim."""
MEAN_CODE = "heads in use by the mean code"
SHARE = "share of codes with two heads in use or more"
SINGLE_CODE = "heads in use by single codes"
AT_ONCE = 250
"""Instances of a forward pass."""
SIGNED = TwoSlopeNorm(0.0, -1.0, 1.0)
"""Colours of cosines."""


def cosines_of_rules(work: Work) -> Findings:
    """Return the cosines of mean codes in the last layer, and the confusion of the rules."""
    runs = list(work.runs_of(OF_5E[work.preset]))
    if not runs:
        return nothing("HYLA on SRAVEN")
    n = N_MEANS[work.preset]
    similar = [(member, run, work.measured(run, similarity, SimilarityResult, label="rule", n=n))
               for member, run in runs]
    alike = joined((member, run, sum_and_difference(result)) for member, run, result in similar)
    cosines = joined((member, run, where(result.cosines, layer=max(result.settings["layers"])))
                      for member, run, result in similar)
    confused = joined((member, run, work.table(run, confusion, n=n)) for member, run in runs)
    last = where(alike[alike["layer"] == alike["layer"].max()], features="code", centring="raw")
    known = {run.name for _, run in runs if knows_rules(run)}
    _, first = runs[0]
    summary = "The task's held-out combinations lack sums or differences."
    if len(cosine := last[last["against"].isna()]):
        mean = cosine["value"].mean()
        other, shuffled = (where(last, against=control)["value"].mean()
                           for control in (LARGEST_OTHER, SHUFFLED))
        summary = ("In HYLA's last layer the mean codes of sum and difference have a cosine of "
                   f"{mean:.2f} ({n_runs(cosine)}); the largest of either with another "
                   f"rule is {mean - other:.2f}, with shuffled rules it is {mean - shuffled:.2f}.")
    return Findings(
        summary=summary,
        tables={"sum_and_difference": alike, "cosines": cosines, "confusion": confused},
        figures={"fig5e": _cosines_figure(where(cosines, run=first.name),
                                          where(confused, run=first.name), titled([first]))},
        evidence={claim.id: evidence_of(claim, last[last["run"].isin(known)])
                  for claim in work.claims},
        notes=("Judged on models that know their rules alone, as one that takes sum for difference "
               "would show the same.",
               "The picture is of the first run, the numbers of all. Centred: the mean of the "
               "rules taken away first.", *caveat(run for _, run in runs)))


def evidence_of(claim: Claim, rows: pd.DataFrame) -> pd.DataFrame:
    """Return the differences from a claim's controls in runs, of which there may be none."""
    contrasts = rows.rename(columns={"against": "control"})
    return evidence(contrasts[contrasts["control"].isin(controls_of(claim))].to_dict("records"))


def sum_and_difference(alike: SimilarityResult) -> pd.DataFrame:
    """Is cos(m_sum, m_difference) larger than with any other rule, and than by chance?

    m_r is the mean code of rule r at the paper's pair, on held-out combinations. A row per layer,
    `features` (`code`, or the `residual` stream at the query), `centring` and `against`: the cosine
    (None), or its difference from `LARGEST_OTHER` and, of the code, from `SHUFFLED`, the mean over
    20 shuffles; `value`, with the 95 % interval over combinations.
    """
    names = {"largest other": LARGEST_OTHER, "shuffled": SHUFFLED}
    differences = alike.contrasts.table
    differences = differences[differences["against"].isin(list(names))]
    every = pd.concat([alike.cosines.assign(against=None),
                       differences.assign(against=differences["against"].map(names))])
    # Classes are in alphabetical order, and a cosine is the same both ways.
    pair = where(every, row=min(PAIR_OF_RULES), column=max(PAIR_OF_RULES))
    pair = pair[pair["features"].isin(["code", "residual"])].dropna(subset="value")
    return pair.sort_values(["layer", "features", "centring"], kind="stable", ignore_index=True)[
        ["layer", "features", "centring", "against", "value", "low", "high"]]


def confusion(run: Run, *, n: int = 4_096, seed: int = 0, device: str = "cpu") -> pd.DataFrame:
    """Which rule's answers does a model give, under each rule, on held-out combinations?

    A row per rule and rule `as` whose answer it is: `value`, the share of response tokens under
    `rule` that get the answer that `as` would prescribe and that is not the right one (where `as`
    is the rule itself: that are right), of the `n` tokens. A wrong answer that several rules give
    counts for each. Distribute-three prescribes none to a row of another rule.
    """
    config = run.config.task
    assert isinstance(config, SravenConfig)
    batch = instances(config, "ood", n, seed=seed, device=device)
    model = run.load_model(device=device)
    features = aligned(batch.info["grid"], batch.info["permutations"]).movedim(-1, 1)
    possible = complete(features, config.n_values)[1]  # [B, M, rule]
    with evaluating(model):
        logits = torch.cat([model(part) for part in batch.inputs.split(AT_ONCE)])
    answers = logits[:, -config.n_features:].argmax(-1)
    right = answers == batch.targets
    rules = rules_shown(batch)
    rows = []
    for rule, name in enumerate(RULES):
        shown = rules == rule
        for other, given in enumerate(RULES):
            if other == DISTRIBUTE != rule or not bool(shown.any()):
                continue
            hit = right if other == rule else (answers == possible[..., other]) & ~right
            rows.append({"rule": name, "as": given, "n": int(shown.sum()),
                         "value": float(hit[shown].float().mean())})
    return pd.DataFrame(rows)


def _cosines_figure(cosines: pd.DataFrame, confused: pd.DataFrame, title: str) -> Figure:
    code = where(cosines, features="code")
    rules = [rule for rule in RULES if rule in set(confused["rule"]) | set(code["row"])]
    shown: list[tuple[str, pd.DataFrame, tuple[str, str], Normalize]] = [
        ("cosine of mean codes", where(code, centring="raw"), ("row", "column"), SIGNED),
        ("centred", where(code, centring="centred"), ("row", "column"), SIGNED),
        ("answered as", confused, ("rule", "as"), Normalize(0.0, 1.0))]
    # Higher than the squares with their words need, or these would touch its edges.
    with panels(1, len(shown), 3.3 * len(shown), 3.8, title) as (figure, grid):
        for axes, (name, table, (down, across), norm) in zip(grid[0], shown, strict=True):
            matrix = table.pivot(index=down, columns=across, values="value").reindex(
                index=rules, columns=rules)
            drawn = heat_map(axes, matrix, norm, numbers=True, fontsize=6.0, rotation=90.0)
            axes.set(title=name, box_aspect=1.0)
            if not np.isfinite(matrix.to_numpy()).any():
                axes.set_xlabel("the codes do not vary")
            figure.colorbar(drawn, ax=axes, fraction=0.045, pad=0.02)
        for axes in grid[0, 1:]:
            axes.set_yticklabels([])
    return figure


def heads_of_rules(work: Work) -> Findings:
    """Return how many heads codes use in the last layer, and the codes themselves."""
    runs = list(work.runs_of(OF_A8[work.preset]))
    if not runs:
        return nothing("softmax attention on SRAVEN"
                       + " with 40 M instances" * (work.preset == "paper"))
    n = N_MEANS[work.preset]
    used = joined((member, run, work.table(run, heads_in_use, n=n)) for member, run in runs)
    last = used[used["layer"] == used["layer"].max()]
    of_rules = last[(last["measure"] == MEAN_CODE) & (last["class"] != ALL)]
    fewest = of_rules.loc[of_rules.groupby(["run", "split_seed", "seed"])["value"].idxmin()]
    share = where(last, measure=SHARE, **{"class": ALL})
    judged = {"figA8-several-heads-per-rule": fewest, "figA8-several-heads-per-code": share}
    single = where(last, measure=SINGLE_CODE, **{"class": ALL})["value"].mean()
    member, first = runs[0]
    result = work.measured(first, similarity, SimilarityResult, label="rule", n=n)
    means, samples, cosines = (
        where(table, layer=max(result.settings["layers"]), features="code")
        for table in (result.means, result.samples, result.cosines))
    return Findings(
        summary=f"In the last layer of softmax attention the mean code of the rule that has fewest "
                f"uses {fewest['value'].mean():.1f} of {first.config.model.n_heads} heads "
                f"({n_runs(share)}), single codes {single:.1f} on average; "
                f"{share['value'].mean():.0%} of codes use two or more.",
        tables={"heads_in_use": used, "mean_codes": means.assign(**about(member, first))},
        figures={"figA8": _heads_figure(samples, means, where(cosines, centring="raw"),
                                        titled([first]))},
        evidence={claim.id: value_evidence(judged[claim.id]) for claim in work.claims},
        notes=("Heads in use: (sum of |a|) squared over the sum of squares, 1 where one head does "
               "it all.", "The picture is of the first run, the heads in use of all.",
               *caveat(run for _, run in runs)),
        raw={"codes": samples[["instance", "class", "component", "value"]].round(4)})


def heads_in_use(
    run: Run, *, n: int = 4_096, seed: int = 0, device: str = "cpu"
) -> pd.DataFrame:
    """(sum_h |a_h|)^2 / sum_h a_h^2: of the mean code of each rule, and of single codes.

    A row per layer, `measure` (`MEAN_CODE`, `SINGLE_CODE` the mean over codes, `SHARE`) and `class`
    (a rule, or `ALL`), of the paper's pair on held-out combinations.
    """
    codes = extract(run, split="ood", n=n, seed=seed, device=device)
    pair, = (pair.name for pair in codes.pairs)
    target = make_target(codes.labels, codes.labels, "rule", codes.pair(pair))
    members = {ALL: np.ones(len(codes), dtype=bool),
               **dict(zip(map(str, target.classes), target.train.T, strict=True))}
    rows: list[dict[str, Any]] = []
    for layer in codes.layers:
        x = codes.select(layer=layer, pair=pair).astype(np.float64)
        used = in_use(x)
        for name, chosen in members.items():
            rows += [{"layer": layer, "measure": measure, "class": name, "value": float(value)}
                     for measure, value in ((MEAN_CODE, in_use(x[chosen].mean(axis=0))),
                                            (SINGLE_CODE, used[chosen].mean()),
                                            (SHARE, (used[chosen] >= 2.0).mean()))]
    return pd.DataFrame(rows)


def in_use(x: np.ndarray) -> np.ndarray:
    """Return (sum_h |a_h|)^2 / sum_h a_h^2 of codes x [..., H], [...]; NaN of a zero."""
    size = np.abs(x)
    largest = size.max(axis=-1, keepdims=True)
    # Scaled by the largest head, because the squares of tiny codes would vanish.
    size = size / np.where(largest > 0, largest, np.nan)
    return np.asarray(size.sum(axis=-1) ** 2 / np.square(size).sum(axis=-1))


def _heads_figure(
    samples: pd.DataFrame, means: pd.DataFrame, cosines: pd.DataFrame, title: str
) -> Figure:
    samples = samples.assign(name=samples["class"] + " #" + samples["instance"].astype(str))
    rules = [rule for rule in RULES if rule in set(means["class"])]
    single = samples.pivot(index="name", columns="component", values="value")
    single.index = [name.split(" #")[0] for name in single.index]
    mean = means.pivot(index="class", columns="component", values="value").loc[rules]
    alike = cosines.pivot(index="row", columns="column", values="value").loc[rules, rules]
    shown = [("A  single codes", single, signed_norm(single.to_numpy())),
             ("B  mean codes", mean, signed_norm(mean.to_numpy())),
             ("C  cosine of mean codes", alike, SIGNED)]
    with panels(1, len(shown), 10.5, 3.4, title) as (figure, grid):
        for axes, (name, matrix, norm) in zip(grid[0], shown, strict=True):
            is_cosine = matrix is alike
            drawn = heat_map(axes, matrix, norm, numbers=is_cosine, fontsize=6.5,
                             rotation=90.0 if is_cosine else 0.0)
            axes.set_title(name, loc="left")
            axes.set_xlabel("" if is_cosine else "head")
            figure.colorbar(drawn, ax=axes, fraction=0.05, pad=0.02)
    return figure


REPRODUCTIONS = (
    Reproduction(
        "fig2b",
        "F1 of probes for the terms of held-out functions, per layer, from the code of the query",
        SHOWS, terms),
    Reproduction(
        "fig5f", "Balanced accuracy of probes for the rule on held-out combinations, per layer",
        OF_RULES, rules),
    Reproduction(
        "fig5e",
        "Cosines between the mean codes of rules in HYLA, beside the rules that it confuses",
        OF_5E, cosines_of_rules),
    Reproduction(
        "figA8",
        "Codes of softmax attention: single ones (A), means per rule (B), cosines of means (C)",
        OF_A8, heads_of_rules))
