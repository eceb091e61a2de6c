"""Options of `latentcode intervene` that say what is patched where: lists of words, combined."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from latentcode.errors import ConfigError, check

if TYPE_CHECKING:
    from latentcode.subjects import Subject


def patches(
    subject: Subject, *, patch: Sequence[str] | None = None, scope: Sequence[str] = ("row",),
    layers: Sequence[str] = ("upper",), site: Sequence[str] = ("code",),
    alpha: Sequence[float] = (1.0,), heads: Sequence[int] | None = None,
    queries: Sequence[str] | None = None, keys: Sequence[str] | None = None,
    renormalize: bool = False,
) -> dict[str, Any]:
    """Return `interventions` for every combination of the lists; nothing without `patch`.

    Args:
        subject: The model that is patched.
        patch: What to patch in: interchange, control, elsewhere, shuffled, resample, class_mean,
            class_mean_base, class_mean_shuffled, class_mean_third, class_mean_group, steer,
            steer_third, steer_random, zero_ablation, mean_ablation, erase, erase_shuffled, random,
            identity; class_mean_pooled, class_mean_base_pooled, class_mean_third_pooled,
            class_mean_group_pooled; of a factorial also the sources operands, operation+operands,
            unrelated, rest, operation+rest, operands+rest, operation+operands+rest, frozen (at site
            residual) and (fuzzy logic) permuted; or one that a file registers which --import names.
            Without it: the most informative ones, with their controls.
        scope: Which codes to overwrite: pair, pairs, row, feature, examples, everything; or those
            of the queries of a place: context, operands, response, "outside context" or "within
            context" (in quotes).
        layers: In which layers: each, upward (the lowest two, three and so on), first, lower,
            upper, above (all but the lowest), all, or sets such as 2,3.
        site: What to overwrite: code, value, z (the output of each head, before W_O), residual;
            code+value writes both in one run.
        alpha: How far to steer, in multiples of the difference between means.
        heads: Overwrite these heads only; default: all.
        queries: Overwrite the codes of these queries only, a place or numbers of tokens; default:
            all of the scope.
        keys: Overwrite the codes of these keys only, a place or numbers of tokens; default: all of
            the scope.
        renormalize: Rescale what was written to the constraint that the model's codes obey.
    """
    if not patch:
        given = {"scope": scope, "layers": layers, "site": site, "alpha": alpha, "heads": heads,
                 "queries": queries, "keys": keys, "renormalize": renormalize}
        defaults = inspect.signature(patches).parameters
        others = [f"--{name}" for name, value in given.items() if value != defaults[name].default]
        check(not others, f"{' and '.join(others)} given without --patch; expected --patch too, or "
              "neither for the most informative patches", ConfigError)
        return {}
    from latentcode.probes.interventions.listed import every_patch

    chosen = every_patch(
        {"site": site, "where": scope, "layers": layers, "alpha": alpha, "value": patch,
         "heads": heads, "renormalize": renormalize, "queries": _tokens(queries),
         "keys": _tokens(keys)}, subject.layers)
    return {"interventions": list(dict.fromkeys(chosen))}


def _tokens(words: Sequence[str] | None) -> str | tuple[int, ...] | None:
    """Return a place, or the numbers of tokens; None where nothing is given."""
    if not words:
        return None
    if len(words) == 1 and not words[0].lstrip("-").isdecimal():
        return words[0]
    check(all(word.lstrip("-").isdecimal() for word in words), f"tokens are {' '.join(words)}; "
          "expected the name of one place, or numbers", ConfigError)
    return tuple(map(int, words))
