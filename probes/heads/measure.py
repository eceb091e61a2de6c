"""Measurement of all heads of a language model: metrics, effects, sets, codes across them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pandas as pd

from latentcode.codes.features import of_heads
from latentcode.devices import available_memory, checked_seed
from latentcode.errors import (
    ConfigError,
    ProbeError,
    TooFewCountError,
    as_tuple,
    check,
    check_count,
    check_whole,
)
from latentcode.files.storage import check_free
from latentcode.models.hooks import attention_layers
from latentcode.models.patched.heads import check_shown
from latentcode.models.pretrained import untrained
from latentcode.probes.common.statistics import check_bootstrap
from latentcode.probes.decoding import decode
from latentcode.probes.heads.ablate import DIRECTIONS, KINDS, Ablation, interchange
from latentcode.probes.heads.clusters import (
    CONTROLS,
    DIFFERENCE,
    cluster_codes,
    heads_of,
    nearest_to_centres,
    together,
)
from latentcode.probes.heads.codes import cluster_networks, sample_codes
from latentcode.probes.heads.metrics import Observer, Sums, heads_table, observe_texts
from latentcode.probes.heads.result import EFFECTS, LABELS, HeadsResult
from latentcode.probes.heads.sets import find_sets
from latentcode.progress import Progress, say_doing, watched
from latentcode.prompts.pairs import PromptCounterfactuals
from latentcode.prompts.texts import TOKENS_AT_ONCE, TextBatch, Texts
from latentcode.subjects.streams import stream_texts

if TYPE_CHECKING:
    from latentcode.subjects import Model, Problems

CODES = 5_000
"""Pairs that are sampled where all is asked."""
FRESH_HEADS, FRESH_MODELS = 40, 10
"""Of small models several are drawn, until there are so many fresh heads, or so many models."""
INTERCHANGE, TELLS = "interchange", "tells"


@watched("looking at heads")
def heads(
    model: Model | Texts,
    problems: Problems | Iterable[str] = None,
    *,
    effects: Sequence[Literal["mean", "resample", "interchange"]] | str | None = None,
    tells: Sequence[str] | str = (),
    sets: bool = False,
    codes: int = 0,
    whole: bool = False,
    longest: int | None = None,
    n: int | None = None,
    n_ablated: int = 64,
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

    For the equations see `metrics`, `ablate` (effects), `sets`
    and `codes` in `latentcode.probes.heads`.
    The control of metrics is the same architecture with fresh weights (of small models several) on
    the same texts; another head that learned nothing lies between `control_low` and `control_high`
    with 95 %. That of ablations is the same head with a random output matrix, of which eight are
    drawn; another one lies between these with 95 %. One forward pass per batch computes the metrics
    of all heads; memory is that of one batch and one layer's pattern.

    Args:
        model: A language model: see `subject`.
        problems: Texts: a list, a DataFrame with `text`, or a file, one text per line (.txt) or one
            object with `text` per line (.jsonl); or prompts, see `subject`, of which the `answer`
            comes next; default: held-out excerpts of a run's own text.
        effects: What is done to each head by itself: `mean` and `resample` ablation and, on prompts
            with sources, `interchange`; default: mean ablation, and interchange where there are
            sources and the model answers enough of them. An empty list: nothing.
        tells: Labels of prompts that are decoded from what each head attends to at the query,
            beside heads of fresh weights (`decode` with features `row.head0` and so on); of prompts
            of equally many tokens.
        sets: Search for sets of heads that act together, redundant or synergetic.
        codes: Number of (query, key) pairs whose codes over all heads are clustered, compared and
            made value networks of; 0: none.
        whole: All effects, labels, sets, and 5,000 codes.
        longest: Tokens of a text, longer ones are cut; default: the context, and longer ones are an
            error.
        n: Number of texts; default: all, of a run's own text 512.
        n_ablated: Texts that heads and sets of heads are ablated in, the first ones.
        n_read: Tokens of each of these, drawn at random, after which it is measured what the model
            says.
        tokens_at_once: Tokens of one forward pass, padding included; less takes less memory.
        prepend_bos: Whether texts begin with the BOS token; default: as its tokenizer does
            says.
        controls: Also measure untrained models, and what ablations are compared with; a result
            without them is marked.
        n_bootstrap: Replicates of the 95 % intervals, which resample the texts.
        seed: Seed of the untrained models and the bootstrap.
        device: `cpu` or `cuda`; default: cpu.
        out: A folder to write the result to. Interrupted (Ctrl-C), what was measured by then is
            saved in the folder `out.partial`, a result whose settings say in `partial` which parts
            are not finished.
        overwrite: Replace a result that `out` already holds.
        progress: Called with (how much of the texts is read, of all) over the model and its
            controls.

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
    for name, count in (("n_ablated", n_ablated), ("n_read", n_read)):
        check_count(name, count)
    texts = stream_texts(model, problems, longest=longest, n=n, tokens_at_once=tokens_at_once,
                         prepend_bos=prepend_bos, **({} if device is None else {"device": device}))
    labels, notes = _chosen_labels(as_tuple(tells), texts, whole=whole)
    measurement = Measurement(
        texts, _chosen_effects(effects, texts, whole=whole), labels, sets or whole,
        codes or (CODES if whole else 0), n_ablated, n_read, controls, n_bootstrap, seed,
        interchange_asked=effects is not None, notes=notes)
    if out is not None:
        check_free(Path(out), overwrite=overwrite, marker=HeadsResult.marker())
    stages = measurement.stages()
    finished: list[str] = []
    try:
        for name, stage in stages.items():
            def report(done: int, total: int, name: str = name, begun: int = len(finished)) -> None:
                say_doing(progress, name)
                if progress is not None:
                    progress(begun * total + done, len(stages) * total)

            stage(report)
            finished.append(name)
    except KeyboardInterrupt as interruption:
        if out is not None and measurement.sums.n_texts > 0:
            folder = Path(out).with_name(f"{Path(out).name}.partial")
            unfinished = [name for name in stages if name not in finished]
            measurement.result(partial=unfinished).save(folder, overwrite=True)
            interruption.add_note(f"what was measured is saved in {folder}")
        raise
    result = measurement.result()
    if out is not None:
        result.save(out, overwrite=overwrite)
    return result


@dataclass
class Measurement:
    """What is asked of the heads of a model, and what was measured of it so far.

    Raises:
        LatentCodeError: `ConfigError`, before texts are read, where heads cannot be measured, and
            `ProbeError` where there is no room for an untrained model.
    """

    texts: Texts
    effects: tuple[str, ...]
    tells: tuple[str, ...]
    sets: bool
    codes: int
    n_ablated: int
    n_read: int
    controls: bool
    n_bootstrap: int
    seed: int
    interchange_asked: bool
    notes: list[str]
    tables: dict[str, pd.DataFrame] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    fresh: list[Sums] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.model: Any = self.texts.model.model
        if self.controls:  # is there room for a second model, the untrained one?
            weights = list(self.model.parameters())
            free = available_memory(weights[0].device)
            needed = sum(weight.numel() * weight.element_size() for weight in weights)
            check(free is None or needed <= free, "memory does not suffice for the untrained model "
                  f"beside this one: it takes {needed / 2**20:,.0f} MiB, and "
                  f"{(free or 0) / 2**20:,.0f} are free; expected controls=False, or weights of a "
                  "narrower type", ProbeError)
        if self.effects or self.sets:
            try:
                check_shown(self.model)
            except ConfigError as error:
                raise ConfigError(f"{error}; effects=[], and no sets, ask for what heads attend to "
                                  "alone") from None
        self.layers, self.n_heads = attention_layers(self.model), int(self.model.cfg.n_heads)
        self.kinds = tuple(name for name in self.effects if name in KINDS)
        self.observer = Observer(self.model)
        self.sums = Sums.zeros(len(self.layers), self.n_heads)

    def stages(self) -> dict[str, Callable[[Progress | None], None]]:
        """Return the parts of the work, in order; each adds to what was measured."""
        stages: dict[str, Callable[[Progress | None], None]] = {
            "model": partial(observe_texts, self.observer, self.texts, self.sums)}
        n = len(self.layers) * self.n_heads
        for i in range(min(math.ceil(FRESH_HEADS / n), FRESH_MODELS) if self.controls else 0):
            stages[f"untrained-{i}"] = partial(self._observe_fresh, i)
        return stages | {name: stage for name, stage, wanted in (
            (TELLS, self._decode, self.tells), ("effects", self._ablate, self.kinds),
            (INTERCHANGE, self._interchange, INTERCHANGE in self.effects),
            ("sets", self._find_sets, self.sets), ("codes", self._cluster, self.codes)) if wanted}

    def result(self, **partial: Any) -> HeadsResult:
        """Return what was measured so far."""
        table, contrasts = heads_table(self.layers, self.sums, self.fresh,
                                       n_bootstrap=self.n_bootstrap, seed=self.seed)
        tables = {name: self.tables.get(name, pd.DataFrame(columns=list(columns)))
                  for name, columns in HeadsResult.COLUMNS.items()
                  if name not in ("heads", "contrasts")}
        return HeadsResult(heads=table, contrasts=contrasts, **tables, settings={
            **self.texts.settings, "controls": ["untrained"] if self.fresh else [],
            "n_untrained": len(self.fresh), "n_directions": DIRECTIONS if self.controls else 0,
            "n_bootstrap": self.n_bootstrap, "seed": self.seed, "effects": list(self.effects),
            "tells": list(self.tells), "n_ablated": self.n_ablated, "n_read": self.n_read,
            **self.settings, "n_texts": self.sums.n_texts, "n_groups": self.sums.n_groups,
            **partial, "notes": [*self.observer.notes(), *self.notes]})

    @cached_property
    def _few(self) -> list[TextBatch]:
        """The texts that heads are ablated in."""
        return list(self.texts.first(self.n_ablated))

    def _add_effects(self, rows: pd.DataFrame) -> None:
        self.tables["effects"] = pd.concat([self.tables.get("effects"), rows], ignore_index=True)

    def _observe_fresh(self, i: int, progress: Progress | None) -> None:
        sums = Sums.zeros(len(self.layers), self.n_heads)
        observer = Observer(untrained(self.model, self.seed + i))
        observe_texts(observer, self.texts, sums, progress)
        self.fresh.append(sums)

    def _decode(self, progress: Progress | None) -> None:
        """Decode labels of prompts from the row of each head at the query, beside the same of fresh
        weights; a head tells where it is above these."""
        names = of_heads(self.n_heads)
        result = decode(self.texts.problems, labels=self.tells, features=names,
                        metrics=["accuracy"], controls=self.controls, seed=self.seed,
                        n_bootstrap=self.n_bootstrap, progress=progress)
        scores, apart = result.table, result.contrasts.table
        rows = scores[scores["features"].isin(names)]
        rows = rows.assign(
            patch=f"{TELLS} " + rows["label"], head=rows["features"].map(names.index),
            quantity="accuracy", n=rows["n_heldout"], n_clusters=rows["n_heldout_combinations"])
        if self.controls:
            fresh = scores.assign(features=scores["features"].str.removeprefix("untrained "))[
                scores["features"].str.startswith("untrained ")]
            apart = apart[apart["against"].str.startswith("untrained")]
            keys, ends = ["label", "layer", "features"], ["value", "low", "high"]
            for table, columns in ((fresh, CONTROLS), (apart, DIFFERENCE)):
                table = table[keys + ends].rename(columns=dict(zip(ends, columns, strict=True)))
                rows = rows.merge(table, on=keys).assign(against="untrained")
        self._add_effects(rows.reindex(columns=list(EFFECTS)))

    def _ablate(self, progress: Progress | None) -> None:
        """Ablate heads; after an interruption the table is of the batches so far."""
        ablation = Ablation(self.texts.model, self._few, kinds=self.kinds, control=self.controls,
                            n_read=self.n_read, seed=self.seed)

        def add() -> None:
            self._add_effects(ablation.table(self.n_bootstrap))
            self.settings["ablation"] = ablation.settings

        try:
            ablation.run(progress)
        except KeyboardInterrupt:
            if ablation.counts.any(axis=1).all():
                add()
            raise
        add()

    def _interchange(self, progress: Progress | None) -> None:
        task = _sources(self.texts)
        assert task is not None
        split = "ood" if "split" in task.prompts.labels else "prompts"
        try:
            rows, self.settings[INTERCHANGE] = interchange(
                self.texts.model, task, split=split, n_bootstrap=self.n_bootstrap, seed=self.seed,
                progress=progress)
        except TooFewCountError as error:
            if self.interchange_asked:
                raise
            self.notes.append(f"Interchange was left out: {error}")
        else:
            self._add_effects(rows.assign(patch=f"{INTERCHANGE} " + rows["patch"]))

    def _find_sets(self, progress: Progress | None) -> None:
        self.tables["sets"], self.settings["sets"] = find_sets(
            self.texts.model, self._few, n_read=self.n_read, n_bootstrap=self.n_bootstrap,
            seed=self.seed, progress=progress)

    def _cluster(self, progress: Progress | None) -> None:
        """Sample codes over all heads, and cluster and compare them."""
        sample = sample_codes(self.texts.model, self.texts.batches(progress), n=self.codes,
                              seed=self.seed)
        codes = sample.codes
        numbers = pd.DataFrame(codes.scores[:, :, 0].reshape(len(codes), -1),
                               columns=[f"{layer}.{head}" for layer, head in heads_of(codes)])
        clusters = cluster_codes(codes, n_bootstrap=self.n_bootstrap, seed=self.seed)
        networks, says, left_out = cluster_networks(
            self.texts.model, sample, clusters, seed=self.seed)
        self.tables |= {
            "together": together(codes, n_bootstrap=self.n_bootstrap, seed=self.seed),
            "quality": clusters.quality, "clusters": clusters.clusters,
            "cluster_heads": clusters.heads, "examples": clusters.examples, "networks": networks,
            "says": says, "nearest": nearest_to_centres(codes, clusters, seed=self.seed),
            "codes": pd.concat([codes.labels[list(LABELS)].reset_index(drop=True), numbers],
                               axis=1)}
        self.settings["codes"] = {
            "n": len(codes),
            "without_networks": {str(layer): reason for layer, reason in left_out.items()}}


def _chosen_effects(
    effects: Sequence[str] | str | None, texts: Texts, *, whole: bool
) -> tuple[str, ...]:
    """Return which effects are measured; `ConfigError` for what the problems do not allow.

    By default mean ablation where something is to be said, and interchange where there are sources;
    with `whole` resample ablation, too.
    """
    sources = _sources(texts) is not None
    if effects is None:
        # Prompts without answers are read nowhere.
        read = any(bool(batch.read.any()) for batch in islice(texts, 1))
        ablations = (KINDS if whole else KINDS[:1]) if read else ()
        return (*ablations, *((INTERCHANGE,) if sources else ()))
    known, effects = (*KINDS, INTERCHANGE), as_tuple(effects)
    for name in effects:
        check(name in known, f"effects has {name!r}; expected some of {', '.join(known)}")
    check(INTERCHANGE not in effects or sources, "effects has 'interchange', and the problems have "
          "no sources; expected prompts in pairs (source, answer, source_answer) or a factorial "
          "(operation, operands, answer), with query and key")
    return tuple(dict.fromkeys(effects))


def _chosen_labels(
    tells: Sequence[str], texts: Texts, *, whole: bool
) -> tuple[tuple[str, ...], list[str]]:
    """Return which labels are decoded, and notes on what cannot be.

    With `whole`, where none are asked, those that the prompts are about and that differ among them.
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


def _sources(texts: Texts) -> PromptCounterfactuals | None:
    """Return the pairs of prompts, of a factorial those that differ in the operation alone."""
    if texts.problems is None:
        return None
    try:
        pairs = texts.problems.counterfactuals(factorial=False)
    except ConfigError:  # prompts that are no pairs
        return None
    return pairs if isinstance(pairs, PromptCounterfactuals) else None
