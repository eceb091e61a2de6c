"""Fig. 6: language models, the loss on held-out text over training for three kinds of attention.

And which tokens they predict well: the loss by what the text has shown before. A token repeats an
earlier pair where it follows the same token as earlier in the excerpt, `... A B ... A B`, so that
it can be copied (the induction pair). Such pairs are more frequent than others; their control are
the same pairs where they are new. Who knows nothing but which token follows which predicts both
equally well.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Int
from matplotlib.ticker import FuncFormatter, MaxNLocator
from torch import Tensor

from latentcode.experiments.paper.claims import Bound
from latentcode.experiments.paper.reproduction import (
    KIND_STYLES,
    KIND_TITLES,
    NOTHING,
    Findings,
    Reproduction,
    Work,
    by_preset,
    count,
    joined,
    metric_evidence,
    sentences,
)
from latentcode.experiments.paper.reproductions.scores import short
from latentcode.experiments.paper.verdicts import COMPARED, evidence
from latentcode.figures.style import Figure
from latentcode.models.hooks import evaluating
from latentcode.probes.common.figures import panels
from latentcode.runs import Run
from latentcode.tasks import make_task
from latentcode.tasks.text.task import Text
from latentcode.tasks.text.tokens import previous_same

SHOWS = by_preset("language", small=("task.text=text/packages",), smoke=("task.text=text/smoke",))
SPLIT, METRIC = "test", "loss"
REPEATED, CONTROL = "repeats an earlier pair", "the same pairs, where they are new"
NEW, ALL = "the pair is new", "all tokens"
BATCH = 32
NOTES = ("Loss is the mean cross-entropy per token, in nats.",
         "A token repeats an earlier pair where it follows the same token as earlier in its "
         "excerpt. The control are the same pairs, each as often, where they are new.")


def measure(work: Work) -> Findings:
    """Return the loss over training, at its end, and of tokens that can be copied."""
    runs = list(work.runs_of(SHOWS[work.preset]))
    judged = {}
    for claim in work.claims:
        losses = metric_evidence(work, claim, METRIC, SPLIT)
        judged[claim.id] = shares(losses) if isinstance(claim.rule, Bound) else losses
    if not runs:
        return Findings(NOTHING, {}, evidence=judged)
    curves = []
    for member, run in runs:
        table = run.metrics()
        table = table[(table["split"] == SPLIT) & (table["metric"] == METRIC) & (table["step"] > 0)]
        at_once = run.config.training.batch_size * run.config.task.n_tokens
        curves.append((member, run, pd.DataFrame({
            "step": table["step"], "tokens": table["step"] * at_once, "value": table["mean"],
            "se": table["se"]})))
    every = joined(curves)
    tokens = joined((member, run, work.table(run, token_losses)) for member, run in runs)
    final = every[every["step"] == every.groupby("run")["step"].transform("max")]

    kinds = []
    for kind, title in KIND_TITLES.items():
        values = final.loc[final["kind"] == kind, "value"]
        ends = f" ({values.min():.3f} to {values.max():.3f})" * (len(values) > 1)
        kinds += [f"{title} {values.mean():.3f}{ends}, {count(len(values), 'run')}"] * (
            len(values) > 0)
    notes = list(NOTES)
    if work.preset != "paper":
        notes.append("Small models and little text: the numbers do not compare with the paper's.")
    revisions = sorted({getattr(run.config.task, "revision", "") for _, run in runs})
    if len(revisions) > 1:
        notes.append(f"The runs are of {len(revisions)} states of the text "
                     f"({', '.join(revisions)}), so that their losses do not compare.")
    return Findings(
        summary=sentences(f"Loss on held-out text at the end of training: {'; '.join(kinds)}.",
                          gains_in_words(tokens)),
        tables={"final": final, "tokens": tokens},
        figures={"fig6": _figure(every, tokens)},
        evidence=judged, notes=tuple(notes), raw={"curves": every})


def pairs_of(tokens: Int[Tensor, "N S"]) -> Int[Tensor, "N T"]:
    """Return a number for each pair (x_t, x_t+1) of a sequence, the same for the same pair."""
    ids = tokens[:, :-1] * (int(tokens.max()) + 1) + tokens[:, 1:]
    return ids.unique(return_inverse=True)[1]


def repeats_a_pair(tokens: Int[Tensor, "N S"]) -> Bool[Tensor, "N T"]:
    """Whether (x_t, x_t+1) = (x_s, x_s+1) for an s < t, of every token t + 1 of a sequence."""
    return previous_same(pairs_of(tokens)) >= 0


def token_losses(run: Run, *, device: str = "cpu") -> pd.DataFrame:
    """Return the mean loss of each class of tokens over all excerpts of `test`, in nats.

    Rows: class, loss, n. The first two are of the pairs that occur in both; the control has every
    pair as often as it is repeated: sum_p n_p mean loss of p where it is new / sum_p n_p.
    """
    task, model = make_task(run.config.task), run.load_model().to(device)
    assert isinstance(task, Text)
    tokens = task.excerpts("test").tokens
    parts = []
    with evaluating(model):
        for batch in tokens.split(BATCH):
            logits = model(batch[:, :-1].to(device))
            parts.append(F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten().to(device),
                                         reduction="none").cpu())
    return by_class(torch.cat(parts).double().numpy(), pairs_of(tokens).flatten().numpy(),
                    repeats_a_pair(tokens).flatten().numpy())


def by_class(losses: np.ndarray, pairs: np.ndarray, repeated: np.ndarray) -> pd.DataFrame:
    """Return what `token_losses` does, of the loss, the pair and the class of every token."""
    size = int(pairs.max()) + 1
    (n, total), (n_new, total_new) = (
        (np.bincount(pairs[chosen], minlength=size),
         np.bincount(pairs[chosen], losses[chosen], size)) for chosen in (repeated, ~repeated))
    both = (n > 0) & (n_new > 0)
    n_both = n[both].sum() or np.nan  # without any there is no mean
    rows = [(REPEATED, total[both].sum() / n_both, n[both].sum()),
            (CONTROL, (n * total_new)[both] @ (1.0 / n_new[both]) / n_both, n_new[both].sum()),
            (NEW, losses[~repeated].mean(), n_new.sum()),
            (ALL, losses.mean(), len(losses))]
    return pd.DataFrame(rows, columns=["class", "loss", "n"])


def shares(losses: pd.DataFrame) -> pd.DataFrame:
    """(linear - HYLA) / (linear - softmax) of the runs of each seed, where softmax is ahead.

    Both the losses and the shares are evidence, the first with a row per run.
    """
    kinds = losses["member"].str.extract(r"kind=(\w+)")[0]
    of_kind = losses.assign(kind=kinds).pivot(index="seed", columns="kind", values="value")
    complete = of_kind.reindex(columns=list(KIND_TITLES)).dropna()
    gap = complete["linear"] - complete["softmax"]
    share = (complete["linear"] - complete["hyla"]) / gap
    return evidence({"member": COMPARED, "run": f"seed {seed}", "seed": seed, "split_seed": seed,
                     "value": value} for seed, value in share[gap > 0].items())


def gains_in_words(tokens: pd.DataFrame) -> str:
    """Say where softmax and HYLA gain over linear attention."""
    means = tokens.groupby(["class", "kind"])["loss"].mean().unstack("kind")
    kinds = [kind for kind in KIND_TITLES if kind in means and kind != "linear"]
    if "linear" not in means or not kinds:
        return ""
    gains = means[kinds].rsub(means["linear"], axis="index").round(3) + 0.0  # no -0.000
    numbers = ", ".join(f"{KIND_TITLES[kind]} {gains[kind][REPEATED]:.3f} and "
                        f"{gains[kind][CONTROL]:.3f}" for kind in kinds)
    return ("Lower than the loss of linear attention on tokens that repeat an earlier pair, and on "
            f"the same pairs where they are new: {numbers}.")


def _figure(curves: pd.DataFrame, tokens: pd.DataFrame) -> Figure:
    """Return losses over tokens (A) and those of two classes at the end (B), as mean and range."""
    with panels(1, 2, 7.2, 2.8, width_ratios=(3, 2)) as (figure, ((left, right),)):
        for number, (kind, title) in enumerate(KIND_TITLES.items()):
            rows = curves[curves["kind"] == kind]
            if rows.empty:
                continue
            color, marker = KIND_STYLES[kind]
            values = rows.groupby("tokens")["value"]
            left.plot(values.mean(), color=color, marker=marker, markersize=3, label=title)
            left.fill_between(values.min().index, values.min(), values.max(), color=color,
                              alpha=0.2, linewidth=0)
            losses = tokens[tokens["kind"] == kind].groupby("class")["loss"].agg(
                ["mean", "min", "max"]).reindex([REPEATED, CONTROL])
            right.errorbar(np.arange(2) + 0.12 * (number - 1), losses["mean"], yerr=[
                losses["mean"] - losses["min"], losses["max"] - losses["mean"]], color=color,
                marker=marker, markersize=4, capsize=2, linestyle="")
        left.xaxis.set_major_locator(MaxNLocator(5))
        left.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
        left.set(xlabel="tokens", ylabel="loss on held-out text, nats", title="A")
        right.set_xticks([0, 1], ["repeats an\nearlier pair", "same pairs,\nwhere new"])
        right.set(xlim=(-0.5, 1.5), title="B")
        figure.legend(*left.get_legend_handles_labels(), loc="outside right upper")
    return figure


REPRODUCTIONS = (Reproduction(
    "fig6",
    "Language models: loss on held-out text over training, for softmax, linear and HYLA attention",
    SHOWS, measure),)
