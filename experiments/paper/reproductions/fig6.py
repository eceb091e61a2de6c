"""Fig. 6: language models, the loss on held-out text over training for three kinds of attention.

And which tokens they predict well: the loss by what the text has shown before. A token repeats an
earlier pair where it follows the same token as earlier in the excerpt, `... A B ... A B`, so that
it can be copied (the induction pair). Such pairs are more frequent than others; their control are
the same pairs where they are new. Who knows nothing but which token follows which predicts both
equally well.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Int
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator
from torch import Tensor

from latentcode.experiments.paper.claims import Bound
from latentcode.experiments.paper.reproduction import (
    KIND_STYLES,
    KIND_TITLES,
    Findings,
    Reproduction,
    Work,
    about,
    by_preset,
    metric_evidence,
)
from latentcode.experiments.paper.reproductions.curves import short
from latentcode.experiments.paper.verdicts import COMPARED, evidence
from latentcode.experiments.paper.wording import NOTHING, count, sentences
from latentcode.figures.style import Figure
from latentcode.models.config import kind_of
from latentcode.models.flops import PEAKS, training_flops_per_token
from latentcode.models.hooks import evaluating
from latentcode.probes.common.figures import panels
from latentcode.runs import Run
from latentcode.tasks import make_task
from latentcode.tasks.text.task import Text
from latentcode.tasks.text.tokens import previous_same

SHOWS = by_preset("language", small=("task.text=text/packages",), smoke=("task.text=text/smoke",))
SPLIT, METRIC = "test", "loss"
GPU, UTILISATION = "H100", (0.4, 0.2)
"""The GPU that hours of a training are stated for, and what share of its peak rate (bfloat16) is
assumed: what we aim at, and half of it."""
REPEATED, CONTROL = "repeats an earlier pair", "the same pairs, where they are new"
NEW, ALL = "the pair is new", "all tokens"
BATCH = 32
NOTES = ("Loss is the mean cross-entropy per token, in nats.",
         "A token repeats an earlier pair where it follows the same token as earlier in its "
         "excerpt. The control are the same pairs, each as often, where they are new.")


def measure(work: Work) -> Findings:
    """Return the loss over training, at its end, and of tokens that can be copied."""
    found = list(work.runs_of(SHOWS[work.preset]))
    losses = {claim: metric_evidence(work, claim, METRIC, SPLIT) for claim in work.claims}
    proof = {claim.id: shares(table) if isinstance(claim.rule, Bound) else table
             for claim, table in losses.items()}
    if not found:
        return Findings(NOTHING, {"cost": price()}, evidence=proof, notes=(_price_note(),))
    curves = pd.concat([_curve(run).assign(**about(member, run)) for member, run in found])
    tokens = pd.concat([work.table(run, token_losses).assign(**about(member, run))
                        for member, run in found])
    final = curves[curves["step"] == curves.groupby("run")["step"].transform("max")]
    return Findings(
        summary=sentences(_of_kinds(final), gains_in_words(tokens)),
        tables={"final": final, "tokens": tokens, "cost": price()},
        figures={"fig6": _figure(curves, tokens)},
        evidence=proof,
        notes=(*NOTES, *_caveats(work, [run for _, run in found]), _price_note()),
        raw={"curves": curves})


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


def price() -> pd.DataFrame:
    """Return what a model of the published setting costs by arithmetic, a row per kind."""
    rows = []
    for config in SHOWS["paper"][0].grid.members().values():
        tokens = config.training.steps * config.training.batch_size * config.task.n_tokens
        flops = tokens * training_flops_per_token(config.model, config.task.n_tokens)
        least, most = (flops / (PEAKS[GPU]["bf16"] * share) / 3600 for share in UTILISATION)
        rows.append({"kind": kind_of(config.model), "flops": flops, "hours_least": least,
                     "hours_most": most})
    return pd.DataFrame(rows)


def _price_note() -> str:
    said = ", ".join(f"{KIND_TITLES[row['kind']]} {row['hours_least']:.0f} to "
                     f"{row['hours_most']:.0f}" for row in price().to_dict("records"))
    shares = " and ".join(f"{100 * share:.0f} %" for share in UTILISATION)
    return (f"Hours of one {GPU} for a model of the published setting (130 billion tokens), "
            f"by arithmetic at {shares} of its peak rate in bfloat16, which we have measured on no "
            f"GPU: {said}. The paper states 72 to 100 hours on 16 TPU v5e.")


def _caveats(work: Work, runs: Sequence[Run]) -> Iterator[str]:
    if work.preset != "paper":
        yield "Small models and little text: the numbers do not compare with the paper's."
    revisions = sorted({getattr(run.config.task, "revision", "") for run in runs})
    if len(revisions) > 1:
        yield (f"The runs are of {len(revisions)} states of the text ({', '.join(revisions)}), so "
               "that their losses do not compare.")


def _curve(run: Run) -> pd.DataFrame:
    table = run.metrics()
    table = table[(table["split"] == SPLIT) & (table["metric"] == METRIC) & (table["step"] > 0)]
    of_step = run.config.training.batch_size * run.config.task.n_tokens
    return pd.DataFrame({"step": table["step"], "tokens": table["step"] * of_step,
                         "value": table["mean"], "se": table["se"]})


def shares(losses: pd.DataFrame) -> pd.DataFrame:
    """(linear - HYLA) / (linear - softmax) of the runs of each seed, where softmax is ahead.

    losses  evidence with a row per run
    """
    kinds = losses["member"].str.extract(r"kind=(\w+)")[0]
    of_kind = losses.assign(kind=kinds).pivot(index="seed", columns="kind", values="value")
    complete = of_kind.reindex(columns=list(KIND_TITLES)).dropna()
    gap = complete["linear"] - complete["softmax"]
    share = (complete["linear"] - complete["hyla"]) / gap
    return evidence({"member": COMPARED, "run": f"seed {seed}", "seed": seed, "split_seed": seed,
                     "value": value} for seed, value in share[gap > 0].items())


def _range(values: pd.Series) -> str:
    said = f"{values.mean():.3f}"
    return said if len(values) == 1 else f"{said} ({values.min():.3f} to {values.max():.3f})"


def _of_kinds(final: pd.DataFrame) -> str:
    said = [f"{title} {_range(own['value'])}, {count(len(own), 'run')}"
            for kind, title in KIND_TITLES.items() if len(own := final[final["kind"] == kind])]
    return f"Loss on held-out text at the end of training: {'; '.join(said)}."


def gains_in_words(tokens: pd.DataFrame) -> str:
    """Say where softmax and HYLA gain over linear attention."""
    means = tokens.groupby(["class", "kind"])["loss"].mean().unstack("kind")
    kinds = [kind for kind in KIND_TITLES if kind in means and kind != "linear"]
    if "linear" not in means or not kinds:
        return ""
    gains = means[kinds].rsub(means["linear"], axis="index").round(3) + 0.0  # no -0.000
    said = ", ".join(" and ".join([f"{KIND_TITLES[kind]} {gains[kind][REPEATED]:.3f}",
                                   f"{gains[kind][CONTROL]:.3f}"]) for kind in kinds)
    return ("Lower than the loss of linear attention on tokens that repeat an earlier pair, and on "
            f"the same pairs where they are new: {said}.")


def _figure(curves: pd.DataFrame, tokens: pd.DataFrame) -> Figure:
    """Return losses over tokens (A) and those of two classes at the end (B), as mean and range."""
    with panels(1, 2, 7.2, 2.8, width_ratios=(3, 2)) as (figure, ((left, right),)):
        for place, (kind, title) in enumerate(KIND_TITLES.items()):
            _over_training(left, curves[curves["kind"] == kind], kind, title)
            _by_class(right, tokens[tokens["kind"] == kind], kind, 0.12 * (place - 1))
        left.xaxis.set_major_locator(MaxNLocator(5))
        left.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
        left.set(xlabel="tokens", ylabel="loss on held-out text, nats", title="A")
        right.set_xticks([0, 1], ["repeats an\nearlier pair", "same pairs,\nwhere new"])
        right.set(xlim=(-0.5, 1.5), title="B")
        figure.legend(*left.get_legend_handles_labels(), loc="outside right upper")
    return figure


def _over_training(axes: Axes, own: pd.DataFrame, kind: str, title: str) -> None:
    if own.empty:
        return
    color, marker = KIND_STYLES[kind]
    values = own.groupby("tokens")["value"]
    axes.plot(values.mean(), color=color, marker=marker, markersize=3, label=title)
    axes.fill_between(values.min().index, values.min(), values.max(), color=color, alpha=0.2,
                      linewidth=0)


def _by_class(axes: Axes, own: pd.DataFrame, kind: str, shift: float) -> None:
    color, marker = KIND_STYLES[kind]
    for place, name in enumerate((REPEATED, CONTROL)):
        losses = own.loc[own["class"] == name, "loss"]
        if len(losses):
            mean = losses.mean()
            axes.errorbar([place + shift], [mean], yerr=[[mean - losses.min()],
                                                         [losses.max() - mean]],
                          color=color, marker=marker, markersize=4, capsize=2)


REPRODUCTIONS = (Reproduction(
    "fig6",
    "Language models: loss on held-out text over training, for softmax, linear and HYLA attention",
    SHOWS, measure),)
