"""What `latentcode intervene` writes where: every combination of lists of words."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated, Any

from latentcode.cli.asking import Own
from latentcode.cli.options import default_is
from latentcode.errors import ConfigError, check

if TYPE_CHECKING:
    from latentcode.subjects import Subject


@dataclass(frozen=True, kw_only=True)
class Writes(Own):
    """A base applies operation A to operands x, a source another operation B, other operands x', or
    both. The classes of answers: base A(x), operation B(x), operands A(x'), answer B(x'), else none
    of these, the same four whatever is patched in. A minimal pair (interchange) has the base's own
    x: its answer is B(x), which counts as operation even where the answer alone arrived; only
    operation+operands tells these apart. With --no-factorial the table shows instead how often the
    answer flips to the source's.

    Of prompts, each line has two prompts of as many tokens and their answers of one token, such as
    {"prompt": "The capital of France is", "answer": " Paris", "source": "The language of France
    is", "source_answer": " French", "query": -1, "key": "France"}. An optional column control holds
    the control's prompt, which has the prompt's answer. Prompts with the columns operation and
    operands, every one of these with every one of those, are a factorial and need no source.

    Without --patch: the standard interventions and their controls, over layers and scopes.
    """

    patch: Annotated[tuple[str, ...], default_is("the standard interventions")] = ()
    """what to patch in:
    interchange, control, elsewhere, shuffled, resample, class_mean, class_mean_base,
    class_mean_shuffled, class_mean_third, class_mean_group, steer, steer_third, steer_random,
    zero_ablation, mean_ablation, erase, erase_shuffled, random, identity; class_mean_pooled,
    class_mean_base_pooled, class_mean_third_pooled, class_mean_group_pooled;
    of a factorial also the sources operands, operation+operands, unrelated, rest,
    operation+rest, operands+rest, operation+operands+rest, frozen (at site residual) and
    (fuzzy logic) permuted"""
    scope: tuple[str, ...] = ("row",)
    """which codes to overwrite: pair, pairs, row, feature, examples, everything; or those of the
    queries of a place: context, operands, response, "outside context" or
    "within context" (in quotes)"""
    layers: tuple[str, ...] = ("upper",)
    """in which layers: each, upper, all, or sets such as 2,3"""
    site: tuple[str, ...] = ("code",)
    """what to overwrite: code, value, residual; code+value writes both in one run"""
    alpha: tuple[float, ...] = (1.0,)
    """how far to steer, in multiples of the difference between means"""
    heads: Annotated[tuple[int, ...], default_is("all")] = ()
    """overwrite these heads only"""
    renormalize: bool = False
    """rescale what was written to the constraint that the model's codes obey"""

    def arguments(self, of: Subject) -> dict[str, Any]:
        """Return every combination of the lists; for the standard interventions nothing."""
        from latentcode.probes.interventions import Intervention

        if not self.patch:
            others = [f.name for f in fields(Writes)
                      if f.name != "patch" and getattr(self, f.name) != f.default]
            check(not others, f"--{' and --'.join(others)} "
                  f"{'is' if len(others) == 1 else 'are'} given without --patch; expected --patch "
                  "too, or neither for the standard interventions", ConfigError)
            return {}
        layers = [place for text in self.layers for place in _layers(text, of.n_layers)]
        chosen = (
            Intervention(patch, scope, place, site, alpha, self.heads or None, self.renormalize)
            for site in self.site for scope in self.scope for place in layers
            for patch in self.patch
            for alpha in (self.alpha if patch.startswith("steer") else (1.0,)))
        # `each` and `upper` may be the same layer.
        return {"interventions": list(dict.fromkeys(chosen))}


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
