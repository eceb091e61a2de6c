"""Distributed alignment search: which subspace carries the operation, or the operands, alone?

    h <- h + R R^T (h' - h)

h, h' [d] are an activation of the base's response and of its source's, which has another operation
and other operands. R [d, k] is an orthonormal basis that is trained to change what comes out
(Geiger et al., CLeaR 2024): the Q of the QR decomposition of a free matrix, so that every step of
the optimiser leaves it orthonormal.

A place is a site and a layer: `code`, the row of the response (H codes for each of K keys), `z`,
what the H heads put out for it before W_O, or `residual`, the stream of the response's token that
enters the layer. Of our models what lies below a place is computed once, and only what follows from
it again for every patch; any other model passes through as a whole, with a hook at the place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from latentcode.devices import checked_seed, make_generator
from latentcode.errors import ProbeError, as_tuple, check, check_choice, check_count, chosen
from latentcode.figures.style import GREY, PALETTE, Figure
from latentcode.metrics import CLASSES
from latentcode.models.hooks import attention_layers, check_layer, evaluating, locked
from latentcode.models.kernels.fused import written_out
from latentcode.models.patched.passes import (
    Output,
    clean_pass,
    computed_by_layers,
    run_from,
    unshared,
)
from latentcode.models.patched.sites import Place, check_written
from latentcode.models.pretrained import untrained as with_fresh_weights
from latentcode.probes.common.figures import panels, reach
from latentcode.probes.common.results import TableResult, blocks, where, with_interval
from latentcode.probes.common.statistics import (
    LEVEL,
    NONE,
    Contrasts,
    check_bootstrap,
    contrast_columns,
    mean_and_interval,
    paired_rates,
)
from latentcode.probes.interventions.intervention import CORE
from latentcode.probes.interventions.patches import PATCHES, lacked
from latentcode.progress import Progress, reported, watched
from latentcode.subjects import subject as opened
from latentcode.tasks.counterfactuals import Counterfactuals, MinimalPairs

if TYPE_CHECKING:
    from latentcode.subjects import Model, Problems, Split

OBJECTIVES = ("operation", "operands")
"""Classes of answers that a search can be trained towards: B(x), and A(x')."""
SEARCHES = ("trained", "shuffled", "untrained")
DAS_SITES = ("code", "z", "residual")
BATCH = 250
"""Instances that are passed through the model at once, at most."""
FLOATS, GRADIENT_FLOATS = 2**24, 2**26
"""Numbers that a pass may hold at once, without and with gradients: 64 and 256 MB of float32."""
ANSWERED = ("bases", "sources", *CORE)
"""Problems that the model has to answer rightly for a pair to count."""
SOURCE = "operation+operands"
"""The source that searches are trained with, and that tells the classes apart."""
SCORED = (SOURCE, "interchange", "operands", "control", "unrelated")
"""Patches whose sources' coordinates are put into each subspace, but those that the task lacks."""
WINDOW = 50
"""Steps whose losses are averaged, to see whether they still fall."""
LEAST_GAIN = 0.01
"""A search ends where a window's mean loss is not below the last one's by this share of it."""
STYLES = {"trained": (PALETTE[0], "o"), "shuffled": (PALETTE[1], "s"),
          "untrained": (PALETTE[2], "^"), "random": (GREY, "v")}


@watched("searches")
def das(
    model: Model,
    problems: Problems | Counterfactuals = None,
    objective: str | Sequence[str] = "operation",
    *,
    site: str = "code",
    layer: int | None = None,
    rank: int | Sequence[int] = 4,
    searches: Sequence[str] = SEARCHES,
    split: Split = "ood",
    n_train: int | None = None,
    n: int | None = None,
    heldout: float = 0.3,
    steps: int = 300,
    batch_size: int = 64,
    learning_rate: float = 0.01,
    step: int | None = None,
    n_bootstrap: int = 1_000,
    seed: int = 0,
    device: str | None = None,
    progress: Progress | None = None,
) -> DASResult:
    """Find a subspace whose interchange brings the source's operation alone.

    h + R R^T (h' - h): for which R does the source's operation arrive, and its operands do not? R
    is trained on training combinations (distributed alignment search, Geiger et al. 2024), with the
    model as it is, and scored on held-out ones.

    Args:
        model: See `subject`.
        problems: See `subject`; of prompts a factorial, with the columns `operation` and
            `operands`; default: the run's own task. Or the pairs of a model in hand, which has
            `cfg` and `run_with_hooks`: `make_counterfactuals(make_task(...))`.
        objective: `operation`, towards B(x), `operands`, towards A(x'), or both; of a source with
            another operation B and other operands x'.
        site: `code`, the row of the response in a layer, `z`, what the heads put out for it before
            W_O, or `residual`, the stream of the response's token that enters the layer.
        layer: The layer that is written; default: the last.
        rank: Dimensions of the subspace, or several numbers of them.
        searches: Some of `trained`, and of the controls `shuffled` and `untrained` (see
            `DASResult`).
        split: Combinations whose pairs the subspaces are scored on; they are trained on pairs of
            `train`.
        n_train: Pairs drawn for training; default: 2,048, of prompts all, each of which is a base
            at most once.
        n: Pairs drawn for scoring; default: 600, of prompts all, each of which is a base at most
            once.
        heldout: Share of the combinations of prompts to hold out, where they have no column
            `split`.
        steps: Updates by Adam; a search ends early where its loss is flat.
        batch_size: Pairs of one update.
        learning_rate: Learning rate of Adam.
        step: The checkpoint of a run; default: the newest.
        n_bootstrap: Replicates of the 95 % intervals, which resample the combinations.
        seed: Seed of everything that is drawn.
        device: `cpu` or `cuda`; default: cpu.
        progress: Called with (searches done, in all).

    Raises:
        LatentCodeError: What `subject` raises.
        ConfigError: The problems have no minimal pairs, an argument does not fit, or the model does
            not go on with what is written at the place.
        ProbeError: The model has no hooks, a rank is above d, or no pair counts.
    """
    seed, ranks = checked_seed(seed), as_tuple(rank)
    objectives = chosen("objective", objective, OBJECTIVES)
    searches = chosen("search", searches, SEARCHES)
    check_choice("site", site, DAS_SITES)
    check_count("rank", min(ranks))
    check_count("steps", steps)
    check_bootstrap(n_bootstrap)
    models: dict[str, Any] = {"trained": model}
    settings: Mapping[str, Any] = {}
    if isinstance(problems, Counterfactuals):
        task = problems
        n_train, n = 2_048 if n_train is None else n_train, 600 if n is None else n
        if "untrained" in searches:
            models["untrained"] = with_fresh_weights(model, seed)
    else:
        subject = opened(model, problems, step=step, device=device).divided(
            heldout, seed, "operation")
        task, settings = subject.counterfactuals(), subject.settings
        models = {name: subject.model(untrained=name == "untrained", seed=seed)
                  for name in ("trained", "untrained") if name in ("trained", *searches)}
        n_train = subject.n_of("n_train", n_train, 2_048, "train")
        n = subject.n_of("n", n, 600, split)
        split = split if subject.has_splits else "prompts"
    network = models["trained"]
    check(task.factorial, "these pairs have no factorial of sources; expected make_counterfactuals("
          "task) of a task that offers one, or prompts with the columns operation and operands")
    if layer is None:
        layer = network.cfg.n_layers - 1 if site == "residual" else attention_layers(network)[-1]
    check_layer(network, layer, attention=site != "residual")
    model_device = next(network.parameters()).device
    tables: dict[str, list[dict[str, Any]]] = {name: [] for name in DASResult.COLUMNS}
    outcomes: dict[tuple[str, str, int], Mapping[str, pd.DataFrame]] = {}
    with ExitStack() as reading:
        for each in models.values():
            reading.enter_context(locked(each))
            reading.enter_context(task.reading(each))
        prepared = {name: Search.prepared(each, task, (site, layer), n_train=n_train, n=n,
                                          split=split, known=name == "trained", seed=seed)
                    for name, each in models.items()}
        trained = prepared["trained"]
        check(max(ranks) <= trained.d, f"rank is {max(ranks)}; expected at most {trained.d}, the "
              f"dimensions of {site} in layer {layer}", ProbeError)
        plan = [*product(objectives, searches, ranks),
                *(("none", "random", k) for k in ranks), ("none", "whole", trained.d)]
        for goal, name, k in reported(plan, len(plan), progress):
            search = prepared.get(name, trained)
            losses: list[float] = []
            # "subspaces" names streams of random numbers, which another name would change.
            stream = "random" if name == "random" else f"{goal} {name}"
            generator = make_generator(seed, f"subspaces {stream} {k}", model_device)
            if name == "whole":
                basis = torch.eye(k, device=model_device)
            elif name == "random":
                basis = random_basis(search.d, k, generator)
            else:
                basis, losses = search.fit(
                    goal, k, shuffled=name == "shuffled", generator=generator, steps=steps,
                    batch_size=batch_size, learning_rate=learning_rate)
            rates, outcomes[goal, name, k] = search.scored(basis, n_bootstrap, seed)
            place = {"objective": goal, "search": name}
            tables["table"] += [{**place, **row} for row in rates]
            tables["curves"] += [
                {**place, "rank": k, "step": end, "loss": np.mean(losses[end - WINDOW:end])}
                for end in range(WINDOW, len(losses) + 1, WINDOW)]
    for goal, k in product(objectives, ranks if "trained" in searches else ()):
        controls = [(goal, "shuffled", k), (goal, "untrained", k), ("none", "random", k),
                    ("none", "whole", trained.d)]
        there = [key for key in controls if key in outcomes]
        for key, source in product(there, trained.heldout.sources):
            differences = paired_rates(outcomes[goal, "trained", k][source],
                                       outcomes[key][source], list(CLASSES), n_bootstrap, seed)
            tables["contrasts"] += [
                {"objective": goal, "rank": k, "source": source, "class": kind,
                 "search": "trained", "quantity": "rate", "against": key[1], **row}
                for kind, row in zip(CLASSES, differences, strict=True)]
    return DASResult.from_rows(tables, {
        **settings, "objectives": list(objectives), "site": site,
        "layer": layer, "d": trained.d, "ranks": list(ranks), "searches": list(searches),
        "split": split, "n_train": n_train, "n_train_known": len(trained.train), "n": n,
        "n_known": len(trained.heldout), "steps": steps, "batch_size": batch_size,
        "learning_rate": learning_rate, "seed": seed, "n_bootstrap": n_bootstrap, "level": LEVEL})


@dataclass(frozen=True)
class Search:
    """Pairs to train a subspace on, and others to score it on.

    train, heldout  what `model` computes of them below `place`
    """

    model: Any
    task: Counterfactuals
    place: Place
    train: CachedPairs
    heldout: CachedPairs

    @classmethod
    def prepared(
        cls, model: Any, task: Counterfactuals, place: Place, *, n_train: int, n: int, split: str,
        known: bool, seed: int,
    ) -> Search:
        """Draw the pairs and pass them through the model; arguments as in `das`."""
        device = next(model.parameters()).device
        scored = tuple(name for name in SCORED if not lacked(PATCHES[name], task.lacking))
        # "subspaces" names streams of random numbers, which another name would change.
        return cls(model, task, place, *(
            cached_pairs(model, task, place, sources, split=name, n=size, known=known,
                         generator=make_generator(seed, f"subspaces {use} {name}", device))
            for use, name, size, sources in (
                ("train", "train", n_train, (SOURCE,)), ("score", split, n, scored))))

    @property
    def d(self) -> int:
        """The number of dimensions of the place."""
        return self.train.own.shape[1]

    def fit(
        self, objective: str, rank: int, *, shuffled: bool, generator: torch.Generator, steps: int,
        batch_size: int, learning_rate: float,
    ) -> tuple[Tensor, list[float]]:
        """Return a basis [d, k] of the subspace that brings the objective's answer from the source
        (`SOURCE`), and the loss of every step; it ends where that no longer falls.

        shuffled  ask for the answers of other training pairs

        `ProbeError` where a loss is not finite.
        """
        train = self.train
        assert train.pairs.candidates is not None
        targets = train.pairs.candidates[:, list(CLASSES).index(objective)]
        if shuffled:
            targets = targets[torch.randperm(len(train), generator=generator,
                                             device=generator.device)]
        free = random_basis(self.d, rank, generator).requires_grad_()
        optimizer = torch.optim.Adam([free], lr=learning_rate)
        losses: list[float] = []
        size = batch_of(self.model, train.pairs, self.place[1], GRADIENT_FLOATS)
        with evaluating(self.model), without_gradients(self.model), torch.enable_grad():
            for step in range(steps):
                rows = torch.randint(len(train), (batch_size,), generator=generator,
                                     device=generator.device)
                optimizer.zero_grad()
                losses.append(0.0)
                for part in rows.split(size):  # whose gradients add up to that of the batch
                    written = interchange(
                        train.own[part], train.sources[SOURCE][part], torch.linalg.qr(free).Q)
                    logits = logits_from(self.model, self.place, train, part, written)
                    answer = logits[torch.arange(len(part), device=part.device), train.token[part]]
                    value = self.task.loss(answer, targets[part])
                    value = value if len(part) == batch_size else value * (len(part) / batch_size)
                    value.backward(inputs=[free])
                    losses[-1] += float(value.detach())
                optimizer.step()
                check(losses[-1] == losses[-1], f"the loss of step {step} is {losses[-1]}; "
                      "expected a finite one", ProbeError)
                if len(losses) % WINDOW == 0 and len(losses) >= 2 * WINDOW:
                    before, now = sum(losses[-2 * WINDOW:-WINDOW]), sum(losses[-WINDOW:])
                    if now > (1.0 - LEAST_GAIN) * before:
                        break
        return torch.linalg.qr(free.detach()).Q, losses

    def scored(
        self, basis: Float[Tensor, "d k"], n_bootstrap: int, seed: int
    ) -> tuple[list[dict[str, Any]], dict[str, pd.DataFrame]]:
        """Return the rate of each class of answers, for each source of `SCORED` that there is.

        Then the outcomes by source, a row per instance that counts: its `number`, `combination` and
        `CLASSES`.
        """
        held, rows, frames = self.heldout, [], {}
        for name in held.sources:
            count = held.right[name].nonzero()[:, 0]
            pairs = held.pairs.with_sources(PATCHES[name].source)
            outcomes = []
            with evaluating(self.model):
                for part in count.split(batch_of(self.model, pairs)):
                    written = interchange(held.own[part], held.sources[name][part], basis)
                    clean = held.clean[part]
                    outcomes.append(self.task.outcomes(pairs[part], clean, clean, logits_from(
                        self.model, self.place, held, part, written)))
            rows_of = count.cpu().numpy()
            frame = frames[name] = pd.DataFrame({
                "number": held.number.cpu().numpy()[rows_of],
                "combination": held.pairs.bases.combination.cpu().numpy()[rows_of],
                **{kind: torch.cat([part[kind] for part in outcomes]).double().cpu().numpy()
                   for kind in CLASSES}}, index=rows_of)
            means, low, high, n_clusters = mean_and_interval(
                frame[list(CLASSES)].to_numpy(), frame["combination"].to_numpy(), n_bootstrap, seed)
            rows += [{"rank": basis.shape[1], "source": name, "class": kind, "value": means[i],
                      "low": low[i], "high": high[i], "n": len(frame),
                      "n_combinations": n_clusters} for i, kind in enumerate(CLASSES)]
        return rows, frames


def interchange(
    own: Float[Tensor, "B d"], source: Float[Tensor, "B d"], basis: Float[Tensor, "d k"]
) -> Float[Tensor, "B d"]:
    """h + R R^T (h' - h): the source's coordinates within a subspace, one's own outside of it."""
    return own + (source - own) @ basis @ basis.T


def batch_of(model: Any, pairs: MinimalPairs, first: int = 0, floats: int = FLOATS) -> int:
    """Return how many pairs pass through a model at once, so that it holds few numbers.

    T L D of the residual streams and V logits for each; with gradients, from layer `first` on,
    about 24 T D for each layer: what linear maps, norms and the MLP keep of their inputs.
    """
    width = pairs.bases.inputs.shape[1] * model.cfg.d_model
    layers = model.cfg.n_layers - first
    each = width * layers * (24 if floats == GRADIENT_FLOATS else 1)
    vocabulary = max(0, getattr(model.cfg, "d_vocab", 0))
    return max(1, min(BATCH, floats // (each + vocabulary)))


@contextmanager
def without_gradients(model: torch.nn.Module) -> Iterator[None]:
    """Let no weight ask for a gradient: what that would need of a pass is not kept."""
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    for weight in weights:
        weight.requires_grad_(False)
    try:
        yield
    finally:
        for weight in weights:
            weight.requires_grad_(True)


def random_basis(d: int, rank: int, generator: torch.Generator) -> Float[Tensor, "d k"]:
    """Return an orthonormal basis of a random subspace, of the generator's device."""
    basis: Tensor = torch.linalg.qr(
        torch.randn(d, rank, generator=generator, device=generator.device)).Q
    return basis


@dataclass(frozen=True)
class CachedPairs:
    """N pairs that count, and what a model computes of them below a place.

    clean   [N, T, V], the logits of the bases
    entering  what enters the layer in the bases; None where passes share nothing
    query   int64 [N], the position of the response, where is written
    token   int64 [N], where the answer is read (`Counterfactuals.answer_token`)
    own     [N, d], the activation of the bases at the place
    sources  patch -> [N, d], that of the sources
    right    patch -> bool [N], whether the model answers the source rightly
    number   int64 [N], which of the pairs that were drawn each is
    """

    pairs: MinimalPairs
    clean: Tensor
    entering: Output | None
    query: Tensor
    token: Tensor
    own: Tensor
    sources: Mapping[str, Tensor]
    right: Mapping[str, Tensor]
    number: Tensor

    def __len__(self) -> int:
        return len(self.query)


def cached_pairs(
    model: Any, task: Counterfactuals, place: Place, sources: tuple[str, ...], *, split: str,
    n: int, known: bool, generator: torch.Generator,
) -> CachedPairs:
    """Return those of n pairs of a split that count, and what a model computes of them.

    sources  patches whose sources are wanted (`PATCHES`)
    known   only pairs whose problems (`ANSWERED`) the model answers rightly
    """
    pairs = task.sample(split, n, generator)
    pairs = pairs[pairs.counts.nonzero()[:, 0]]
    query = task.scope("row", pairs).any(2).long().argmax(1)
    if not computed_by_layers(model):
        check_written(model, pairs.bases.inputs[:2], [place])
    size = batch_of(model, pairs)
    clean, own, entering = _passed(model, pairs.bases.inputs, place, query, size,
                                   shared=not unshared(model))
    kept = task.right(pairs, clean, "bases") if known else torch.ones_like(pairs.counts)
    activations: dict[str, Tensor] = {}
    right: dict[str, Tensor] = {}
    batches = sorted({PATCHES[name].source for name in sources})
    for name in dict.fromkeys((*(ANSWERED[1:] if known else ()), *batches)):
        logits, activations[name], _ = _passed(model, pairs.batch(name).inputs, place, query, size,
                                               shared=computed_by_layers(model))
        # Whether the model answers a problem that shares nothing does not matter.
        right[name] = (task.right(pairs, logits, name) if known and name != "unrelated"
                       else torch.ones_like(kept))
        if name in ANSWERED:
            kept = kept & right[name]
    rows = kept.nonzero()[:, 0]
    check(len(rows) >= 2, f"of {n} instances of {split}, the model gives the four different "
          f"answers in {len(rows)}; expected at least two. Is it trained, and n large "
          f"enough?{task.doubt}", ProbeError)
    return CachedPairs(
        pairs[rows], clean[rows], None if entering is None else entering[rows], query[rows],
        task.answer_token(pairs)[rows], own[rows],
        {name: activations[PATCHES[name].source][rows] for name in sources},
        {name: right[PATCHES[name].source][rows] for name in sources}, rows)


def _passed(
    model: Any, inputs: Tensor, place: Place, query: Tensor, size: int, *, shared: bool
) -> tuple[Tensor, Tensor, Output | None]:
    """Return the logits, the response's activation at a place [N, d] and what enters its layer,
    where that is shared."""
    logits, own, below = [], [], []
    for x, at in zip(inputs.split(size), query.split(size), strict=True):
        with written_out():
            clean = clean_pass(model, x, [place], shown=True, shared=shared)
        logits.append(clean.logits)
        below.append(clean.layers[place[1]].entering)
        activation, rows = clean.at(place), torch.arange(len(at), device=at.device)
        # [B, H, Q, K] -> [B, H K], [B, T, H, d] -> [B, H d], [B, T, D] -> [B, D]
        vectors = activation[rows, :, at] if place[0] == "code" else activation[rows, at]
        # A subspace of few bits would hardly be orthonormal.
        own.append(vectors.flatten(1).to(torch.promote_types(vectors.dtype, torch.float32)))
    streams = [kept.first for kept in below if kept is not None]
    entering = below[0]
    return torch.cat(logits), torch.cat(own), None if entering is None else replace(
        entering, first=torch.cat(streams))


def logits_from(
    model: Any, place: Place, held: CachedPairs, rows: Int[Tensor, "B"],
    written: Float[Tensor, "B d"],
) -> Float[Tensor, "B t V"]:
    """Return the logits of some pairs' bases where their activation at the place is `written`.

    Of our models those before the first response are not computed again.
    """
    query = held.query[rows]
    n_tokens = held.pairs.bases.inputs.shape[1]
    here = torch.arange(n_tokens, device=query.device) == query[:, None]  # [B, T]

    def put(activation: Tensor) -> Tensor:
        queries = 2 if place[0] == "code" else 1  # their axis: [B, H, Q, K], else [B, T, ...]
        shape, mask = [*activation.shape], [len(rows)] + [1] * (activation.ndim - 1)
        shape[queries], mask[queries] = 1, activation.shape[queries]
        return torch.where(here[:, -activation.shape[queries]:].reshape(mask),
                           written.to(activation.dtype).view(shape), activation)

    first = int(held.query.min()) if computed_by_layers(model) else 0
    with written_out():  # fits and scores alike: the kernels for codes have no gradients
        logits = run_from(model, place[1], None if held.entering is None else held.entering[rows],
                          {place: put}, n_tokens - first, inputs=held.pairs.bases.inputs[rows],
                          cut=True)
    return torch.cat([held.clean[rows, :first], logits], 1)


@dataclass(frozen=True, repr=False)
class DASResult(TableResult):
    """What came of a source's coordinates in subspaces of an activation, on held-out combinations.

    Searches: `trained` towards the objective; `shuffled`, the same with the targets of other
    training pairs; `untrained`, the same in the model's initial weights, over all pairs; `random`,
    a subspace that was drawn; `whole`, all dimensions (its `rank` is their number).

    table    one row per objective (`none` where nothing was trained), search, rank, source and
             class of answers (`CLASSES`): `value`, the rate, its 95 % interval `low`, `high`
             clustered by combination, instances `n` and combinations
    curves   one row per objective, search, rank and window of steps that ends at `step`: the mean
             `loss` (cross-entropy in nats, or squared error)
    contrasts  one row per objective, rank, source and class: the rate of the `trained` search less
             that of each other search of the same rank and of all dimensions, over the pairs that
             both count
    settings everything else that determines the numbers
    """

    FORMAT = "latentcode.subspaces"
    CAPTION = ("distributed alignment search: classes of answers, sources with another operation "
               "and other operands")
    COLUMNS: ClassVar = {
        "table": ("objective", "search", "rank", "source", "class", "value", "low", "high", "n",
                  "n_combinations"),
        "curves": ("objective", "search", "rank", "step", "loss"),
        "contrasts": contrast_columns("objective", "rank", "source", "class", "search")}
    BEST_PER: ClassVar = ("rank",)
    HEADLINE_ROWS: ClassVar = {"source": (SOURCE,), "class": ("operation", "operands")}

    table: pd.DataFrame
    curves: pd.DataFrame
    settings: Mapping[str, Any]
    contrasts: Contrasts = NONE

    @property
    def caveats(self) -> tuple[str, ...]:
        s = self.settings
        missing = [name for name in ("shuffled", "untrained")
                   if name not in set(self.table["search"])]
        return (f"Trained on {s['n_train_known']} pairs of training combinations, scored on "
                f"{s['n_known']} of {s['split']}, whose four answers differ and which the model "
                "answers.",
                *([f"Without controls: {', '.join(missing)}."] if missing else []))

    def summary(self) -> pd.DataFrame:
        """Return one row per search and rank, and the rate of each class with its interval."""
        rows = []
        told_apart = where(self.table, source=SOURCE)
        for named, block in blocks(told_apart, ("objective", "search", "rank")):
            rates = {row["class"]: with_interval(row) for _, row in block.iterrows()}
            rows.append({**named, **rates, "n": int(block["n"].iloc[0])})
        return pd.DataFrame(rows)

    def figure(self) -> Figure:
        """Return the rate of each objective's class over ranks, and below the losses over steps.

        A line per search; the dashed line is the rate where the whole activation is written; bars
        are 95 % intervals.
        """
        table, columns = where(self.table, source=SOURCE), self.settings["objectives"]
        with panels(2, len(columns), 4.1 * len(columns), 5.2) as (figure, grid):
            for (rates, losses), objective in zip(grid.T, columns, strict=True):
                rows = table[table["objective"].isin([objective, "none"])
                             & table["class"].eq(objective)].sort_values("rank")
                for search, (color, marker) in STYLES.items():
                    block = where(rows, search=search)
                    if len(block):
                        rates.errorbar(block["rank"], block["value"], yerr=reach(block),
                                       color=color, marker=marker, markersize=4, linewidth=1.0,
                                       label=search)
                for whole in where(rows, search="whole")["value"]:
                    rates.axhline(whole, color=GREY, linestyle="--", linewidth=1.0, label="whole")
                rates.set_xscale("log", base=2)
                rates.set(xlabel="rank", ylabel=f"rate of {objective}", ylim=(-0.03, 1.03))
                rates.legend(fontsize=7)
                for place, block in blocks(where(self.curves, objective=objective),
                                           ("search", "rank")):
                    losses.plot(block["step"], block["loss"], color=STYLES[place["search"]][0],
                                linewidth=0.6 + 0.3 * np.log2(place["rank"] + 1.0))
                losses.set(xlabel="step", ylabel="loss (thicker: higher rank)")
        return figure
