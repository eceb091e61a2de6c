"""What is written while a model goes on: at the same places whether a pass sees all tokens or one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from latentcode.errors import UnknownNameError, check, check_choice
from latentcode.models.layers import check_layer
from latentcode.models.pretrained import layout
from latentcode.probes.interventions.patch import Added, Patch, Tokens
from latentcode.probes.interventions.problem import Problem
from latentcode.probes.interventions.sites import SITES, Edit, Place, check_written

Hook = tuple[str | Callable[[str], bool], Callable[..., Any]]
"""Where, the name of a hook or which names; and the function (activation, hook), as
TransformerLens' `run_with_hooks` takes them."""
PARTS = ("prompt", "generated")
"""Places of a text that a model goes on with."""
WHOLE = ("row", "everything")
"""Scopes that all codes are in, of which queries= and keys= choose."""


@dataclass(frozen=True)
class Extent:
    """Which tokens a pass computes: those from `first` on, of `total`, of which P are the prompt.
    """

    first: int
    total: int
    n_prompt: int

    def of(self, tokens: Tokens, start: int, device: torch.device) -> Tensor:
        """Return which of the positions from `start` on are meant, bool."""
        positions = torch.arange(start, self.total, device=device)
        if tokens is None:
            return torch.ones_like(positions, dtype=torch.bool)
        if isinstance(tokens, str):
            return (positions < self.n_prompt) == (tokens == PARTS[0])
        numbers = [tokens] if isinstance(tokens, int) else list(tokens)
        return torch.isin(positions, torch.tensor(
            [n if n >= 0 else n + self.n_prompt for n in numbers], device=device))


class _Text:
    """What a patch asks of a task: which scopes and places there are."""

    places = dict.fromkeys(PARTS, "")
    place_scopes: tuple[str, ...] = ()

    def check_scope(self, scope: str) -> None:
        check_choice("scope", scope, WHOLE)


class Writing:
    """Patches and hooks, as the hooks of each pass.

    patches    `Patch`es (one, several or their sum), or site and layer -> edit of what a pass
               computes there
    fwd_hooks  as TransformerLens takes them, after the patches

    `ConfigError` for what the model does not have, for what a text without a source cannot give,
    and where writing would change nothing.
    """

    def __init__(
        self, model: Any, tokens: Tensor, patches: Added | Sequence[Added] | Mapping[Place, Edit],
        fwd_hooks: Sequence[Hook], *, n_new: int, seed: int,
    ) -> None:
        self.model, self.n_prompt = model, tokens.shape[1]
        self.edits = dict(patches) if isinstance(patches, Mapping) else {}
        self.patches = () if isinstance(patches, Mapping) else tuple(_parts(patches))
        self.fwd_hooks = tuple(fwd_hooks)
        # In the order of the passes: with a cache other noise is drawn than without.
        self.generator = torch.Generator(tokens.device).manual_seed(seed)
        for part in self.patches:
            _check(part, model, self.n_prompt, n_new)
        for site, layer in self.edits:
            check_choice("site", site, SITES)
            check_layer(model, layer, attention=site != "residual")
        for name, _ in self.fwd_hooks:
            if isinstance(name, str) and name not in model.hook_dict:
                raise UnknownNameError("hook", name, model.hook_dict)
        places = [*self.edits, *(place for part in self.patches for place in part.own_places)]
        if any(site == "code" for site, _ in places):
            layout(model).check_writable()
        if places:
            check_written(model, tokens[:, :4], places)

    def hooks(self, extent: Extent) -> list[Hook]:
        """Return the hooks of a pass."""
        return [*self._of_edits(), *self._of_patches(extent), *self.fwd_hooks]

    def _of_edits(self) -> Iterator[Hook]:
        for (site, layer), edit in self.edits.items():
            def put(
                live: Tensor, hook: object, edit: Edit = edit, site: str = site, at: int = layer
            ) -> Tensor:
                found = edit(live.clone())
                check(isinstance(found, Tensor) and found.shape == live.shape, f"the edit at site "
                      f"{site!r} of layer {at} returned {getattr(found, 'shape', found)}; expected "
                      f"a tensor {list(live.shape)}")
                return found
            yield SITES[site].hook.format(layer), put

    def _of_patches(self, extent: Extent) -> Iterator[Hook]:
        for part in self.patches:
            for place in part.own_places:
                alone = replace(part, site=place[0], layers=(place[1],))

                def put(live: Tensor, hook: object, of: Patch = alone, at: Place = place) -> Tensor:
                    return of.edits(self.model, self._problem(of, at, live, extent))[at](live)

                yield SITES[place[0]].hook.format(place[1]), put

    def _problem(self, part: Patch, place: Place, live: Tensor, extent: Extent) -> Problem:
        """Return what a patch is given: no pairs, and no source."""
        # Layers with a sliding window keep the last keys alone.
        first_key = extent.total - live.shape[-1] if place[0] == "code" else extent.first
        queries = extent.of(part.queries, extent.first, live.device)
        keys = extent.of(part.keys, first_key, live.device)
        nothing: Any = dict.fromkeys((place,))
        return Problem(
            None, {part.kind.source: nothing},  # type: ignore[arg-type]
            (queries[:, None] & keys)[None], self.generator, place, part.alpha)


def _parts(patches: Added | Sequence[Added]) -> Iterator[Patch]:
    for patch in [patches] if isinstance(patches, Added) else patches:
        check(isinstance(patch, Added), f"patches has {patch!r}; expected lc.Patch(...), several "
              "of them, or {(site, layer): edit}; hooks of TransformerLens go by fwd_hooks=")
        yield from patch.parts


def _check(part: Patch, model: Any, n_prompt: int, n_new: int) -> None:
    how = part.kind
    given = not isinstance(part.value, str)
    check(not how.needs and (not how.source or given), f"patch {part.named!r} takes activations "
          "from a source or from training problems, and a prompt has none; expected zero_ablation, "
          "random, identity, or a function (base, source, problem)")
    check(isinstance(part.where, str) and part.where in WHOLE, f"where is {part._where()!r}, and a "
          "text that grows has no such places; expected 'everything', of which queries= and keys= "
          "choose: 'prompt', 'generated', or positions")
    for name in ("queries", "keys"):
        tokens = getattr(part, name)
        for number in () if tokens is None or isinstance(tokens, str) else (
                [tokens] if isinstance(tokens, int) else tokens):
            check(-n_prompt <= number < n_prompt + n_new, f"{name} has {number}; expected "
                  f"positions from {-n_prompt} (negative ones from the end of the prompt) to "
                  f"{n_prompt + n_new - 1}")
    text: Any = _Text()
    replace(part, where="everything").check_alone(text, model, {})


__all__ = ["Extent", "Hook", "Writing"]
