"""Every way to write codes, with its controls: what is done where nothing else is asked for."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from latentcode.probes.interventions.intervention import Intervention
from latentcode.probes.interventions.references import ERASABLE
from latentcode.probes.interventions.writes import WRITES


def standard_interventions(
    n_layers: int, n_heads: int, scopes: Sequence[str], normalized: bool = True,
    lacks: Collection[str] = (),
) -> tuple[Intervention, ...]:
    """Return every way to write, with its controls, once over.

    - the minimal pair's codes and the same constituents' (control), at every scope and layer, in
      the upper half of the layers and in all;
    - every other way to write, with its controls, at the response's row in the upper half of the
      layers; steering by 1, 2 and 4 times the difference; what is no real code both raw and
      (where `normalized` says that the model's codes obey a constraint) renormalised;
    - the donor's codes of one head alone, for every head: is one of them doing it all?
    - labels erased at every scope that allows it;
    - values (of all keys: a row sees them all) and residual streams in place of codes.

    lacks  what the task does not offer (`Counterfactuals.lacks`) is left out
    """
    upper, every = tuple(range(n_layers // 2, n_layers)), tuple(range(n_layers))
    chosen = [Intervention(write, scope, layers)
              for scope in scopes for layers in _layer_sets(n_layers)
              for write in ("donor", "same")]
    for name, write in WRITES.items():
        if write.needs == "erasers":
            chosen += [Intervention(name, scope, upper) for scope in scopes if scope in ERASABLE]
            continue
        alphas = (1.0, 2.0, 4.0) if name.startswith("steer") else (1.0,)
        for alpha in alphas:
            chosen.append(Intervention(name, "row", upper, alpha=alpha))
            if normalized and not write.real and name != "zero":
                chosen.append(Intervention(name, "row", upper, alpha=alpha, renormalize=True))
    chosen += [Intervention("donor", "row", upper, heads=(head,)) for head in range(n_heads)]
    chosen += [Intervention(name, "everything", every)
               for name in ("shuffled", "transplant", "random")]
    if normalized:  # a pair alone breaks the sum over keys of a softmax
        chosen += [Intervention(write, scope, upper, renormalize=True)
                   for scope in scopes if scope.startswith("pair") for write in ("donor", "same")]
    chosen += [Intervention(write, scope, layers, site=site)
               for site, scope, layers in (
                   ("value", "everything", every[:1]), ("value", "everything", upper),
                   ("value", "everything", every),
                   ("residual", "row", upper), ("residual", "row", every),
                   ("residual", "everything", every[:1]), ("residual", "everything", upper))
               for write in ("donor", "same")]
    return tuple(i for i in dict.fromkeys(chosen) if WRITES[i.write].needs not in lacks)


def _layer_sets(n_layers: int) -> tuple[tuple[int, ...], ...]:
    """Return each layer alone, the upper half, and all."""
    every = tuple(range(n_layers))
    sets = [*((layer,) for layer in every), every[n_layers // 2:], every]
    return tuple(dict.fromkeys(sets))
