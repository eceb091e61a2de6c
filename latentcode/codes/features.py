"""Features of one's own: what a function makes of codes, values or residual streams, by a name.

    x_b = function(activation)_b,    activation [B, ...] -> x [B, d]

They are read beside `code`, `row` and the others of `latentcode.codes.rows`, in every layer. Those
of `latentcode.codes.aggregates` come with the library.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar, get_args

import torch
from torch import Tensor

from latentcode.codes.aggregates import AGGREGATES, MEAN_RESIDUAL, mean_residual
from latentcode.errors import ConfigError, called, check, check_choice
from latentcode.registry import Registry

Function = TypeVar("Function", bound=Callable[..., Tensor])
Site = Literal["code", "value", "residual"]
"""What a function is given: the codes [B, H, Q, K] of all queries and keys, values [B, K, H, d], or
the residual streams [B, T, D] that enter the layer."""
BUILT_IN = ("code", "row", "codes", "values", "residual", "tokens", "untrained", "shuffled", "bag")
"""Words that tables have for features already."""
POSITIONS = ("query", "key")
"""Arguments that a function may take: the positions [B] of the pair that is read."""
TRIED: Mapping[Site, tuple[int, ...]] = {
    "code": (3, 2, 5, 5), "value": (3, 5, 2, 4), "residual": (3, 5, 6)}
"""Made-up activations of three instances."""


@dataclass(frozen=True)
class OwnFeatures:
    """One function of the activations at a site.

    positions  those of `POSITIONS` that it takes
    of_library  whether it comes with the library, and so need not be watched
    """

    name: str
    function: Callable[..., Tensor]
    site: Site
    positions: Sequence[str]
    of_library: bool = False

    def __call__(self, activation: Tensor, query: Tensor, key: Tensor) -> Tensor:
        """Return the features [B, d] of activations [B, ...]; `ConfigError` for anything else."""
        at = {"query": query, "key": key}
        given = activation if self.of_library else activation.clone()
        found = called(f"features {self.name!r}: the function", ConfigError, self.function, given,
                       **{name: at[name] for name in self.positions})
        n, of = len(activation), f"for {self.site} {list(activation.shape)} it returned"
        self._expect(isinstance(found, Tensor), f"{of} a {type(found).__name__}",
                     f"a tensor [{n}, d]")
        self._expect(found.ndim == 2 and len(found) == n and found.shape[1] > 0,
                     f"{of} a tensor {list(found.shape)}", f"[{n}, d]")
        self._expect(not found.is_complex(), f"{of} complex numbers", "real ones")
        self._expect(bool(found.isfinite().all()), f"{of} NaN or infinite numbers", "finite ones")
        self._expect(self.of_library or torch.equal(given, activation), "it changes what it is "
                     "given", "a function that leaves it as it is")
        return found

    def _expect(self, condition: bool, problem: str, expected: str) -> None:
        check(condition, f"features {self.name!r}: {problem}; expected {expected}")


FEATURES: Registry[OwnFeatures] = Registry("features", "lc.register_features", {
    name: OwnFeatures(name, function, "code", (), of_library=True)
    for name, function in AGGREGATES.items()} | {
        MEAN_RESIDUAL: OwnFeatures(MEAN_RESIDUAL, mean_residual, "residual", (), of_library=True)})
"""By name: those of the library, then those of users."""


def register_features(
    name: str, *, site: Site = "code", replace: bool = False
) -> Callable[[Function], Function]:
    """Make a function of activations features, known by a name: a decorator.

        @lc.register_features("row_entropy")
        def row_entropy(codes, query):  # how widely each head attends at the pair's query
            rows = codes[torch.arange(len(codes)), :, query]
            return -(rows * rows.clamp(min=1e-9).log()).sum(-1)

        lc.decode("sraven-hyla", features=["row_entropy"])

    site     `code`, `value` or `residual`: what it is given of a layer, [B, H, Q, K], [B, K, H, d]
             or [B, T, D]
    replace  take the place of earlier features of that name, as when a cell of a notebook runs
             again

    It returns [B, d], of each instance by itself. If it takes `query` or `key`, it is given the
    positions [B] of the pair that is read. From then on `decode` and registered probes take the
    name among their features. `ConfigError` for a name that is taken, and for a function that fails
    any of this on a small example, with the reason.
    """
    FEATURES.check_name(name)
    check_choice("site", site, get_args(Site))

    def register(function: Function) -> Function:
        check(name not in BUILT_IN, f"features {name!r} come with latentcode; expected another "
              "name")
        check(callable(function), f"features {name!r} are {function!r}; expected a function")
        own = OwnFeatures(name, function, site, _positions(name, function))
        _try(own)
        FEATURES.add(name, own, replace=replace)
        return function

    return register


def _positions(name: str, function: Callable[..., Tensor]) -> list[str]:
    """Return which positions a function takes; `ConfigError` for any other argument it needs."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # built-in functions do not say
        return []
    needed = [one.name for one in parameters[1:] if one.default is one.empty
              and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)]
    unknown = [one for one in needed if one not in POSITIONS]
    check(len(parameters) > 0 and not unknown, f"features {name!r}: the function takes "
          f"({', '.join(map(str, parameters))}); expected what is at the site and perhaps query "
          "and key")
    return [one.name for one in parameters[1:] if one.name in POSITIONS]


def _try(own: OwnFeatures) -> None:
    """Call features on a few made-up instances, together and one by one."""
    generator = torch.Generator().manual_seed(0)
    made_up = torch.randn(TRIED[own.site], generator=generator)
    if own.site == "code":  # of causal attention, as that of most models is
        later = torch.ones(made_up.shape[-2:], dtype=torch.bool).triu(1)
        made_up = made_up.masked_fill(later, -torch.inf).softmax(dim=-1)
    query, key = torch.tensor([4, 4, 2]), torch.tensor([0, 4, 1])
    together = own(made_up, query, key)
    for i in range(len(made_up)):
        part = slice(i, i + 1)
        alone = own(made_up[part], query[part], key[part])
        check(alone.shape[1:] == together.shape[1:] and torch.allclose(
            alone.float(), together[part].float(), rtol=1e-4, atol=1e-5),
            f"features {own.name!r}: an instance has other features alone than among others; "
            "expected those of each by itself")
