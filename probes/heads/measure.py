"""Measurement of all heads of a language model: metrics, effects, sets, codes across them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import pandas as pd

from latentcode.codes import LatentCodes
from latentcode.codes.features import of_heads
from latentcode.devices import available_memory, checked_seed
from latentcode.errors import (
    ConfigError,
    ProbeError,
    TooFewCountError,
    as_tuple,
    check,
    check_choice,
    check_count,
    check_whole,
)
from latentcode.figures.panels import heat_map, signed_norm
from latentcode.figures.style import Figure
from latentcode.files.storage import check_free
from latentcode.models.hooks import attention_layers
from latentcode.models.patched.heads import check_shown
from latentcode.models.pretrained import untrained
from latentcode.probes.common.figures import panels
from latentcode.probes.common.results import TableResult, parted, where
from latentcode.probes.common.statistics import NONE, Contrasts, check_bootstrap
from latentcode.probes.decoding import decode
from latentcode.probes.heads.ablate import (
    ABLATIONS,
    DIRECTIONS,
    EFFECTS,
    KINDS,
    Ablation,
    interchange,
)
from latentcode.probes.heads.clusters import (
    TABLES,
    cluster_codes,
    cluster_networks,
    heads_of,
    nearest_codes,
    nearest_to_centres,
    together,
)
from latentcode.probes.heads.codes import LABELS, SAMPLED, HeadSample, sample_codes
from latentcode.probes.heads.metrics import (
    COLUMNS,
    CONTRASTS,
    CONTROLS,
    DIFFERENCE,
    GROUPS,
    Observer,
    Sums,
    heads_table,
    observe_texts,
)
from latentcode.probes.heads.screen import ESTIMATE, Screen, label, parse_heads, screen
from latentcode.probes.heads.sets import SETS, find_sets
from latentcode.progress import Progress, say_doing, show_early, watched
from latentcode.prompts import LanguageModel
from latentcode.prompts.pairs import PromptCounterfactuals
from latentcode.prompts.texts import TOKENS_AT_ONCE, TextBatch, Texts
from latentcode.subjects.streams import stream_texts

if TYPE_CHECKING:
    from latentcode.subjects import Model, Problems

CODES = 5_000
"""Pairs that are sampled where all is asked."""
FRESH_HEADS, FRESH_MODELS = 40, 10
"""Of small models several are drawn, until there are so many fresh heads, or so many models."""
FEW_HEADS = 40
"""Models of so many heads at most have each of them ablated, in as many texts as sets of heads."""
N_ABLATED, N_ABLATED_OF_MANY, N_EXACT = 64, 16, 20
"""Texts that heads are ablated in, of models of few heads and of many."""
NAMES: Mapping[str, str] = {
    "distance": "distance (tokens)", "entropy": "entropy (nats)",
    "normalized_entropy": "entropy / largest", "direct_logit_attribution": "direct logits"}
"""Metrics as maps call them, where it is not their name."""
PATCHES: Mapping[str, str] = {
    "mean": "mean ablation ({})", "zero": "zero ablation ({})",
    "resample": "resample ablation ({})", ESTIMATE: "attribution patching ({})",
    "interchange z": "interchange of z ({})", "interchange code": "interchange of codes ({})"}
"""Names of effects, with what is measured."""
INTERCHANGES = tuple(PATCHES)[-2:]
N_NAMED = 3
"""Heads of each metric that sentences and the summary name."""
ROLES: Mapping[str, str] = {
    "previous_token": "previous token", "duplicate_token": "duplicate token",
    "induction": "induction", "first_token": "first-token sink"}
"""Metrics that name a role, and the role."""
ROLE = 0.4
"""Share of its attention from which on a head has a role."""
ACROSS = 4
"""Maps beside each other."""


@watched("looking at heads")
def heads(
    model: Model | Texts,
    problems: Problems | Iterable[str] = None,
    *,
    heads: Sequence[str] | str | None = None,
    layers: Sequence[int] | int | None = None,
    effects: Sequence[Literal["mean", "zero", "resample", "interchange"]] | str | None = None,
    tells: Sequence[str] | str = (),
    sets: bool = False,
    codes: int = 0,
    whole: bool = False,
    longest: int | None = None,
    n: int | None = None,
    n_exact: int | None = None,
    n_ablated: int | None = None,
    n_read: int = 64,
    tokens_at_once: int = TOKENS_AT_ONCE,
    prepend_bos: bool | None = None,
    controls: bool = True,
    n_bootstrap: int = 1_000,
    seed: int = 0,
    device: str | None = None,
    out: str | Path | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> HeadsResult:
    """Measure what heads attend to, what they cause, and which of them act together.

    For the equations see `metrics`, `ablate` (effects), `sets`, `codes` and `clusters` in
    `latentcode.probes.heads`. The control of metrics is the same architecture with fresh weights
    (of small models several) on the same texts; another head that learned nothing lies between
    `control_low` and `control_high` with 95 %. That of ablations is the same head with a random
    output matrix, of which eight are drawn; another one lies between these with 95 %. One forward
    pass per batch computes the metrics of all heads; memory is that of one batch and one layer's
    pattern.

    Where a model has many heads, a forward and backward pass estimates what ablating each of them
    does (attribution patching); the heads that this ranks first, and as many drawn at random, are
    ablated. The random ones say what the estimate is worth, and what it misses (`screen`).

    Args:
        model: A language model: see `subject`.
        problems: Texts: a list, a DataFrame with `text`, or a file, one text per line (.txt) or one
            object with `text` per line (.jsonl); or prompts, see `subject`, of which the `answer`
            comes next; or `repeated`, random tokens that come twice, of which the second
            occurrence is read; default: held-out excerpts of a run's own text.
        heads: Heads that are asked about, such as L18H6 or 18.6, each of which is ablated; default:
            all.
        layers: Layers whose heads are asked about, beside `heads`; default: none.
        effects: What is done to each head by itself: `mean`, `zero` and `resample` ablation and, on
            prompts with sources, `interchange`; default: mean ablation, and interchange where there
            are sources and the model answers enough of them. An empty list: nothing.
        tells: Labels of prompts that are decoded from what each head attends to at the query,
            beside heads of fresh weights (`decode` with features `row.head0` and so on); of prompts
            of equally many tokens.
        sets: Search for sets of heads that act together, redundant or synergetic.
        codes: Number of (query, key) pairs whose codes over all heads are clustered, compared and
            made value networks of; 0: none.
        whole: All effects, labels, sets, and 5,000 codes.
        longest: Tokens of a text, longer ones are cut; default: the context, and longer ones are an
            error.
        n: Number of texts; default: all, of a run's own text 512; of named heads, in a model of
            more than 40, the first 16.
        n_exact: Heads that are ablated of those that the estimate ranks first, and as many at
            random, where there are more than both together; default: 20. As many as there are
            heads: all, without an estimate. Not with `heads` or `layers`.
        n_ablated: Texts that heads and sets of heads are ablated in, the first ones; default: 64,
            for effects of a model of more than 40 heads 16.
        n_read: Tokens of each of these, drawn at random, after which it is measured what the model
            says.
        tokens_at_once: Tokens of one forward pass, padding included; less takes less memory.
        prepend_bos: Whether texts begin with the BOS token; default: as its tokenizer says.
        controls: Also measure untrained models, and what ablations are compared with; a result
            without them is marked.
        n_bootstrap: Replicates of the 95 % intervals, which resample the texts.
        seed: Seed of the untrained models and the bootstrap.
        device: `cpu` or `cuda`; default: cpu.
        out: A folder to write the result to. Interrupted (Ctrl-C), what was measured by then is
            saved in the folder `out.partial`, a result whose settings say in `partial` which parts
            are not finished.
        overwrite: Replace a result that `out` already holds.
        progress: Called with (tokens that passed through the model, of about how many), a backward
            pass counted as two.

    Raises:
        LatentCodeError: `ConfigError` for texts that are longer than the context, for a model
            without causal patterns and, of effects, one that does not show what its heads put out,
            `ArtifactError` for a file that cannot be read, `ProbeError` where memory does not
            suffice, `TooFewCountError` where interchange is asked for and the model answers too few
            prompts, and `RunError` for what `out` cannot take.
    """
    seed = checked_seed(seed)
    check_bootstrap(n_bootstrap)
    check_whole("codes", codes, 0, ProbeError)
    for name, count in (("n_exact", n_exact), ("n_ablated", n_ablated), ("n_read", n_read)):
        if count is not None:
            check_count(name, count)
    named_alone = heads is not None or layers is not None
    check(not named_alone or n_exact is None, f"n_exact is {n_exact}, and heads or layers say "
          "which heads are ablated; expected one or the other")
    check(not named_alone or not (sets or codes or whole), "heads or layers ask about some heads, "
          "and sets, codes and whole are of all; expected one or the other")
    texts = stream_texts(model, problems, longest=longest, n=n, tokens_at_once=tokens_at_once,
                         prepend_bos=prepend_bos, **({} if device is None else {"device": device}))
    language, bridge = texts.model, texts.model.model
    with_attention, n_heads = attention_layers(bridge), int(bridge.cfg.n_heads)
    named = parse_heads(bridge, heads, layers)
    n_all = len(with_attention) * n_heads
    if named is not None and n is None and n_all > FEW_HEADS:
        texts = texts.first(N_ABLATED_OF_MANY)
    pairs = _pairs(texts)
    labels, notes = _chosen_labels(as_tuple(tells), texts, whole=whole)
    chosen = _chosen_effects(effects, texts, whole=whole, paired=pairs is not None)
    kinds = tuple(name for name in chosen if name in ABLATIONS)
    _check_measurable(bridge, shown=bool(chosen) or sets or whole, controls=controls)
    observer, sums, fresh = Observer(bridge), Sums.zeros(len(with_attention), n_heads), list[Sums]()
    if out is not None:
        check_free(Path(out), overwrite=overwrite, marker=HeadsResult.marker())
    n_sets = n_ablated or N_ABLATED
    n_ablated = n_ablated or (N_ABLATED if n_all <= FEW_HEADS else N_ABLATED_OF_MANY)
    n_listed = n_exact or N_EXACT
    screened = bool(kinds) and named is None and 2 * n_listed < n_all
    n_effects = len(named or ()) or min(2 * n_listed, n_all)
    ablated = list(texts.first(n_ablated))
    screens: list[Screen] = []
    tables: dict[str, Any] = {name: [] for name in HeadsResult.COLUMNS}
    settings: dict[str, Any] = {
        **texts.settings, "n_directions": DIRECTIONS if controls else 0,
        "n_bootstrap": n_bootstrap, "seed": seed, "effects": list(chosen), "tells": list(labels),
        "n_heads": n_all, "heads": None if named is None else list(map(label, named)),
        "n_exact": n_listed if screened else None, "n_ablated": n_ablated, "n_read": n_read}
    resampling: dict[str, Any] = {"n_bootstrap": n_bootstrap, "seed": seed}

    def observe_fresh(progress: Progress | None, i: int) -> None:
        fresh_sums = Sums.zeros(len(with_attention), n_heads)
        observe_texts(Observer(untrained(bridge, seed + i)), texts, fresh_sums, progress)
        fresh.append(fresh_sums)

    def estimate(progress: Progress | None) -> None:
        screens.append(screen(
            language, ablated, n_exact=n_listed, zero="zero" in kinds and "mean" not in kinds,
            n_read=n_read, progress=progress, **resampling))
        tables["effects"].append(screens[0].estimates)

    def decode_labels(progress: Progress | None) -> None:
        tables["effects"].append(_decoded(
            texts.problems, labels, n_heads, controls=controls, progress=progress, **resampling))

    def ablate(progress: Progress | None) -> None:
        some, means = (screens[0].heads, screens[0].means) if screens else (named, None)
        ablation = Ablation(language, ablated, kinds=kinds, control=controls, n_read=n_read,
                            seed=seed, heads=some, means=means)
        try:
            ablation.run(progress)
        finally:  # after an interruption the table is of the batches so far
            if ablation.counts.any(axis=1).all():
                tables["effects"].append(ablation.table(n_bootstrap))
                settings["ablation"] = ablation.settings
        if screens:
            settings["screening"] = screens[0].settings(
                where(tables["effects"][-1], patch="mean" if "mean" in kinds else kinds[0]),
                **resampling)

    def exchange(progress: Progress | None) -> None:
        assert pairs is not None
        split = "ood" if "split" in pairs.prompts.labels else "prompts"
        try:
            rows, settings["interchange"] = interchange(
                language, pairs, split=split, progress=progress, **resampling,
                heads=screens[0].heads if screens else named)
            tables["effects"].append(rows.assign(patch="interchange " + rows["patch"]))
        except TooFewCountError as error:
            if effects is not None:
                raise
            notes.append(f"Interchange was left out: {error}")

    def search_sets(progress: Progress | None) -> None:
        rows, settings["sets"] = find_sets(
            language, list(texts.first(n_sets)), n_read=n_read, progress=progress, **resampling)
        tables["sets"].append(rows)

    def cluster(progress: Progress | None) -> None:
        sample = sample_codes(language, texts.batches(progress), n=codes or CODES, seed=seed)
        code_tables, settings["codes"] = _clustered(language, sample, **resampling)
        for name, table in code_tables.items():
            tables[name].append(table)

    def measured(**more: Any) -> HeadsResult:
        longer = [f"Answers of {len(texts.of_longer)} prompts have several tokens, of which the "
                  "first is read."] if texts.of_longer else []
        rows, contrasts = heads_table(with_attention, sums, fresh, **resampling)
        some = {**tables, "heads": [rows], "contrasts": [contrasts]}
        if named is not None:
            places = pd.DataFrame(named, columns=["layer", "head"])
            some = {name: [table.merge(places) if "head" in table else table for table in blocks]
                    for name, blocks in some.items()}
        return HeadsResult.from_rows(some, {
            **settings, "controls": ["untrained"] if fresh else [], "n_untrained": len(fresh),
            "n_texts": sums.n_texts, "n_groups": sums.n_groups, **more,
            "notes": [*observer.notes(), *notes, *longer]})

    n_fresh = min(math.ceil(FRESH_HEADS / n_all) if controls else 0, FRESH_MODELS)
    # What each costs, in tokens that pass through all layers.
    n_tokens, n_first = _n_tokens(texts, ablated, n_ablated)
    per_head = n_first * len(kinds) * (1 + controls)
    stages: list[tuple[str, Callable[[Progress | None], None], float, object]] = [
        ("model", partial(observe_texts, observer, texts, sums), n_tokens, True),
        ("estimates", estimate, 4 * n_first, screened),
        *((f"untrained-{i}", partial(observe_fresh, i=i), n_tokens, True) for i in range(n_fresh)),
        ("tells", decode_labels, 3 * n_tokens, labels),
        ("effects", ablate, n_effects * per_head / 2, kinds),
        ("interchange", exchange, 2 * n_effects * n_tokens, "interchange" in chosen),
        ("sets", search_sets, 40 * n_first, sets or whole),
        ("codes", cluster, n_tokens, codes or whole)]
    works = [stage[:3] for stage in stages if stage[3]]
    total, begun = max(1, round(sum(work for _, _, work in works))), 0.0
    unfinished = [name for name, _, _ in works]
    try:
        for name, stage, work in works:
            def report(done: int, of: int, name: str = name, begun: float = begun,
                       work: float = work) -> None:
                n_done = n_effects * done // max(of, 1)
                say_doing(progress, f"ablation: {n_done} of {n_effects} heads"
                          if name == "effects" else name, "tokens")
                if progress is not None:
                    progress(round(begun + work * done / max(of, 1)), total)

            report(0, 1)
            stage(report)
            begun += work
            unfinished.remove(name)
            if name == "estimates":
                show_early(progress, "metrics and estimates, before controls and ablation:",
                           lambda: measured(partial=unfinished).summary()[["metric", "largest"]])
    except KeyboardInterrupt as interruption:
        if out is not None and sums.n_texts > 0:
            folder = Path(out).with_name(f"{Path(out).name}.partial")
            measured(partial=unfinished).save(folder, overwrite=True)
            interruption.add_note(f"what was measured is saved in {folder}")
        raise
    result = measured()
    if out is not None:
        result.save(out, overwrite=overwrite)
    return result


def _n_tokens(texts: Texts, first: Sequence[TextBatch], n_first: int) -> tuple[float, int]:
    """Return about how many tokens all texts have, and how many the first ones."""
    n = sum(int(batch.lengths.sum()) for batch in first)
    rows = list(islice(texts.source.read(), n_first if texts.n is None else min(n_first, texts.n)))
    share = max(rows[-1].after / texts.source.total, len(rows) / texts.n if texts.n else 0.0)
    return n / min(share, 1.0), n


def _check_measurable(model: Any, *, shown: bool, controls: bool) -> None:
    """Raise `ProbeError` where there is no room for an untrained model, and `ConfigError` for a
    model that does not show what its heads put out."""
    if controls:
        weights = list(model.parameters())
        free, needed = available_memory(weights[0].device), sum(x.nbytes for x in weights)
        check(free is None or needed <= free, "memory does not suffice for the untrained model "
              f"beside this one: it takes {needed / 2**20:,.0f} MiB, and "
              f"{(free or 0) / 2**20:,.0f} are free; expected controls=False, or weights of a "
              "narrower type", ProbeError)
    if shown:
        try:
            check_shown(model)
        except ConfigError as error:
            raise ConfigError(f"{error}; effects=[], and no sets, ask for what heads attend to "
                              "alone") from None


def _chosen_effects(
    effects: Sequence[str] | str | None, texts: Texts, *, whole: bool, paired: bool
) -> tuple[str, ...]:
    """Return which effects are measured; `ConfigError` for what the problems do not allow."""
    if effects is None:
        # Prompts without answers are read nowhere.
        read = any(bool(batch.read.any()) for batch in islice(texts, 1))
        ablations = (KINDS if whole else KINDS[:1]) if read else ()
        return (*ablations, *(("interchange",) if paired else ()))
    known, effects = (*ABLATIONS, "interchange"), as_tuple(effects)
    for name in effects:
        check(name in known, f"effects has {name!r}; expected some of {', '.join(known)}")
    check("interchange" not in effects or paired, "effects has 'interchange', and the problems "
          "have no sources; expected prompts in pairs (source, answer, source_answer) or a "
          "factorial (operation, operands, answer), with query and key")
    return tuple(dict.fromkeys(effects))


def _chosen_labels(
    tells: Sequence[str], texts: Texts, *, whole: bool
) -> tuple[tuple[str, ...], list[str]]:
    """Return which labels are decoded, with `whole` all that differ, and notes on what cannot be.

    `ConfigError` where the problems are no prompts, or prompts of different lengths.
    """
    problems = texts.problems
    check(not tells or problems is not None, f"tells is {', '.join(tells)}, and texts have "
          "no labels of a query; expected prompts, with query, key and labels")
    if problems is None or not (tells or whole):
        return (), []
    prompts = problems.prompts
    labels = tuple(tells) or tuple(
        name for name in problems.probe_labels if prompts.labels[name].nunique() > 1)
    lengths = {len(ids) for ids in prompts.tokenize(
        problems.language_model, problems.prepend_bos).ids}
    if not labels or len(lengths) == 1:
        return labels, []
    why = (f"prompts have {min(lengths)} to {max(lengths)} tokens, and what a head attends to is a "
           "number for every token")
    check(not tells, f"tells is {', '.join(tells)}; {why}: expected prompts of equally many tokens")
    return (), [f"Labels ({', '.join(labels)}) were not decoded: {why}."]


def _pairs(texts: Texts) -> PromptCounterfactuals | None:
    """Return the pairs of prompts, of a factorial those that differ in the operation alone."""
    if texts.problems is None:
        return None
    try:
        pairs = texts.problems.counterfactuals(factorial=False)
    except ConfigError:  # prompts that are no pairs
        return None
    return pairs if isinstance(pairs, PromptCounterfactuals) else None


def _decoded(
    problems: Any, labels: Sequence[str], n_heads: int, *, controls: bool, n_bootstrap: int,
    seed: int, progress: Progress | None,
) -> pd.DataFrame:
    """Return effects: how labels of prompts are decoded from the row of each head at the query,
    beside that of heads with fresh weights."""
    names = of_heads(n_heads)
    result = decode(problems, labels=labels, features=names, metrics=["accuracy"],
                    controls=controls, seed=seed, n_bootstrap=n_bootstrap, progress=progress)
    scores, apart = parted(result.table), result.contrasts.table
    rows = where(scores[scores["features"].isin(names)], model="trained")
    rows = rows.assign(
        patch="tells " + rows["label"], head=rows["features"].map(names.index),
        quantity="accuracy", n=rows["n_heldout"], n_clusters=rows["n_heldout_combinations"])
    if controls:
        keys, ends = ["label", "layer", "features"], ["value", "low", "high"]
        for table, columns in ((where(scores, model="untrained"), CONTROLS), (
                apart[apart["against"].str.startswith("untrained")], DIFFERENCE)):
            table = table[keys + ends].rename(columns=dict(zip(ends, columns, strict=True)))
            rows = rows.merge(table, on=keys).assign(against="untrained")
    return rows.reindex(columns=list(EFFECTS))


def _clustered(
    model: LanguageModel, sample: HeadSample, *, n_bootstrap: int, seed: int
) -> tuple[dict[str, pd.DataFrame], dict[str, Any]]:
    """Return the tables of sampled codes over all heads, and settings."""
    codes = sample.codes
    names = [f"{layer}.{head}" for layer, head in heads_of(codes)]
    numbers = pd.DataFrame(codes.scores[:, :, 0].reshape(len(codes), -1), columns=names)
    clusters = cluster_codes(codes, n_bootstrap=n_bootstrap, seed=seed)
    networks, says, left_out = cluster_networks(model, sample, clusters, seed=seed)
    return {
        **clusters.tables, "networks": networks, "says": says,
        "together": together(codes, n_bootstrap=n_bootstrap, seed=seed),
        "nearest": nearest_to_centres(codes, clusters, seed=seed),
        "codes": pd.concat([codes.labels[list(LABELS)].reset_index(drop=True), numbers], axis=1),
    }, {"n": len(codes),
        "without_networks": {str(layer): reason for layer, reason in left_out.items()}}


@dataclass(frozen=True, repr=False)
class HeadsResult(TableResult):
    """What each head attends to, what it causes, and which heads act together.

    The metrics are those of `latentcode.probes.heads.metrics`. Intervals are 95 %
    bootstrap intervals (percentiles), which resample texts (of more than 256, groups of texts).

    Attributes:
        heads: One row per layer, head and metric: `value`, its 95 % interval `low`, `high`, and the
            same metric of heads with fresh weights on the same texts: `control`, their mean, and
            `control_low`, `control_high`, between which another such head lies with 95 %. `n` is
            how many queries (or read positions) the value is a mean over.
        effects: One row per patch (mean, zero, resample, interchange z or code; `attribution`, the
            estimate of all heads where some are ablated; or `tells` with a label that is decoded),
            layer, head and quantity: `value`, that of the `control`, and the
            `difference`, paired over the same tokens or pairs of prompts, each with its interval.
            Of ablations, that of the control is where one random output matrix lies with 95 %, and
            that of the difference is beyond 0 where the head does more, or less, than such a one
            would (`latentcode.probes.heads.ablate` has the equation).
        sets: One row per set of heads: the `effect` of ablating them together, the `sum` of what
            each does alone, on texts that they were not searched on, the `interaction` and how they
            act; `difference` is from random sets as large.
        together: The two heads whose codes go together most, over pairs of a query and a key.
        quality, clusters, cluster_heads, examples: Clusters of codes, layer by layer and over `all`
            (`latentcode.probes.heads.clusters.Clusters`).
        networks: The value network of each cluster's mean code; `says`: the tokens it promotes.
        nearest: The codes nearest to each cluster's mean code.
        codes: The pairs that were sampled: labels, and a column per head.
        settings: What else determines the numbers; after an interruption `partial` names the parts
            that are not finished. Where some heads were ablated `screening` names them, and has
            what the estimate is worth (`latentcode.probes.heads.screen`).
        contrasts: One row per layer, head and metric: the value less the mean of the control.
    """

    FORMAT = "latentcode.heads"
    CAPTION: ClassVar = "heads outside the interval of heads with fresh weights"
    COLUMNS: ClassVar = {
        "heads": COLUMNS, "effects": EFFECTS, "sets": SETS, **TABLES, "codes": LABELS,
        "contrasts": CONTRASTS}
    OPEN: ClassVar = ("codes",)
    BEST_PER: ClassVar = ("layer", "head")

    heads: pd.DataFrame
    effects: pd.DataFrame
    sets: pd.DataFrame
    together: pd.DataFrame
    quality: pd.DataFrame
    clusters: pd.DataFrame
    cluster_heads: pd.DataFrame
    examples: pd.DataFrame
    networks: pd.DataFrame
    says: pd.DataFrame
    nearest: pd.DataFrame
    codes: pd.DataFrame
    settings: Mapping[str, Any]
    contrasts: Contrasts = NONE

    @property
    def missing_controls(self) -> tuple[str, ...]:
        return () if "untrained" in self.settings["controls"] else ("untrained",)

    @property
    def caveats(self) -> tuple[str, ...]:
        notes = [*self.settings["notes"], *self.controls_caveat()]
        if "partial" in self.settings:
            notes.insert(0, "The call was interrupted; not finished: "
                         f"{', '.join(self.settings['partial'])}.")
        if not self.missing_controls:
            n = self.heads[["layer", "head"]].drop_duplicates().shape[0]
            n_fresh = self.settings.get("n_heads", n) * self.settings["n_untrained"]
            above = n * max(1 / 40, 1 / (n_fresh + 1))
            notes.append(f"Of {n} heads that learned nothing, about {above:.1f} are expected "
                         "above the interval of the control in each metric.")
            ablations = self.effects[self.effects["patch"].isin(ABLATIONS)]
            n = ablations[["layer", "head"]].drop_duplicates().shape[0]
            if n:
                notes.append(f"Of {n} heads with random output matrices, at most about "
                             f"{n / 40:.1f} are expected above the control of an ablation in each "
                             "quantity. Its interval is of eight such matrices, and wide where "
                             "texts are few.")
        if self.effects["patch"].isin(INTERCHANGES).any() or len(self.sets):
            notes.append("Intervals of interchange and of sets are over texts, so that differences "
                         "of no size are apart from nothing, too: of pairs of heads with random "
                         "weights a good part is (experiments/results/earlier.md). Look at the "
                         "sizes.")
        n_texts = int(self.settings["n_texts"])
        n_groups = int(self.settings["n_groups"])
        if n_groups < 2:
            notes.append("There is a single text, so that there are no intervals.")
        elif n_groups < min(n_texts, GROUPS):
            notes.append(f"{n_texts:,} texts count as {n_groups} in intervals: copies (texts of "
                         "the same tokens) and what is of one document or combination are one.")
        return tuple(notes)

    def said(self) -> list[str]:
        """Say which heads have the largest effects, which have a role, and how many of each metric
        are above controls."""
        sentences = []
        effects = self._effects()
        order = {patch: place for place, patch in enumerate(PATCHES)}
        for name, rows in _by_metric(effects.iloc[
                np.argsort(effects["patch"].map(order).fillna(len(order)), kind="stable")]):
            sentence = f"{name}: largest {_largest(rows)}"
            if rows["control"].notna().any():
                above, below = _outside(rows)
                sentence += f"; {above} of {len(rows)} heads surely above their control" + (
                    f" and {below} below" if below else "")
            sentences.append(sentence)
        if "screening" in self.settings:
            sentences.append(_screened(self.settings["screening"]))
        interacting = self.sets[(self.sets["how"] != "random") & (self.sets["acts"] != "additive")]
        if len(interacting):
            row = interacting.sort_values("interaction", key=abs).iloc[-1]
            interaction = _with_interval(row, "interaction", "interaction_low", "interaction_high")
            sentences.append(
                f"heads {row['heads']} are {row['acts']}: ablated together {_digits(row['effect'])}"
                f", one by one {_digits(row['sum'])} in sum (interaction {interaction})")
        elif len(self.sets):
            sentences.append("no set of heads is more or less than the sum of its heads")
        sentences += self._roles()
        for metric, rows in _by_metric(self.marked()):
            name = metric.replace("_", " ")
            if self.missing_controls:
                sentences.append(f"{name}: largest {_largest(rows)}")
                continue
            above, below = _outside(rows)
            if above + below:
                most = f"largest {_largest(rows)}" if above else (
                    f"smallest {_largest(rows, ascending=True)}")
                first = rows.iloc[0]
                sentences.append(
                    f"{name}: {most}; {above} of {len(rows)} heads above and {below} below those "
                    f"of untrained models ({first['control_low']:.3f} to "
                    f"{first['control_high']:.3f})")
        if self.missing_controls:
            return [*sentences, self.contrasts.reason]
        return sentences or ["no head is outside the interval of untrained ones in any metric"]

    def _roles(self) -> list[str]:
        """Say which heads attend by a role: with `ROLE` of it, and above untrained heads."""
        table, roles = self.marked(), []
        for metric, role in ROLES.items():
            rows = table[(table["metric"] == metric) & (table["value"] >= ROLE) & (
                (table["outside"] == 1) | bool(self.missing_controls))]
            if len(rows):
                more = f" and {len(rows) - N_NAMED} more" if len(rows) > N_NAMED else ""
                roles.append(f"{role} " + ", ".join(
                    f"{label((int(row['layer']), int(row['head'])))} {_digits(row['value'])}"
                    for _, row in rows.nlargest(N_NAMED, "value").iterrows()) + more)
        return [f"roles, of at least {ROLE} of a head's attention: {'; '.join(roles)}"
                ] if roles else []

    def summary(self) -> pd.DataFrame:
        """Return, per metric, the control, how many heads are outside it, and the largest."""
        rows = []
        for metric, block in _by_metric(self._drawn()):
            value, low, high = block.iloc[0][list(CONTROLS)]
            above, below = _outside(block)
            control = {} if self.missing_controls else {
                "control": f"{value:.3f} [{low:.3f}, {high:.3f}]" if pd.notna(value)
                           else "by head", "above": above, "below": below}
            rows.append({"metric": metric, **control, "largest": _largest(block)})
        return pd.DataFrame(rows)

    def marked(self) -> pd.DataFrame:
        """Return the table of heads with a column `outside`: 1 where a head is surely above the
        interval of untrained ones, -1 where it is below, else 0.

        The interval of its difference from their mean has to be beyond that of theirs: texts that
        raise a metric in all heads raise it in both.
        """
        apart = self.contrasts.table.rename(columns={"quantity": "metric"})
        both = self.heads.merge(apart, on=["layer", "head", "metric"], how="left",
                                suffixes=("", "_apart"))
        above = both["low_apart"] > both["control_high"] - both["control"]
        below = both["high_apart"] < both["control_low"] - both["control"]
        return self.heads.assign(outside=(above.astype(int) - below.astype(int)).to_numpy())

    def _effects(self) -> pd.DataFrame:
        """Return the first quantity of each effect, as a metric with the mark `outside`."""
        first = self.effects.groupby("patch", sort=False)["quantity"].transform("first")
        rows = self.effects[self.effects["quantity"] == first]
        names = [PATCHES.get(str(patch), f"{patch} ({{}})").format(quantity)
                 for patch, quantity in zip(rows["patch"], rows["quantity"], strict=True)]
        return rows.assign(metric=names, outside=(rows["difference_low"] > 0).astype(int)
                           - (rows["difference_high"] < 0).astype(int))

    def _drawn(self) -> pd.DataFrame:
        """Return what is drawn and summed up: metrics and effects, whose control is one by head."""
        metrics, effects = self.marked(), self._effects()
        if effects.empty:
            return metrics
        no_control = dict.fromkeys(CONTROLS, np.nan)
        return pd.concat([metrics, effects.assign(**no_control)[list(metrics)]], ignore_index=True)

    def nearest_codes(self, to: Any, **options: Any) -> pd.DataFrame:
        """Return the sampled pairs whose codes are nearest to a row of `codes`, or to a code;
        options as in `latentcode.probes.heads.clusters.nearest_codes`."""
        return nearest_codes(self.sampled(), to, **options)

    def sampled(self) -> LatentCodes:
        """Return the sampled codes as a data set; `ProbeError` where there are none."""
        check(len(self.codes) > 0, "no codes were sampled; expected lc.heads(..., codes=5_000)",
              ProbeError)
        scores = self.codes.drop(columns=list(LABELS))
        layers = tuple(dict.fromkeys(int(str(name).partition(".")[0]) for name in scores))
        numbers = scores.to_numpy(np.float32).reshape(len(scores), len(layers), 1, -1)
        return LatentCodes(numbers, self.codes[list(LABELS)], (SAMPLED,), layers, {})

    def matrix(self, metric: str, column: str = "value") -> pd.DataFrame:
        """Return a metric of all heads, layers [L] by heads [H]."""
        check_choice("metric", metric, self.heads["metric"].unique())
        return where(self.heads, metric=metric).pivot(
            index="layer", columns="head", values=column)

    def figure(self) -> Figure:
        """Return a map of layers and heads for each metric; dots mark heads outside the control."""
        marked = "" if self.missing_controls else (
            "; dots: outside 95 % of untrained heads" + (
                ", of effects apart from the control" if len(self.effects) else ""))
        table = self._drawn()
        metrics = dict(_by_metric(table))
        across = min(ACROSS, len(metrics))
        down = math.ceil(len(metrics) / across)
        width = float(np.clip(0.14 * table["head"].nunique(), 1.6, 4.0)) + 0.9
        height = float(np.clip(0.14 * table["layer"].nunique(), 1.0, 4.0)) + 0.75
        with panels(down, across, width * across, height * down,
                    f"{self.settings['run']}{marked}") as (figure, grid):
            for axes in grid.flat[len(metrics):]:
                axes.set_axis_off()
            for axes, (metric, rows) in zip(grid.flat, metrics.items(), strict=False):
                matrix = rows.pivot(index="layer", columns="head", values="value").reindex(
                    index=sorted(table["layer"].unique()), columns=sorted(table["head"].unique()))
                norm = signed_norm(np.nan_to_num(matrix.to_numpy()))
                drawn = heat_map(axes, matrix, norm, fontsize=6.0)
                outside = rows[rows["outside"] != 0]
                across_at, down_at = (axis.get_indexer(pd.Index(outside[name])) for axis, name in (
                    (matrix.columns, "head"), (matrix.index, "layer")))
                axes.plot(across_at, down_at, ".", color="white", markeredgecolor="black",
                          markeredgewidth=0.4, markersize=3.5)
                axes.set_title(NAMES.get(metric, metric.replace("_", " ")), fontsize=8.0)
                figure.colorbar(drawn, ax=axes, shrink=0.8)
            for axes in grid[:, 0]:
                axes.set_ylabel("layer")
            for axes in grid.flat[max(0, len(metrics) - across):len(metrics)]:
                axes.set_xlabel("head")  # the lowest of a column
        return figure


def _screened(screening: Mapping[str, Any]) -> str:
    """Say which heads were ablated, and what the estimate that chose them is worth."""
    n_ranked, n_outside = len(screening["ranked"]), screening["n_outside"]
    n_others, missed = screening["n_heads"] - n_ranked, screening["missed"]
    row = pd.Series(screening)[["correlation", "low", "high"]].astype(float)
    outside = (f"{len(missed)} of {n_outside} random heads outside the list do more than "
               f"{screening['last']}, its last ({', '.join(missed)}), as would about "
               f"{len(missed) * n_others / n_outside:.0f} of all {n_others}" if missed else
               f"none of {n_outside} random heads outside the list does more than its last, "
               f"{screening['last']}")
    return (f"of {screening['n_heads']} heads the {n_ranked} that attribution patching ranks first "
            f"and {len(screening['random'])} at random were ablated: of the random ones the rank "
            f"correlation of estimate and effect is {_with_interval(row, *row.index)}; {outside}")


def _by_metric(table: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield the rows of each metric that has values, in order of appearance."""
    for name, rows in table.groupby("metric", sort=False):
        if rows["value"].notna().any():
            yield str(name), rows


def _outside(rows: pd.DataFrame) -> tuple[int, int]:
    """Count the heads above their control, and those below."""
    return int((rows["outside"] == 1).sum()), int((rows["outside"] == -1).sum())


def _largest(rows: pd.DataFrame, ascending: bool = False) -> str:
    """Name the heads of the largest values, each with its interval; effects with their control."""
    rows = rows.sort_values("value", ascending=ascending).head(N_NAMED)
    return "; ".join(
        f"{label((int(row['layer']), int(row['head'])))} "
        f"{_with_interval(row, 'value', 'low', 'high')}"
        + (f" (control {_with_interval(row, *CONTROLS)})"
           if "difference" in row and pd.notna(row["control"]) else "")
        for _, row in rows.iterrows())


def _with_interval(row: pd.Series, *columns: str) -> str:
    value, low, high = (_digits(row[column]) for column in columns)
    return value + (f" [{low}, {high}]" if pd.notna(row[columns[1]]) else "")


def _digits(value: float) -> str:
    """Return a number with two digits after the point or, where these would be zeros (one head of
    many does little), with its first two: 3.47, 0.05, 0.0012."""
    return f"{value:.2g}" if 0.0 < abs(value) < 0.01 else f"{value + 0.0:.2f}"  # no -0.00
