"""`latentcode intervene`: do codes cause the answer?

The options that say what is written where are shared with `intervene-prompts`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from latentcode.cli.options import RunName, Sampling, Seeded, default_is
from latentcode.errors import ConfigError, check

if TYPE_CHECKING:
    from latentcode.probes.interventions import Intervention


@dataclass(frozen=True, kw_only=True)
class Writes:
    """What is written where: every combination of these lists."""

    patch: Annotated[tuple[str, ...], default_is("the standard interventions")] = ()
    """What to patch in:
    interchange, control, elsewhere, shuffled, resample, class_mean, class_mean_base,
    class_mean_shuffled, class_mean_third, class_mean_group, steer, steer_third, steer_random,
    zero_ablation, mean_ablation, erase, erase_shuffled, random, identity; class_mean_pooled,
    class_mean_base_pooled, class_mean_third_pooled, class_mean_group_pooled;
    of a factorial also the sources operands, operation+operands, unrelated, rest,
    operation+rest, operands+rest, operation+operands+rest, frozen (at site residual) and
    (fuzzy logic) permuted."""
    scope: tuple[str, ...] = ("row",)
    """Which codes to overwrite: pair, pairs, row, feature, examples, everything; or those of the
    queries of a place: context, operands, response, "outside context", "within context"."""
    layers: tuple[str, ...] = ("upper",)
    """In which layers: each, upper, all, or sets such as 2,3."""
    site: tuple[str, ...] = ("code",)
    """What to overwrite: code, value, residual; code+value writes both in one run."""
    alpha: tuple[float, ...] = (1.0,)
    """How far to steer, in multiples of the difference between means."""
    heads: Annotated[tuple[int, ...], default_is("all")] = ()
    """Overwrite these heads only."""
    renormalize: bool = False
    """Rescale what was written to the constraint that the model's codes obey."""

    def interventions(self, n_layers: int) -> list[Intervention] | None:
        """Return every combination of the lists, or None for the standard interventions."""
        from latentcode.probes.interventions import Intervention

        if not self.patch:
            others = [f.name for f in fields(Writes)
                      if f.name != "patch" and getattr(self, f.name) != f.default]
            check(not others, f"--{' and --'.join(others)} "
                  f"{'is' if len(others) == 1 else 'are'} given without --patch; expected --patch "
                  "too, or neither for the standard interventions", ConfigError)
            return None
        layers = [place for text in self.layers for place in _layers(text, n_layers)]
        chosen = (
            Intervention(patch, scope, place, site, alpha, self.heads or None, self.renormalize)
            for site in self.site for scope in self.scope for place in layers
            for patch in self.patch
            for alpha in (self.alpha if patch.startswith("steer") else (1.0,)))
        return list(dict.fromkeys(chosen))  # `each` and `upper` may be the same layer


@dataclass(frozen=True, kw_only=True)
class Intervene(Writes, Seeded, Sampling):
    """Do codes cause the answer?

    Example: latentcode intervene runs/sraven --out results/patched --patch interchange --scope row

    Overwrites codes, and counts whose answer the model then gives. A base applies operation A to
    operands x, a source another operation B, other operands x', or both. The classes of answers:
    base A(x), operation B(x), operands A(x'), answer B(x'), else none of these, the same four
    whatever is written. A minimal pair (interchange) has the base's own x: its answer is B(x),
    which counts as operation even where the answer alone arrived; only operation+operands tells
    these apart.
    With --no-factorial the table shows instead how often the answer flips to the source's.
    Without --patch: the standard interventions and their controls, over layers and scopes.
    """

    path: tyro.conf.Positional[RunName]
    n: int = 2_000
    """Instances; those are counted that the model answers correctly, sources included."""
    no_factorial: bool = False
    """Draw minimal pairs alone, of any two operations, whose sources need not be natural."""
    among: Literal["vocabulary", "answers"] = "vocabulary"
    """Of text, with --no-factorial: what counts as the model's answer, the
    likeliest token of all or the likelier of the two answers."""

    def run(self) -> None:
        from latentcode.probes.interventions import InterventionResult, intervene
        from latentcode.runs.named import load_run

        run = load_run(self.path)
        chosen = self.interventions(run.config.model.n_layers)
        self.save_result(InterventionResult, "forward passes", lambda progress: intervene(
            run, interventions=chosen, split=self.split, n=self.n, factorial=not self.no_factorial,
            among=self.among, seed=self.seed, device=self.device, progress=progress))


def _layers(text: str, n_layers: int) -> list[tuple[int, ...]]:
    every = tuple(range(n_layers))
    if text == "each":
        return [(layer,) for layer in every]
    if text in ("upper", "all"):
        return [every[n_layers // 2:] if text == "upper" else every]
    parts = text.split(",")
    check(all(part.isdecimal() for part in parts),
          f"layers is {text!r}; expected each, upper, all, or numbers such as 2,3", ConfigError)
    return [tuple(int(part) for part in parts)]
