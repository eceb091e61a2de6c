"""What heads cause, alone and together, and the codes across them: the stages after the metrics.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import pandas as pd

from latentcode.codes.rows import of_heads
from latentcode.errors import ConfigError, TooFewCountError, check
from latentcode.models.replay import check_shown
from latentcode.probes.common.results import where
from latentcode.probes.decoding import decode
from latentcode.probes.heads.causal import KINDS, HeadEffects, mean_z
from latentcode.probes.heads.clusters import cluster_codes, nearest_to_centres
from latentcode.probes.heads.interchange import interchange
from latentcode.probes.heads.networks import cluster_networks
from latentcode.probes.heads.sampling import HeadSample, PairSampler, heads_of
from latentcode.probes.heads.sets import find_sets
from latentcode.probes.heads.tables import APART, BEYOND, LABELS
from latentcode.probes.heads.texts import Texts
from latentcode.probes.heads.together import together
from latentcode.progress import Progress
from latentcode.prompts.pairs import PromptCounterfactuals
from latentcode.subjects.of_prompts import PromptSubject

INTERCHANGE, TELLS = "interchange", "tells"
SITES: Mapping[str, str] = {"z": "interchange z", "code": "interchange code"}
"""What tables call the patches of single heads, by site."""


@dataclass(frozen=True)
class Beyond:
    """What is asked beyond the metrics.

    effects    some of `mean`, `resample` and `interchange`
    tells      labels of prompts that are decoded from what each head attends to
    sets       whether sets of heads are searched
    codes      pairs whose codes over all heads are sampled, 0: none
    n_ablated  texts that heads are ablated in
    n_read     tokens of each of them that are read
    by_default  whether no effects were asked for: those that the model does not allow are left out
    """

    effects: tuple[str, ...]
    tells: tuple[str, ...]
    sets: bool
    codes: int
    n_ablated: int
    n_read: int
    controls: bool
    n_bootstrap: int
    seed: int
    by_default: bool

    @property
    def stages(self) -> list[str]:
        """The stages of the work, by name."""
        asked = {TELLS: self.tells, "effects": {*KINDS} & {*self.effects},
                 INTERCHANGE: INTERCHANGE in self.effects, "sets": self.sets, "codes": self.codes}
        return [name for name, wanted in asked.items() if wanted]


def chosen_effects(asked: Sequence[str] | None, texts: Texts, *, whole: bool) -> tuple[str, ...]:
    """Return which effects are measured; `ConfigError` for what the problems do not allow.

    asked  None: mean ablation where something is to be said, and interchange where there are
           sources; with `whole` resample ablation, too
    """
    sources = _sources(texts) is not None
    if asked is None:
        # Prompts without answers are read nowhere.
        says = any(bool(batch.read.any()) for batch in islice(texts, 1))
        ablations = (KINDS if whole else KINDS[:1]) if says else ()
        return (*ablations, *((INTERCHANGE,) if sources else ()))
    known = (*KINDS, INTERCHANGE)
    for name in asked:
        check(name in known, f"effects has {name!r}; expected some of {', '.join(known)}")
    check(INTERCHANGE not in asked or sources, "effects has 'interchange', and the problems have "
          "no sources; expected prompts in pairs (source, answer, source_answer) or a factorial "
          "(operation, operands, answer), with query and key")
    return tuple(dict.fromkeys(asked))


def check_measurable(model: Any, beyond: Beyond) -> None:
    """Raise `ConfigError`, before texts are read, where no effects of heads can be measured."""
    if not (beyond.effects or beyond.sets):
        return
    try:
        check_shown(model)
    except ConfigError as error:
        raise ConfigError(f"{error}; effects=[], and no sets, ask for what heads attend to "
                          "alone") from None


def chosen_labels(
    asked: Sequence[str], texts: Texts, *, whole: bool
) -> tuple[tuple[str, ...], list[str]]:
    """Return which labels are decoded, and notes on what cannot be.

    whole  where none are asked, those that the prompts are about and that differ among them

    `ConfigError` where the problems are no prompts, or prompts of different lengths.
    """
    check(not asked or texts.problems is not None, f"tells is {', '.join(asked)}, and texts have "
          "no labels of a query; expected prompts, with query, key and labels")
    problems = texts.problems
    if problems is None or not (asked or whole):
        return (), []
    assert isinstance(problems, PromptSubject)
    prompts = problems.prompts
    labels = tuple(asked) or tuple(
        name for name in problems.probe_labels if prompts.labels[name].nunique() > 1)
    lengths = {len(ids) for ids in prompts.tokenize(problems.of, problems.prepend_bos).ids}
    if not labels or len(lengths) == 1:
        return labels, []
    why = (f"prompts have {min(lengths)} to {max(lengths)} tokens, and what a head attends to is a "
           "number for every token")
    check(not asked, f"tells is {', '.join(asked)}; {why}: expected prompts of equally many tokens")
    return (), [f"Labels ({', '.join(labels)}) were not decoded: {why}."]


def _sources(texts: Texts) -> PromptCounterfactuals | None:
    """Return the pairs of prompts, of a factorial those that differ in the operation alone."""
    if texts.problems is None:
        return None
    try:
        found = texts.problems.counterfactuals(factorial=False)
    except ConfigError:  # prompts that are no pairs
        return None
    return found if isinstance(found, PromptCounterfactuals) else None


@dataclass
class Measured:
    """What has been measured beyond the metrics; after an interruption, so far.

    tables    those of `BEYOND` and `codes`, empty where nothing was asked
    settings  with `notes`, what was left out
    """

    tables: dict[str, pd.DataFrame] = field(default_factory=lambda: {
        **{name: pd.DataFrame(columns=list(columns)) for name, columns in BEYOND.items()},
        "codes": pd.DataFrame(columns=list(LABELS))})
    settings: dict[str, Any] = field(default_factory=lambda: {"notes": []})

    def add_effects(self, rows: pd.DataFrame) -> None:
        """Add rows to the table of effects."""
        effects = [rows] if self.tables["effects"].empty else [self.tables["effects"], rows]
        self.tables["effects"] = pd.concat(effects, ignore_index=True)[list(BEYOND["effects"])]


def measure(
    texts: Texts, beyond: Beyond, measured: Measured, progress: Mapping[str, Progress | None]
) -> Iterator[str]:
    """Measure what is asked, put it into `measured`, and yield each stage when it is finished."""
    settings = measured.settings
    few = texts.first(beyond.n_ablated)
    if beyond.tells:
        measured.add_effects(_told(texts, beyond, progress.get(TELLS)))
        yield TELLS
    kinds = tuple(name for name in beyond.effects if name in KINDS)
    if kinds:
        _ablate(texts, few, kinds, beyond, measured, progress.get("effects"))
        yield "effects"
    if INTERCHANGE in beyond.effects:
        try:
            rows, settings["interchange"] = _interchanged(texts, beyond, progress)
            measured.add_effects(rows)
        except TooFewCountError as error:
            if not beyond.by_default:
                raise
            settings["notes"].append(f"Interchange was left out: {error}")
        yield INTERCHANGE
    if beyond.sets:
        sets, above, settings["sets"] = find_sets(
            texts.model, few, n_read=beyond.n_read, n_bootstrap=beyond.n_bootstrap,
            seed=beyond.seed, progress=progress.get("sets"))
        measured.tables["sets"] = _apart(sets, above, ["set"])[list(BEYOND["sets"])]
        yield "sets"
    if beyond.codes:
        sampled, settings["codes"] = _across(texts, beyond, progress.get("codes"))
        measured.tables |= sampled
        yield "codes"


def _told(texts: Texts, beyond: Beyond, progress: Progress | None) -> pd.DataFrame:
    """Return how well labels of prompts are decoded from the row of each head at the query, beside
    the same of fresh weights; a head tells where it is above these."""
    assert texts.problems is not None
    names = of_heads(texts.model.model.cfg.n_heads)
    result = decode(texts.problems, labels=beyond.tells, features=names, metrics=["accuracy"],
                    controls=beyond.controls, n_bootstrap=beyond.n_bootstrap, seed=beyond.seed,
                    progress=progress)
    rows = []
    control = "untrained"
    for (label, layer), block in result.table.groupby(["label", "layer"], sort=False):
        of: Any = block.set_index("features")
        apart: Any = where(result.contrasts.table, label=label, layer=layer).set_index(
            ["features", "against"])
        for head, name in enumerate(names):
            row = {"patch": f"{TELLS} {label}", "layer": layer, "head": head,
                   "quantity": "accuracy", **of.loc[name, ["value", "low", "high"]],
                   "n": of.loc[name, "n_heldout"],
                   "n_clusters": of.loc[name, "n_heldout_combinations"]}
            if beyond.controls:
                fresh, beside = of.loc[f"{control} {name}"], apart.loc[name, f"{control} {name}"]
                row |= {"control": fresh["value"], "control_low": fresh["low"],
                        "control_high": fresh["high"], "against": control,
                        **dict(zip(APART, beside[["value", "low", "high"]], strict=True))}
            rows.append(row)
    return pd.DataFrame(rows, columns=list(BEYOND["effects"]))


def _interchanged(
    texts: Texts, beyond: Beyond, progress: Mapping[str, Progress | None]
) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Return how often the source's answer comes with what a head puts out there."""
    task = _sources(texts)
    assert task is not None
    split = "ood" if "split" in task.prompts.labels else "prompts"
    rows, contrasts, settings = interchange(
        texts.model, task, split=split, n_bootstrap=beyond.n_bootstrap, seed=beyond.seed,
        progress=progress.get(INTERCHANGE))
    rows, contrasts = (of.assign(patch=of["patch"].map(SITES)) for of in (rows, contrasts))
    return _apart(rows, contrasts, ["patch", "layer", "head", "quantity"]), settings


def _ablate(
    texts: Texts, few: Texts, kinds: tuple[str, ...], beyond: Beyond, measured: Measured,
    progress: Progress | None,
) -> None:
    """Ablate heads, batch after batch; after an interruption `measured` has those of the batches
    so far."""
    means = mean_z(texts.model, few) if "mean" in kinds else None
    effects = HeadEffects(texts.model, means, kinds=kinds, control=beyond.controls,
                          n_read=beyond.n_read, seed=beyond.seed)
    total = sum(1 for _ in few)
    done = 0

    def within(layers: int, n_layers: int) -> None:
        if progress is not None:
            progress(done * n_layers + layers, total * n_layers)

    try:
        for done, batch in enumerate(few):  # noqa: B007  (within)
            effects.read(batch, within)
    except KeyboardInterrupt:
        if effects.counts.any(axis=1).all():
            _add_ablations(effects, beyond, measured)
        raise
    _add_ablations(effects, beyond, measured)


def _add_ablations(effects: HeadEffects, beyond: Beyond, measured: Measured) -> None:
    rows, contrasts = effects.tables(beyond.n_bootstrap)
    measured.add_effects(_apart(rows, contrasts, ["patch", "layer", "head", "quantity"]))
    measured.settings["ablation"] = effects.settings


def _across(
    texts: Texts, beyond: Beyond, progress: Progress | None
) -> tuple[dict[str, pd.DataFrame], dict[str, Any]]:
    """Return what is found of codes over all heads."""
    sampler = PairSampler(texts.model, n=beyond.codes, seed=beyond.seed)
    for block in texts.blocks():
        for batch in block.batches:
            sampler.add(batch)
        if progress is not None:
            progress(min(block.after, texts.total), texts.total)
    sample = sampler.finish()
    some: dict[str, Any] = {"n_bootstrap": beyond.n_bootstrap, "seed": beyond.seed}
    clusters = cluster_codes(sample.codes, **some)
    networks = cluster_networks(texts.model, sample, clusters, seed=beyond.seed)
    return {
        "together": together(sample.codes, **some), "quality": clusters.quality,
        "clusters": clusters.clusters, "cluster_heads": clusters.heads,
        "examples": clusters.examples, "networks": networks.networks, "says": networks.says,
        "nearest": nearest_to_centres(sample.codes, clusters, seed=beyond.seed),
        "codes": as_table(sample)}, {
        "n": len(sample), "without_networks": {
            str(layer): why for layer, why in networks.left_out.items()}}


def as_table(sample: HeadSample) -> pd.DataFrame:
    """Return a row per pair: its labels, and the code of each head in a column such as `2.11`."""
    codes = sample.codes
    numbers = codes.scores[:, :, 0].reshape(len(codes), -1)
    named = [f"{layer}.{head}" for layer, head in heads_of(codes)]
    return pd.concat([codes.labels[list(LABELS)].reset_index(drop=True),
                      pd.DataFrame(numbers, columns=named)], axis=1)


def _apart(rows: pd.DataFrame, contrasts: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """Return rows with what they are above their control by."""
    found = contrasts.rename(columns=dict(zip(("value", "low", "high"), APART, strict=True)))
    kept = [*keys, *(["against"] if "against" in found else []), *APART]
    # Where there is nothing to compare, the columns would be of objects.
    found = found[kept].drop_duplicates(keys).astype(dict.fromkeys(APART, float))
    return rows.merge(found, on=keys, how="left")
