"""What is patched where nothing else is asked for: what tells most, or every way with its controls.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from latentcode.probes.interventions.patch import Patch
from latentcode.probes.interventions.patches import PATCHES, lacked
from latentcode.probes.interventions.references import ERASABLE
from latentcode.tasks.counterfactuals import Counterfactuals

SOURCES: tuple[str, ...] = ("interchange", "control", "operands", "operation+operands", "unrelated")
"""Patches that tell operation, operands and answer apart; without a factorial there are two."""
MAPPED: tuple[str, ...] = ("row", "everything")
"""Scopes at which the sources of a factorial are written into every set of layers."""
OF_PROMPTS = (*SOURCES, "elsewhere", "shuffled", "random", "identity")
"""Patches that are put into prompts where nothing else is asked for."""


CONTROLS = ("elsewhere", "shuffled", "random", "zero_ablation", "identity")
"""Patches that stand beside the sources where only what tells most is asked for."""


def first_interventions(
    layers: Sequence[int], scopes: Sequence[str], lacks: Collection[str] = (),
) -> tuple[Patch, ...]:
    """Return what tells whether codes cause the answer, and the operation or the answer alone.

    Of `standard_interventions`: the sources at the response's row, in each layer, in the upper half
    and in all, and in all codes in the upper half and in all layers; of a factorial codes and
    values together, too, which are the source's whole computation; and another position, another
    instance's source, noise, zero and the identity at the row in the upper half.

    layers  those with attention
    """
    every, upper = _every_and_upper(layers)
    chosen = {"row": (*((layer,) for layer in every), upper, every), "everything": (upper, every)}

    def tells(i: Patch) -> bool:
        if i.value in CONTROLS:
            return (i.site, i.where, i.layers) == ("code", "row", upper)
        return i.value in SOURCES and (
            i.site == "code+value"
            or (i.site == "code" and i.layers in chosen.get(str(i.where), ())))

    return tuple(filter(tells, standard_interventions(layers, 0, scopes, False, lacks)))


def standard_interventions(
    layers: Sequence[int], n_heads: int, scopes: Sequence[str], normalized: bool = True,
    lacks: Collection[str] = (), places: Sequence[str] = (),
) -> tuple[Patch, ...]:
    """Return every way to patch, with its controls, once over.

    - the sources that tell operation, operands and answer apart (the minimal pair, other operands,
      both) beside the same constituents and an unrelated problem: rows and all codes in each
      layer, in each with those below it, in the upper half and in all; codes of other scopes in
      the upper half, those of the queries of the task's places (`PLACES`) in the lower half.
      Values, residual streams, and codes and values together, at some places;
    - without a factorial: the minimal pair's codes and the same constituents' (control), at every
      scope and layer, in the upper half of the layers and in all;
    - every other way to patch, with its controls, at the response's row in the upper half of the
      layers; steering by 1, 2 and 4 times the difference; what is no real code both raw and
      (where `normalized` says that the model's codes obey a constraint) renormalised;
    - the source's codes of one head alone, for every head: is one of them doing it all?
    - labels erased at every scope that allows it;
    - values (of all keys: a row sees them all; of the examples alone) and residual streams in
      place of codes.

    layers  those with attention
    lacks   what the task does not offer (`Counterfactuals.lacking`) is left out
    places  the task's places; of a factorial alone

    Means of a third constituent or pooled over positions, and held codes, are left out.
    """
    every, upper = _every_and_upper(layers)
    factorial = "factorial" not in lacks
    sources = SOURCES if factorial else SOURCES[:2]
    chosen = [Patch(patch, scope, some)
              for scope in scopes for some in _layer_sets(layers, factorial, scope)
              for patch in sources]
    for name, patch in PATCHES.items():
        if patch.pooled or patch.frozen or patch.own or "third" in patch.measured:
            continue
        if patch.needs == "erasers":
            chosen += [Patch(name, scope, upper) for scope in scopes if scope in ERASABLE]
            continue
        alphas = (1.0, 2.0, 4.0) if name.startswith("steer") else (1.0,)
        for alpha in alphas:
            chosen.append(Patch(name, "row", upper, alpha=alpha))
            if normalized and not patch.real and name != "zero_ablation":
                chosen.append(Patch(name, "row", upper, alpha=alpha, renormalize=True))
    chosen += [Patch("interchange", "row", upper, heads=(head,)) for head in range(n_heads)]
    # Sources of another rest: at the row above, and in all codes here.
    chosen += [Patch(name, "everything", every)
               for name, patch in PATCHES.items()
               if name in ("shuffled", "resample", "random", "permuted")
               or name.endswith("rest")]
    if normalized:  # a pair alone breaks the sum over keys of a softmax
        chosen += [Patch(patch, scope, upper, renormalize=True)
                   for scope in scopes if scope.startswith("pair")
                   for patch in ("interchange", "control")]
    chosen += [Patch(patch, scope, some, site=site)
               for site, scope, some in (
                   ("value", "everything", every[:1]), ("value", "everything", upper),
                   ("value", "everything", every),
                   ("residual", "row", upper), ("residual", "row", every),
                   ("residual", "everything", every[:1]), ("residual", "everything", upper))
               for patch in (sources if site == "value" else ("interchange", "control"))]
    if factorial:
        lower = every[:max(1, len(every) // 2)]
        chosen += [Patch(patch, place, lower) for place in places for patch in sources]
        chosen += [Patch(patch, "everything", every, site="code+value")
                   for patch in sources]
        if "examples" in scopes:
            chosen += [Patch(patch, "examples", every, site="value")
                       for patch in (*sources, "permuted")]
    return tuple(i for i in dict.fromkeys(chosen) if not lacked(i.kind, lacks))


def prompt_interventions(
    task: Counterfactuals, layers: Sequence[int], normalized: bool = True
) -> tuple[Patch, ...]:
    """Return what is written by default: the source's codes, and codes that change nothing.

    Of `standard_interventions`: the source's and the control's codes at pairs and rows, in each
    layer, in the upper half and in all, and all codes in all layers, those of a factorial's other
    sources, too; another position, another instance's source, noise and the identity at rows of
    the upper half. The patch `control` only where there are prompts for it, and renormalised codes
    only where `normalized` says that the model's codes of a query sum to 1. Means, erasure, single
    heads, values, z and residual streams have to be asked for.
    """
    every, _ = _every_and_upper(layers)
    chosen = [
        i for i in standard_interventions(every, 0, task.scopes, normalized, task.lacking)
        if i.value in OF_PROMPTS and i.site == "code"
        and (i.where != "everything" or i.layers == every)
        and (not i.renormalize or i.kind.real)]
    return (*chosen, Patch("identity", "everything", every))


def _every_and_upper(layers: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    every = tuple(layers)
    return every, every[len(every) // 2:]


def _layer_sets(
    layers: Sequence[int], factorial: bool, scope: str
) -> tuple[tuple[int, ...], ...]:
    """Return each layer alone, the upper half, and all; of a factorial also each with all below.

    There, a scope that is not one of `MAPPED` has the upper half alone.
    """
    every, upper = _every_and_upper(layers)
    if factorial and scope not in MAPPED:
        return (upper,)
    below = [every[:n] for n in range(2, len(every))] if factorial else []
    return tuple(dict.fromkeys([*((layer,) for layer in every), *below, upper, every]))
