"""What the commands found: numbers, sentences, a page."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from latentcode.codes import LatentCodes
from latentcode.experiments.studies.relations.commands import SITES, folder_of
from latentcode.experiments.studies.relations.world import HEADS, LAYERS, PHRASINGS, WIDTH
from latentcode.figures.markdown import markdown_of
from latentcode.probes.decoding.result import DecodingResult
from latentcode.probes.interventions import InterventionResult
from latentcode.probes.interventions.figure import in_short

PLACES = {"pair": "the pair last->relation", "pairs": "the three pairs",
          "row": "the row of the last word", "everything": "all codes"}
"""Scopes of the codes that are written, and what they are here."""


@dataclass(frozen=True)
class Found:
    """What the commands found.

    accuracy  share of the sentences, trained on or not, whose answer the model gives
    decoding  what the codes say
    patched   what they cause, and values and residual streams: word order -> site -> result
    """

    accuracy: Mapping[str, float]
    decoding: DecodingResult
    patched: Mapping[str, Mapping[str, InterventionResult]]

    @classmethod
    def load(cls, work: Path) -> Found:
        """Read what the commands wrote into a work folder."""
        labels = LatentCodes.load(work / "codes").labels
        right = labels["next_token"].str.strip() == labels["answer"]
        results = work / "results"
        return cls(
            {name: float(right[labels["trained"] == trained].mean())
             for name, trained in (("trained", True), ("left out", False))},
            DecodingResult.load(results / "decoding"),
            {order: {site: InterventionResult.load(results / folder_of(order) / site)
                     for site in SITES} for order in PHRASINGS})

    def table(self, order: str) -> pd.DataFrame:
        """Return what every site causes in one word order."""
        return pd.concat([result.table for result in self.patched[order].values()],
                         ignore_index=True)


def findings(found: Found) -> list[str]:
    """Return what the numbers say, a sentence or two each."""
    sentences = [
        f"The model completes {found.accuracy['trained']:.1%} of the sentences that it was trained "
        f"on, and {found.accuracy['left out']:.1%} of those that were left out."]
    table = found.decoding.table[found.decoding.table["metric"] == "accuracy"]
    for pair, rows in table.groupby("pair", sort=False):
        codes = rows[rows["features"] == "code"]
        best = codes.sort_values("value", kind="stable").iloc[-1]
        beside = rows[rows["layer"] == best["layer"]].set_index("features")["value"]
        sentences.append(
            f"At {pair} the code tells the relation best in layer {best['layer']}: "
            f"{best['value']:.2f} [{best['low']:.2f}, {best['high']:.2f}] for held-out countries, "
            f"against {beside['untrained']:.2f} with fresh weights, {beside['shuffled']:.2f} with "
            f"shuffled labels, and {beside['residual']:.2f} from the residual stream at the last "
            "word.")
    for order, results in found.patched.items():
        rates = rates_of(found.table(order).query("not renormalized"))
        reached = "; ".join(f"{_largest(rates, 'code', scope)} at {name}"
                            for scope, name in PLACES.items())
        counted = results["code"].settings
        sentences.append(
            f"With the {order} ({counted['n_known']} of {counted['n']} pairs count), the codes of "
            "the same sentence about another relation flip at most these shares of the answers "
            f"to its own: {reached}.")
        sentences.append(
            f"With the {order}, in place of codes: {_largest(rates, 'value', 'everything')} by the "
            f"values of all words; {_largest(rates, 'residual', 'row')} by the residual stream at "
            "the last word.")
        flip, unchanged = rates["flip"].max(), rates["unchanged"].min()
        sentences.append(
            f"With the {order}, the same sentence in another phrasing flips at most "
            f"{flip['control']:.2f} and leaves at least {unchanged['control']:.2f}. Another "
            f"sentence's source flips at most {flip['shuffled']:.2f}, noise "
            f"{flip['random']:.2f}, another position {flip['elsewhere']:.2f}, the identity "
            f"{flip['identity']:.2f}.")
    return sentences


def rates_of(table: pd.DataFrame) -> pd.DataFrame:
    """Return flip and unchanged, (metric, patch) across; a row per site, scope and layers."""
    rates = table[table["metric"].isin(["flip", "unchanged"])]
    scope = rates["scope"] + rates["renormalized"].map({True: ", renormalised", False: ""})
    return rates.assign(scope=scope).pivot_table(
        index=["site", "scope", "layers"], columns=["metric", "patch"], values="value", sort=False)


def _largest(rates: pd.DataFrame, site: str, scope: str) -> str:
    """Return the largest flip rate by sources over sets of layers, and where that is."""
    rows = rates.reset_index()
    rows = rows[(rows["site"] == site) & (rows["scope"] == scope)]
    best = int(rows["flip", "interchange"].argmax())
    return (f"{rows['flip', 'interchange'].iloc[best]:.2f} (layers "
            f"{in_short(str(rows['layers'].iloc[best]))}, where "
            f"{rows['unchanged', 'interchange'].iloc[best]:.2f} stay)")


def page(
    found: Found, said: Sequence[str], run: Sequence[Sequence[str]], settings: Mapping[str, Any]
) -> str:
    """Return the page of the results, as Markdown."""
    parts = [
        "# Which relation is asked? The codes of a small pretrained language model",
        "Written by `python -m latentcode.experiments.studies.relations`. A GPT-2 of "
        f"{LAYERS} layers, {HEADS} heads and width {WIDTH} learned, in {settings['steps']:,} "
        f"updates, the facts about {settings['countries']} made-up countries (capital, language, "
        "currency, food) from sentences in four phrasings: "
        + "; ".join(f"*{text}*" for both in PHRASINGS.values() for text in both)
        + f". {settings['left_out']} of {settings['sentences']} sentences were left out, each a "
        "fact in one phrasing.",
        "## What the numbers say", "\n".join(f"- {sentence}" for sentence in said),
        "One model, one seed, a toy world: this shows what the commands measure, and is no claim "
        "about large language models.",
        "## What can be read out (held-out countries)",
        "Accuracy of logistic probes. The key of last->relation is the word that is asked for, "
        "which gives each relation scores of its own under random weights, too.",
        "![accuracy of probes by layer and pair](figures/decoding.png)",
        markdown_of(found.decoding.summary(("accuracy",)).drop(columns=["label", "metric"]))]
    parts += [
        "## What is caused",
        "Shares of the answers that flip to the source's / are unchanged; the others become a "
        "third answer. `table.csv` of each folder has the intervals. `interchange`: the sentence "
        "about another relation; `control`: the sentence in another phrasing, which differs in a "
        "small word and has the same answer, so that its codes are close; `elsewhere`: the "
        "source's codes of the word before the last; `shuffled`: another sentence's source; "
        "`random`: noise."]
    for order, results in found.patched.items():
        rates = rates_of(found.table(order))
        cells = pd.DataFrame({patch: [
            "" if pd.isna(flip) else f"{flip:.2f} / {kept:.2f}" for flip, kept in zip(
                rates["flip", patch], rates["unchanged", patch], strict=True)]
            for patch in rates["flip"].columns}, index=rates.index)
        parts += [
            f"### {order.capitalize()}: *{PHRASINGS[order][0]}*",
            f"![flip rates](figures/{folder_of(order)}.png)",
            markdown_of(cells.reset_index()), " ".join(results["code"].caveats)]
    parts += ["## The commands", "```\n" + "\n".join(
        shlex.join(["latentcode", *arguments]) for arguments in run) + "\n```"]
    return "\n\n".join(parts) + "\n"
