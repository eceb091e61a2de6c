"""Which heads of a language model attend to what, what do they cause, and which act together?"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from latentcode.arguments import as_tuple
from latentcode.errors import ProbeError, check, check_count, check_whole
from latentcode.files.storage import check_free
from latentcode.models.layers import attention_layers
from latentcode.models.memory import available
from latentcode.models.untrained import untrained
from latentcode.probes.heads.causal import DIRECTIONS
from latentcode.probes.heads.observing import OBSERVED, Observer, Sums, heads_table, observe_texts
from latentcode.probes.heads.result import HeadsResult
from latentcode.probes.heads.stages import (
    Beyond,
    Measured,
    check_measurable,
    chosen_effects,
    chosen_labels,
    measure,
)
from latentcode.probes.heads.texts import TOKENS_AT_ONCE, Texts, read_texts
from latentcode.progress import Progress, say_doing, watched
from latentcode.seeds import checked_seed

if TYPE_CHECKING:
    from latentcode.subjects import Model, Problems

CODES = 5_000
"""Pairs that are sampled where all is asked."""
FRESH_HEADS, FRESH_MODELS = 40, 10
"""Of small models several are drawn, until there are so many fresh heads, or so many models."""


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

    For the equations see `metrics`, `direct` (metrics), `causal`, `interchange` (effects), `sets`,
    `together`, `clusters`, `networks` and `nearest` in `latentcode.probes.heads`.
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
    check_count("n_bootstrap", n_bootstrap, 100, ProbeError)
    check_whole("codes", codes, 0, ProbeError)
    texts = read_texts(model, problems, longest=longest, n=n, tokens_at_once=tokens_at_once,
                       prepend_bos=prepend_bos, **({} if device is None else {"device": device}))
    bridge = texts.model.model
    layers = attention_layers(bridge)
    n_heads = len(layers) * int(bridge.cfg.n_heads)
    n_fresh = min(math.ceil(FRESH_HEADS / n_heads), FRESH_MODELS) if controls else 0
    if controls:
        _check_memory(bridge)
    labels, left_out = chosen_labels(as_tuple(tells), texts, whole=whole)
    beyond = Beyond(
        chosen_effects(None if effects is None else as_tuple(effects), texts, whole=whole),
        labels, sets or whole, codes or (CODES if whole else 0), n_ablated, n_read, controls,
        n_bootstrap, seed, by_default=effects is None)
    check_measurable(bridge, beyond)
    if out is not None:
        check_free(Path(out), overwrite=overwrite, marker=HeadsResult.marker())
    stages = ["model", *(f"untrained-{i}" for i in range(n_fresh)), *beyond.stages]
    parts = {name: _part(progress, i, len(stages), name) for i, name in enumerate(stages)}
    shape = len(layers), int(bridge.cfg.n_heads), len(OBSERVED)
    sums, measured = Sums.none(*shape), Measured()
    fresh: list[Sums] = []
    observer = Observer(bridge)

    def collected(**partial: Any) -> HeadsResult:
        table, contrasts = heads_table(layers, sums, fresh, n_bootstrap=n_bootstrap, seed=seed)
        return HeadsResult(heads=table, contrasts=contrasts, **measured.tables, settings={
            **texts.settings, "controls": ["untrained"] if fresh else [],
            "n_untrained": len(fresh), "n_directions": DIRECTIONS if controls else 0,
            "n_bootstrap": n_bootstrap, "seed": seed, "effects": list(beyond.effects),
            "tells": list(beyond.tells), "n_ablated": n_ablated, "n_read": n_read,
            **measured.settings, "n_texts": sums.n_texts, "n_groups": sums.n_groups, **partial,
            "notes": [*observer.notes(), *left_out, *measured.settings["notes"]]})

    finished: list[str] = []
    try:
        observe_texts(observer, texts, sums, parts["model"])
        finished.append("model")
        for i in range(n_fresh):
            of_fresh = Sums.none(*shape)
            observe_texts(Observer(untrained(bridge, seed + i)), texts, of_fresh,
                          parts[f"untrained-{i}"])
            fresh.append(of_fresh)
            finished.append(f"untrained-{i}")
        for stage in measure(texts, beyond, measured, parts):
            finished.append(stage)  # noqa: PERF402  (kept where it is interrupted)
    except KeyboardInterrupt as interruption:
        if out is not None and sums.n_texts > 0:
            folder = Path(out).with_name(f"{Path(out).name}.partial")
            unfinished = [name for name in stages if name not in finished]
            collected(partial=unfinished).save(folder, overwrite=True)
            interruption.add_note(f"what was measured is saved in {folder}")
        raise
    result = collected()
    if out is not None:
        result.save(out, overwrite=overwrite)
    return result


def _check_memory(model: Any) -> None:
    """Raise `ProbeError` where there is no room for a second model, the untrained one."""
    weights = list(model.parameters())
    free = available(weights[0].device)
    needed = sum(weight.numel() * weight.element_size() for weight in weights)
    check(free is None or needed <= free, f"memory does not suffice for the untrained model beside "
          f"this one: it takes {needed / 2**20:,.0f} MiB, and {(free or 0) / 2**20:,.0f} are free; "
          "expected controls=False, or weights of a narrower type", ProbeError)


def _part(progress: Progress | None, part: int, parts: int, doing: str) -> Progress | None:
    """Return what reports one of several equal parts of the work, and says which."""
    if progress is None:
        return None

    def report(done: int, total: int) -> None:
        say_doing(progress, doing)
        progress(part * total + done, parts * total)

    return report
