"""What is written where, and how that is done to what a model computes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import Tensor

from latentcode.arguments import as_tuple
from latentcode.errors import ConfigError, UnknownNameError, check, check_choice
from latentcode.probes.interventions.patches import PATCHES, lacked
from latentcode.probes.interventions.references import ERASABLE
from latentcode.probes.interventions.sites import (
    SITES,
    Edit,
    Place,
    check_constraint,
    in_scope,
    normalization_of,
)
from latentcode.tasks.counterfactuals import Counterfactuals


@dataclass(frozen=True)
class Intervention:
    """What is written where.

    patch        a key of `PATCHES`: what
    scope        a key of `SCOPES` that the task offers: at which queries and keys
    layers       in which layers, all in one run
    site         `code`, `value` or `residual`: the activation that is written; several joined by
                 `+`, such as `code+value`, are written in one run
    alpha        how far `steer` goes
    heads        of which heads alone; None: all
    renormalize  bring what was written back to the constraint of the model's codes
    """

    patch: str = "interchange"
    scope: str = "row"
    layers: tuple[int, ...] = (0,)
    site: str = "code"
    alpha: float = 1.0
    heads: tuple[int, ...] | None = None
    renormalize: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "layers", as_tuple(self.layers))
        object.__setattr__(self, "heads", None if self.heads is None else as_tuple(self.heads))

    def check(self, task: Counterfactuals, model: Any) -> None:
        """Raise a `ConfigError` that names what does not fit the task or the model."""
        check_choice("patch", self.patch, PATCHES)
        for site in self.sites:
            check_choice("site", site, SITES)
        check(len(set(self.sites)) == len(self.sites), f"site is {self.site!r}; expected each of "
              "its parts once")
        task.check_scope(self.scope)
        check(len(self.layers) > 0, "layers is empty; expected at least one")
        check(self.heads is None or len(self.heads) > 0, "heads is empty; expected None for all, "
              "or at least one")
        check(math.isfinite(self.alpha), f"alpha is {self.alpha!r}; expected a finite number")
        for layer in self.layers:
            if layer not in range(model.cfg.n_layers):
                raise UnknownNameError("layer", layer, range(model.cfg.n_layers))
        patch = PATCHES[self.patch]
        needs, lacks = patch.needs, lacked(patch, task.lacking)
        if lacks:
            raise ConfigError(f"{self.patch!r} cannot be written: {task.lacking[lacks]}")
        check(not patch.pooled or self.sites == ("code",), f"{self.patch!r} at site {self.site!r}; "
              "codes alone are pooled over positions")
        check(not patch.frozen or self.site == "residual", f"{self.patch!r} at site {self.site!r}; "
              "expected 'residual', as all codes are held")
        if self.sites != ("code",):
            check(needs != "erasers" and not self.renormalize, f"{self.patch!r} with renormalize="
                  f"{self.renormalize} at site {self.site!r}; labels are erased from codes, and "
                  "codes are renormalised")
        check(needs != "elsewhere" or self.scope not in ("examples", "everything",
                                                         *task.place_scopes),
              f"{self.patch!r} at scope {self.scope!r}, which leaves no other position; expected "
              "another scope")
        every_key = ("row", "feature", *(
            name for name in task.place_scopes if not name.startswith("within")))
        check("value" not in self.sites or self.scope not in every_key, f"scope is "
              f"{self.scope!r} at site {self.site!r}, where it covers every key, for all "
              "queries; expected 'everything', the keys of a place with 'within ...', or single "
              "keys with 'pair' or 'pairs'")
        check(needs != "erasers" or self.scope in ERASABLE, f"scope is {self.scope!r}; expected "
              f"one of {', '.join(ERASABLE)} to erase a label")
        if self.renormalize:
            check_constraint(normalization_of(model))
        groups = getattr(model.cfg, "n_key_value_heads", None) or model.cfg.n_heads
        check(self.heads is None or "value" not in self.sites or groups == model.cfg.n_heads,
              f"heads is {self.heads} at site {self.site!r}; expected None, as the "
              f"{model.cfg.n_heads} heads of this model share the values of {groups}")
        for head in self.heads or ():
            check("residual" not in self.sites and head in range(model.cfg.n_heads),
                  f"head {head} at site {self.site!r}; expected one of {model.cfg.n_heads} heads "
                  "of codes or values")

    @property
    def sites(self) -> tuple[str, ...]:
        """The parts of `site`."""
        return tuple(self.site.split("+"))

    @property
    def places(self) -> tuple[Place, ...]:
        """Every site in every layer that is written."""
        return tuple((site, layer) for site in self.sites for layer in self.layers)

    def edits(
        self, model: Any, scope: Tensor, values: Callable[[Place, Tensor], Tensor]
    ) -> dict[Place, Edit]:
        """Return what puts values into the codes, or whatever the site holds, of each layer.

        scope   bool [B, Q, K], which codes; of the task, by the name that the intervention has
        values  what is to be put at a place, given what is computed there
        """
        masks = {site: SITES[site].mask(scope, self.heads, model.cfg.n_heads)
                 for site in self.sites}
        normalization = normalization_of(model) if self.renormalize else None
        return {place: in_scope(partial(values, place), masks[place[0]], scope, normalization)
                for place in self.places}

    def row(self) -> dict[str, Any]:
        """Return the columns that name this intervention in tables."""
        return {"patch": self.patch, "scope": self.scope,
                "layers": ",".join(map(str, self.layers)), "site": self.site,
                "alpha": self.alpha if self.patch.startswith("steer") else float("nan"),
                "heads": "all" if self.heads is None else ",".join(map(str, self.heads)),
                "renormalized": self.renormalize}
