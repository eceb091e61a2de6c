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

    Without --patch: the most informative ones, with their controls; with --whole every patch at
    every layer and scope.
    """

    patch: Annotated[tuple[str, ...], default_is("the most informative ones")] = ()
    """what to patch in:
    interchange, control, elsewhere, shuffled, resample, class_mean, class_mean_base,
    class_mean_shuffled, class_mean_third, class_mean_group, steer, steer_third, steer_random,
    zero_ablation, mean_ablation, erase, erase_shuffled, random, identity; class_mean_pooled,
    class_mean_base_pooled, class_mean_third_pooled, class_mean_group_pooled;
    of a factorial also the sources operands, operation+operands, unrelated, rest,
    operation+rest, operands+rest, operation+operands+rest, frozen (at site residual) and
    (fuzzy logic) permuted; or one of your own, registered in a file that --import names"""
    scope: tuple[str, ...] = ("row",)
    """which codes to overwrite: pair, pairs, row, feature, examples, everything; or those of the
    queries of a place: context, operands, response, "outside context" or
    "within context" (in quotes)"""
    layers: tuple[str, ...] = ("upper",)
    """in which layers: each, upward (the lowest two, three and so on), first, lower, upper, above
    (all but the lowest), all, or sets such as 2,3"""
    site: tuple[str, ...] = ("code",)
    """what to overwrite: code, value, z (the output of each head, before W_O), residual; code+value
    writes both in one run"""
    alpha: tuple[float, ...] = (1.0,)
    """how far to steer, in multiples of the difference between means"""
    heads: Annotated[tuple[int, ...], default_is("all")] = ()
    """overwrite these heads only"""
    queries: Annotated[tuple[str, ...], default_is("all of the scope")] = ()
    """overwrite the codes of these queries only: a place, or numbers of tokens"""
    keys: Annotated[tuple[str, ...], default_is("all of the scope")] = ()
    """overwrite the codes of these keys only: a place, or numbers of tokens"""
    renormalize: bool = False
    """rescale what was written to the constraint that the model's codes obey"""

    def arguments(self, of: Subject) -> dict[str, Any]:
        """Return every combination of the lists; for the standard interventions nothing."""
        from latentcode.probes.interventions.listed import every_patch

        if not self.patch:
            others = [f.name for f in fields(Writes)
                      if f.name != "patch" and getattr(self, f.name) != f.default]
            check(not others, f"--{' and --'.join(others)} "
                  f"{'is' if len(others) == 1 else 'are'} given without --patch; expected --patch "
                  "too, or neither for the most informative ones", ConfigError)
            return {}
        chosen = every_patch(
            {"site": self.site, "where": self.scope, "layers": self.layers, "alpha": self.alpha,
             "value": self.patch, "heads": self.heads or None, "renormalize": self.renormalize,
             "queries": _tokens(self.queries), "keys": _tokens(self.keys)}, of.layers)
        return {"interventions": list(dict.fromkeys(chosen))}


def _tokens(words: tuple[str, ...]) -> str | tuple[int, ...] | None:
    """Return a place, or the numbers of tokens; None where nothing is given."""
    if not words:
        return None
    if len(words) == 1 and not words[0].lstrip("-").isdecimal():
        return words[0]
    check(all(word.lstrip("-").isdecimal() for word in words), f"tokens are {' '.join(words)}; "
          "expected the name of one place, or numbers", ConfigError)
    return tuple(map(int, words))
