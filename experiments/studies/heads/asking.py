"""What `lc.heads` says of models whose heads are known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import latentcode as lc
from latentcode.experiments.studies.heads.models import MODELS, Head, Known, make
from latentcode.experiments.studies.heads.words import KINDS, prompts
from latentcode.models.modes import evaluating
from latentcode.models.transformer import HookedTransformer
from latentcode.probes.common.results import where
from latentcode.probes.heads.metrics import METRICS
from latentcode.probes.heads.texts import read_texts
from latentcode.progress import Progress
from latentcode.prompts import OwnLanguageModel

ROLES: Mapping[str, Mapping[str, str]] = {
    "induction": {"previous": "previous_token", "induction": "induction"},
    "duplicate": {"duplicate": "duplicate_token"},
    "redundant": {"first redundant": "", "second redundant": ""},
    "synergetic": {"first synergetic": "", "second synergetic": ""}}
"""Kind of prompts -> the heads that answer them -> the metric that is 1 of each, if any is."""
ACTS: Mapping[str, str] = {
    "induction": "synergetic", "redundant": "redundant", "synergetic": "synergetic"}
"""Kind of prompts -> how the two heads that answer them act together."""
RIGHT = "right_lost"
OTHER = 1_000
"""What is added to seeds of models all of whose weights are random."""
Rows = list[dict[str, Any]]


def known(
    work: Path, *, seeds: int, n_bootstrap: int, alike: bool = True,
    progress: Progress | None = None,
) -> dict[str, pd.DataFrame]:
    """Ask `lc.heads` about all models, on each kind of prompts that they can answer.

    seeds  of what is random: weights, prompts, and what `heads` draws
    alike  see `prompts`

    Tables have a row per model, seed and kind of prompts, and of

    models   nothing else: how many prompts are answered rightly
    known    heads set by hand that answer these prompts: the `metric` that one is made for, its
             `score` and that of fresh heads; the share of right answers that are lost without it,
             by mean and resample ablation, beside the control, and by how much the loss is at least
             above that of the control (`above`, the lower end of the difference's interval); and
             what the share is `expected` to be by mean ablation, 1 but for redundant heads, one of
             which suffices
    random   what is measured (`prompts` also "all"): of how many heads that are not set by hand it
             lies within the interval of the control, and of how many it is surely above or below
             (`marked` of the result; of effects, the interval of the difference)
    pairs    pairs of heads that answer these prompts: the interaction, what it is called, and
             whether that is how it was `built`
    random_pairs  nothing else: how pairs of random heads are called
    """
    found: dict[str, Rows] = {name: [] for name in (
        "models", "known", "random", "pairs", "random_pairs")}
    asked = [(name, kind, seed) for name, of in MODELS.items() for seed in range(seeds)
             for kind in KINDS if set(ROLES[kind]) <= set(of.heads)]
    for number, (name, kind, seed) in enumerate(asked, 1):
        for table, rows in ask(
                name, kind, work, seed=seed, n_bootstrap=n_bootstrap, alike=alike).items():
            found[table] += rows
        if progress is not None:
            progress(number, len(asked))
    tables = {name: pd.DataFrame(rows) for name, rows in found.items()}
    return {**tables, "random": with_all(tables["random"])}


def varied(
    work: Path, *, seeds: int, n_bootstrap: int, progress: Progress | None = None
) -> dict[str, pd.DataFrame]:
    """Return tables of `known`, as `*_varied`: those of prompts that are drawn one by one."""
    found = known(work, seeds=seeds, n_bootstrap=n_bootstrap, alike=False, progress=progress)
    return {f"{name}_varied": found[name] for name in ("models", "known", "random")}


def fresh(
    work: Path, *, seeds: int, n_bootstrap: int, progress: Progress | None = None
) -> dict[str, pd.DataFrame]:
    """Return the table of random heads, `random_fresh`, of models none of whose weights is set by
    hand, on prompts that are drawn one by one."""
    rows: Rows = []
    asked = [(name, kind, seed) for name, of in MODELS.items() for seed in range(seeds)
             for kind in KINDS if of.random]
    for number, (name, kind, seed) in enumerate(asked, 1):
        own = make(MODELS[name], seed)
        # Not one of those that `heads` draws as controls.
        model = OwnLanguageModel(
            HookedTransformer(own.model.config, OTHER + seed).eval(), own.tokenizer,
            context=own.context, settings=own.settings)
        result = lc.heads(model, prompts(kind, seed, alike=False), effects=["mean", "resample"],
                          n_bootstrap=n_bootstrap, seed=seed)
        of = MODELS[name]
        rows += [{"model": name, "seed": seed, "prompts": kind, **row} for row in _random(
            result, [*np.ndindex(of.n_layers, of.n_heads)])]
        if progress is not None:
            progress(number, len(asked))
    return {"random_fresh": with_all(pd.DataFrame(rows))}


def with_all(random: pd.DataFrame) -> pd.DataFrame:
    """Return the table of random heads with rows of all kinds of prompts, and with shares."""
    keys, sums = ["model", "seed", "measured"], ["n", "within", "above", "below"]
    every = random.groupby(keys, sort=False)[sums].sum().reset_index().assign(prompts="all")
    both = pd.concat([random, every], ignore_index=True)
    return both.assign(share=both["within"] / both["n"],
                       sure_share=(both["above"] + both["below"]) / both["n"])


def ask(
    name: str, kind: str, work: Path, *, seed: int, n_bootstrap: int = 1000, alike: bool = True
) -> dict[str, Rows]:
    """Return the rows of one model and kind of prompts: see `known`."""
    of, problems = MODELS[name], prompts(kind, seed, alike=alike)
    model = make(of, seed)
    place = {"model": name, "seed": seed, "prompts": kind}
    result = lc.heads(
        model, problems, effects=["mean", "resample"], sets=alike, n_bootstrap=n_bootstrap,
        seed=seed)
    texts = read_texts(model, problems)
    n = right = 0
    for batch in texts.batches():
        with evaluating(model.model):
            says = model.model(batch.tokens, **batch.padding)[batch.read].argmax(-1)
        n, right = n + len(says), right + int((says == batch.targets[batch.read]).sum())
    return {
        "models": [{**place, "layers": of.n_layers, "known": len(of.heads),
                    "random": len(of.random), "prompts_asked": n, "answered": right / n}],
        "known": [{**place, **row} for row in _known(result, of, kind)],
        "random": [{**place, **row} for row in _random(result, of.random)],
        "pairs": [{**place, **row} for row in _pairs(result, of, kind)],
        "random_pairs": [{**place, **row} for row in _random_pairs(result, of)]}


def _known(result: lc.HeadsResult, of: Known, kind: str) -> Rows:
    """Return a row per head that answers a kind of prompts."""
    rows = []
    for role, metric in ROLES[kind].items():
        layer, head = of.heads[role]
        row: dict[str, Any] = {"role": role, "head": f"L{layer}H{head}", "metric": metric}
        if metric:
            score = where(result.heads, layer=layer, head=head, metric=metric).iloc[0]
            row |= {"score": score["value"], **{
                f"fresh{end}": score[f"control{end}"] for end in ("", "_low", "_high")}}
        row["expected"] = 0.0 if "redundant" in role else 1.0
        for patch in ("mean", "resample"):
            lost = where(result.effects, layer=layer, head=head, patch=patch,
                         quantity=RIGHT).iloc[0]
            row |= {f"{patch}_lost": lost["value"], **{
                f"{patch}_control{end}": lost[f"control{end}"] for end in ("", "_low", "_high")},
                f"{patch}_above": where(result.effects, layer=layer, head=head, patch=patch,
                                        quantity="loss").iloc[0]["difference_low"]}
        rows.append({**row, "off": row["mean_lost"] - row["expected"]})
    return rows


def _random(result: lc.HeadsResult, heads: Sequence[Head]) -> Rows:
    """Return how many random heads are within the control, by what was measured."""
    if not heads:
        return []
    every = pd.MultiIndex.from_tuples(heads, names=["layer", "head"])

    def rows_of(table: pd.DataFrame) -> pd.DataFrame:
        chosen = pd.MultiIndex.from_frame(table[["layer", "head"]]).isin(every)
        return table[chosen & table["value"].notna()]

    metrics = rows_of(result.marked())
    effects = rows_of(result.effects).assign(outside=lambda x: (
        (x["difference_low"] > 0).astype(int) - (x["difference_high"] < 0).astype(int)))
    blocks = [("all metrics of attention", metrics[metrics["metric"].isin(list(METRICS))]),
              *((str(name), rows) for name, rows in metrics.groupby("metric", sort=False)),
              *((f"{quantity}, {patch} ablation", rows) for (patch, quantity), rows in
                effects.groupby(["patch", "quantity"], sort=False))]
    return [{"measured": name, "n": len(rows), "within": int(within.sum()),
             "above": int((rows["outside"] > 0).sum()),
             "below": int((rows["outside"] < 0).sum())}
            for name, rows in blocks
            for within in [rows["value"].between(rows["control_low"], rows["control_high"])]]


def _pairs(result: lc.HeadsResult, of: Known, kind: str) -> Rows:
    """Return how the two heads that answer a kind of prompts act together."""
    if kind not in ACTS:
        return []
    heads = " ".join(f"{layer}.{head}" for layer, head in sorted(
        of.heads[role] for role in ROLES[kind]))
    rows = where(result.sets, how="pair", heads=heads)
    row: dict[str, Any] = {"heads": heads, "built": ACTS[kind]}
    if rows.empty:  # not among those that are measured
        return [{**row, "called": "", "as_built": 0.0}]
    one = rows.iloc[0]
    return [{**row, "called": one["acts"], "together": one["effect"], "sum": one["sum"],
             "value": one["interaction"], "low": one["interaction_low"],
             "high": one["interaction_high"], "as_built": float(one["acts"] == ACTS[kind])}]


def _random_pairs(result: lc.HeadsResult, of: Known) -> Rows:
    """Return how pairs of random heads are called."""
    names = {f"{layer}.{head}" for layer, head in of.random}
    rows = where(result.sets, size=2)
    rows = rows[[set(heads.split()) <= names for heads in rows["heads"]]].drop_duplicates("heads")
    if rows.empty:
        return []
    return [{"n": len(rows), **{acts: int((rows["acts"] == acts).sum()) for acts in (
        "additive", "redundant", "synergetic")},
        "largest": float(rows["interaction"].abs().max())}]


def shown(tables: Mapping[str, pd.DataFrame]) -> dict[str, object]:
    """Return the verdicts, a row per claim, and the rows that a page puts together of seeds."""
    counted = tables["verdicts"].groupby(["id", "verdict"], sort=False).size().unstack(
        fill_value=0).reset_index()
    return {"counted": counted, "claims": dict(zip(
        tables["verdicts"]["id"], tables["verdicts"]["claim"], strict=True)), **{
        name: over_seeds(tables[name]) for name in (
            "known", "random", "random_varied", "random_fresh", "pairs", "random_pairs")}}


def over_seeds(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table with a row for what differs in the seed alone: the mean of numbers, or the
    smallest and the largest where they differ."""
    text = [name for name in table if not pd.api.types.is_numeric_dtype(table[name])]

    def said(values: pd.Series) -> str:
        low, high = values.min(), values.max()
        if pd.isna(low):
            return ""
        written = [f"{one:.2f}" if values.dtype.kind == "f" else f"{one}" for one in (low, high)]
        return written[0] if written[0] == written[1] else " to ".join(written)

    groups = table.drop(columns="seed").fillna(dict.fromkeys(text, "")).groupby(
        text, sort=False)
    return groups.agg(said).reset_index()
