"""Fig. 5E and A8: mean codes of rules in the last layer, their cosines, and the heads they use.

`similarity` has the mean codes, some single ones, the cosines, and the contrasts that claims are
judged by.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.colors import Normalize, TwoSlopeNorm

from latentcode.codes.reader import instances
from latentcode.config import SravenConfig
from latentcode.experiments.paper.claims import Claim
from latentcode.experiments.paper.reproduction import (
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
    titled,
    value_evidence,
)
from latentcode.experiments.paper.verdicts import evidence
from latentcode.figures.panels import heat_map, signed_norm
from latentcode.figures.style import Figure
from latentcode.models.hooks import evaluating
from latentcode.probes.common.figures import panels
from latentcode.probes.common.labels import make_target
from latentcode.probes.common.results import where
from latentcode.probes.similarity import SimilarityResult, similarity
from latentcode.runs import Run
from latentcode.subjects import extract
from latentcode.tasks.sraven.task import DISTRIBUTE, RULES, aligned, complete, rules_shown

OF_5E = by_preset("sraven", kinds="kind=hyla", small=("training.steps=9000",))
OF_A8 = by_preset("sraven", kinds="kind=softmax", paper=("training.steps=312500",),
                  small=("training.steps=9000",))
N = {"paper": 4_096, "small": 2_048, "smoke": 300}
PAIR_OF_RULES = ("sum", "difference")
"""The rules that the paper says have very similar codes."""
LARGEST_OTHER = "the largest cosine of sum or difference with any other rule"
SHUFFLED = "the same of sum and difference with rules shuffled among combinations"
"""Controls, in the words of the claim."""
MEAN_CODE = "heads in use by the mean code"
SHARE = "share of codes with two heads in use or more"
SINGLE_CODE = "heads in use by single codes"
ALL = "(all)"
AT_ONCE = 250
"""Instances of a forward pass."""
SIGNED = TwoSlopeNorm(0.0, -1.0, 1.0)
"""Colours of cosines."""


# Fig. 5E: the cosine of sum and difference


def cosines_of_rules(work: Work) -> Findings:
    """Return the cosines of mean codes in the last layer, and the confusion of the rules."""
    runs = list(work.runs_of(OF_5E[work.preset]))
    if not runs:
        return nothing("HYLA on SRAVEN")
    n = N[work.preset]
    similar = [(member, run, work.measured(run, similarity, SimilarityResult, label="rule", n=n))
               for member, run in runs]
    alike = joined((member, run, sum_and_difference(result)) for member, run, result in similar)
    cosines = joined((member, run, where(result.cosines, layer=max(result.settings["layers"])))
                      for member, run, result in similar)
    confused = joined((member, run, work.table(run, confusion, n=n)) for member, run in runs)
    last = where(alike[alike["layer"] == alike["layer"].max()], features="code", centring="raw")
    known = {run.name for _, run in runs if knows_rules(run)}
    _, first = runs[0]
    return Findings(
        summary=_cosines_in_words(last),
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


def _cosines_in_words(rows: pd.DataFrame) -> str:
    cosines = rows[rows["against"].isna()]
    if not len(cosines):
        return "The task's held-out combinations lack sums or differences."
    other, shuffled = (where(rows, against=control)["value"].mean()
                       for control in (LARGEST_OTHER, SHUFFLED))
    mean = cosines["value"].mean()
    return (f"In HYLA's last layer the mean codes of sum and difference have a cosine of "
            f"{mean:.2f} ({n_runs(cosines)}); the largest of either with another rule is "
            f"{mean - other:.2f}, with shuffled rules it is {mean - shuffled:.2f}.")


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


# Fig. A8: heads in use


def heads_of_rules(work: Work) -> Findings:
    """Return how many heads codes use in the last layer, and the codes themselves."""
    runs = list(work.runs_of(OF_A8[work.preset]))
    if not runs:
        return nothing("softmax attention on SRAVEN"
                       + " with 40 M instances" * (work.preset == "paper"))
    n = N[work.preset]
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
        "fig5e",
        "Cosines between the mean codes of rules in HYLA, beside the rules that it confuses",
        OF_5E, cosines_of_rules),
    Reproduction(
        "figA8",
        "Codes of softmax attention: single ones (A), means per rule (B), cosines of means (C)",
        OF_A8, heads_of_rules))
