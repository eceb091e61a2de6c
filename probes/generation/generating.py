"""What does a model generate, with which codes, and what if these are patched?"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from latentcode.arguments import chosen
from latentcode.errors import UnknownNameError, check, check_choice, check_count
from latentcode.files.provenance import package_version
from latentcode.models.kernels.fused import written_out
from latentcode.models.layers import check_layer
from latentcode.models.memory import available, readable
from latentcode.models.modes import evaluating
from latentcode.models.patched.sites import SITES, Edit, Place, check_written
from latentcode.models.pretrained import layout
from latentcode.probes.generation.result import Generation
from latentcode.probes.interventions.patch import Added, Patch, Tokens
from latentcode.probes.interventions.patches import Problem
from latentcode.progress import Progress, watched
from latentcode.prompts import LanguageModel, OwnLanguageModel, load_language_model
from latentcode.seeds import checked_seed

if TYPE_CHECKING:
    from latentcode.probes.interventions.patch import Patch, Patches

Hook = tuple[str | Callable[[str], bool], Callable[..., Any]]
"""Where, the name of a hook or which names; and the function (activation, hook), as
TransformerLens' `run_with_hooks` takes them."""
PARTS = ("prompt", "generated")
"""Places of a text that a model goes on with."""
WHOLE = ("row", "everything")
"""Scopes that all codes are in, of which queries= and keys= choose."""
TRIED = 8
"""Tokens on which it is tried whether a model keeps keys and values."""
ROUNDING = {torch.float64: 1e-6, torch.float32: 1e-3}
"""How far from each other logits of the two ways may be, relative to the largest; of narrower types
1e-2."""


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
            check_layer(model, layer, attention=SITES[site].attention)
        for name, _ in self.fwd_hooks:
            if isinstance(name, str) and name not in model.hook_dict:
                raise UnknownNameError("hook", name, model.hook_dict)
        places = [*self.edits, *(place for part in self.patches for place in part.own_places)]
        check(all(site != "message" for site, _ in places), "a patch is at site 'message', and "
              "values of earlier tokens are not computed again; expected another site")
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


@watched("generating")
def generate(
    model: Any,
    prompt: str | Sequence[int],
    *,
    max_new_tokens: int = 20,
    patches: Patch | Patches | Sequence[Patch] | Mapping[Place, Edit] = (),
    fwd_hooks: Sequence[Hook] = (),
    layers: Sequence[int] | int | None = None,
    logits: bool = False,
    temperature: float = 0.0,
    top_k: int | None = None,
    seed: int = 0,
    stop: bool = True,
    cache: bool | None = None,
    prepend_bos: bool | None = None,
    progress: Progress | None = None,
) -> Generation:
    """Generate text, keep the codes of its tokens, and patch while it is generated.

        lc.generate(model, "The capital of France is")
        lc.generate(model, "The capital of France is",     # without head 3 of layer 5
                    patches=lc.Patch("zero_ablation", layers=5, heads=3))

    Codes are read after what is written, one row for each new token: memory is that of a pass and
    4 x N x L x H x (P + N) bytes.

    Args:
        model: A bridge, as `lc.load_pretrained` returns it; a name or a folder; a text model that
            was trained here.
        prompt: Text, or ids of tokens as they are.
        max_new_tokens: Most tokens to generate; fewer come where the model ends the text.
        patches: What is written, at all tokens or at some: `lc.Patch` (one, several or their sum)
            of `zero_ablation`, `random`, `identity` or a function (base, source, problem), whose
            source is None; `queries` and `keys` choose `prompt`, `generated` or positions, from 0,
            negative ones from the end of the prompt. Or site and layer -> edit, a function of what
            a pass computes there: codes [1, H, Q, K], values [1, K, H, d], z [1, Q, H, d], residual
            streams [1, Q, D], Q and K the tokens of the pass.
        fwd_hooks: Hooks as TransformerLens takes them, (name, function of activation and hook),
            after the patches.
        layers: Layers whose codes are kept; default: all; none with ().
        logits: Keep the logits of every new token, too.
        temperature: 0: the most probable token; else p^(1 / temperature), drawn from `seed`.
        top_k: Draw from the most probable ones alone; default: from all.
        stop: End where the model says the token that ends a text.
        cache: Keep keys and values, so that a pass computes the new token alone: codes are then [1,
            H, 1, K], and a value is written once, when its token is computed; default: where the
            model can, which is tried on a few tokens first. Without it every pass computes all
            tokens, with the same patches at the same places, and tokens, logits and codes are the
            same up to rounding (but for noise that is drawn).
        seed: Seed of drawn tokens and of noise that is written.

    Raises:
        LatentCodeError: `ConfigError` for a prompt that is empty or leaves no room for the new
            tokens in the context of the model, for patches that it cannot take, codes that memory
            does not suffice for, and a model that keeps no keys and values where `cache` is True;
            and what `load_language_model` raises.
    """
    check_count("max_new_tokens", max_new_tokens)
    check(math.isfinite(temperature) and temperature >= 0.0,
          f"temperature is {temperature!r}; expected a number of at least 0")
    if top_k is not None:
        check_count("top_k", top_k)
    seed = checked_seed(seed)
    asked = load_language_model(model)
    ids = asked.encode(prompt, prepend_bos)[0] if isinstance(prompt, str) else _ids(prompt)
    beginning = asked.beginning(prepend_bos) if isinstance(prompt, str) else {}
    _check_prompt(asked, ids, max_new_tokens)
    kept = _Kept(asked.model, layers, max_new_tokens, len(ids) + max_new_tokens)
    device = next(asked.model.parameters()).device
    tokens = torch.tensor([ids], device=device)
    passes = _Passes(asked.model, cached=cache is not False and _keeps(asked.model, tokens))
    check(passes.cached or cache is not True, "cache is True, and the model keeps no keys and "
          "values with which a pass of the new token alone says what a whole pass says; expected "
          "None, with which every pass computes all tokens")
    writing = Writing(asked.model, tokens, patches, fwd_hooks, n_new=max_new_tokens, seed=seed)
    drawn = torch.Generator().manual_seed(seed)
    ends = _ends(asked) if stop else set()
    rows: list[tuple[int, float]] = []
    said: list[Tensor] = []
    with evaluating(asked.model), written_out():
        for i in range(max_new_tokens):
            extent = Extent(passes.first, tokens.shape[1], len(ids))
            last = passes.run(tokens, [*writing.hooks(extent), *kept.hooks(i, extent.total)])
            token = _next(last, temperature, top_k, drawn)
            rows.append((token, float(last.log_softmax(0)[token])))
            if logits:
                said.append(last.float())
            tokens = torch.cat([tokens, torch.tensor([[token]], device=device)], 1)
            if progress is not None:
                progress(i + 1, max_new_tokens)
            if token in ends:
                break
    new = [token for token, _ in rows]
    table = pd.DataFrame({
        "token": new, "text": asked.texts(new), "position": range(len(ids), tokens.shape[1]),
        "logprob": [logprob for _, logprob in rows]})
    return Generation(
        prompt if isinstance(prompt, str) else asked.decode(ids), continuation(asked, ids, new),
        (*ids, *new), len(ids), table, kept.scores[:len(new), ..., :tokens.shape[1]], kept.layers,
        torch.stack(said).numpy() if said else None, passes.cached, settings={
            **asked.settings, **beginning, "dtype": str(next(asked.model.parameters()).dtype),
            "temperature": temperature, "top_k": top_k, "seed": seed, "cached": passes.cached,
            "latentcode_version": package_version("latentcode")})


class _Passes:
    """Forward passes over a text that grows by a token.

    cached  whether a pass computes the tokens alone that are new
    first   the position of the first that the next pass computes
    past    what is kept of those before it; None where there are none, or nothing is kept
    name    what transformers calls it: `cache` from 5.24 on
    """

    def __init__(self, model: Any, *, cached: bool) -> None:
        self.model, self.cached, self.first, self.past = model, cached, 0, None
        forward = inspect.signature(model.original_model.forward) if cached else None
        self.name = ("cache" if forward is not None and "cache" in forward.parameters
                     else "past_key_values")

    def run(self, tokens: Tensor, hooks: Sequence[Hook] = ()) -> Tensor:
        """Return what is said next, float64 [V] on the CPU."""
        if not self.cached:
            logits = self.model.run_with_hooks(tokens, fwd_hooks=list(hooks))
        else:
            logits, self.past = self.model.run_with_hooks(
                tokens[:, self.first:], fwd_hooks=list(hooks), return_type="logits_and_cache",
                use_cache=True, **{self.name: self.past})
            self.first = tokens.shape[1]
        return logits[0, -1].double().cpu()


def _keeps(model: Any, tokens: Tensor) -> bool:
    """Whether a model goes on from what it keeps as it does from all tokens: tried on a few.

    Ours keep nothing, nor do some bridges; those of some hybrids keep something else.
    """
    if not hasattr(model, "original_model"):
        return False
    few = tokens.repeat(1, TRIED)[:, :TRIED]
    whole, parts = _Passes(model, cached=False), _Passes(model, cached=True)
    with evaluating(model), written_out():
        wanted = whole.run(few)
        for n in (TRIED - 2, TRIED - 1, TRIED):
            said = parts.run(few[:, :n])
            if parts.past is None:
                return False
    dtype = next(model.parameters()).dtype
    return bool((said - wanted).abs().max() <= ROUNDING.get(dtype, 1e-2) * wanted.abs().max())


class _Kept:
    """The codes of the query that says a token, of some layers."""

    def __init__(
        self, model: Any, layers: Sequence[int] | int | None, n_new: int, n_tokens: int
    ) -> None:
        shown = layout(model)
        check(shown.causal, "the model sees later tokens, too; expected one that goes on with a "
              "text")
        none = layers is not None and not isinstance(layers, int) and len(layers) == 0
        self.layers: tuple[int, ...] = () if none else chosen("layer", layers, shown.layers)
        shape = n_new, len(self.layers), shown.n_heads, n_tokens
        needed, free = 4 * math.prod(shape), available(torch.device("cpu"))
        check(free is None or needed <= free, f"codes of {n_new} new tokens in {len(self.layers)} "
              f"layers take {readable(needed)}, and {readable(free or 0)} are left; expected "
              "layers=, some of them, or fewer tokens")
        self.scores = np.zeros(shape, np.float32)

    def hooks(self, i: int, total: int) -> list[Hook]:
        """Return what keeps the codes of the i-th new token."""
        def keep(place: int, pattern: Tensor, hook: object) -> None:
            row = pattern[0, :, -1].float().cpu().numpy()  # [H, K]
            # Layers with a sliding window keep the last keys alone.
            self.scores[i, place, :, total - row.shape[1]:total] = row

        return [(SITES["code"].hook.format(layer), partial(keep, place))
                for place, layer in enumerate(self.layers)]


def _ids(prompt: Any) -> list[int]:
    """Return the ids of one prompt; `ConfigError` for what is neither text nor ids."""
    given: Any = prompt.tolist() if hasattr(prompt, "tolist") else prompt
    ids: list[Any] = [i.item() if hasattr(i, "item") else i for i in given] if isinstance(
        given, list | tuple | range) else [None]
    check(all(type(i) is int for i in ids), "prompt is "
          f"{str(given)[:60]}{f' {list(prompt.shape)}' if hasattr(prompt, 'shape') else ''}; "
          "expected text, or the ids of one text [T], such as ids[0] of a batch; of messages "
          "tokenizer.apply_chat_template(messages, tokenize=False)")
    return ids


def _check_prompt(asked: LanguageModel, ids: Sequence[int], n_new: int) -> None:
    check(len(ids) > 0, "the prompt has no tokens; expected at least one")
    for token in ids:
        check(0 <= token < asked.vocabulary, f"the prompt has token {token}; expected ids below "
              f"{asked.vocabulary:,}")
    check(asked.context is None or len(ids) + n_new <= asked.context, f"the prompt has {len(ids)} "
          f"tokens, and max_new_tokens is {n_new}; expected at most {asked.context} tokens in all, "
          "the context of the model")


def _ends(asked: LanguageModel) -> set[int]:
    """Return the tokens that end a text."""
    if isinstance(asked, OwnLanguageModel):
        return {asked.tokenizer.end}
    chosen_ends = getattr(asked.model.original_model, "generation_config", None)
    found = [getattr(asked.model.tokenizer, "eos_token_id", None),
             getattr(chosen_ends, "eos_token_id", None)]
    return {int(token) for ends in found if ends is not None
            for token in (ends if isinstance(ends, list | tuple) else [ends])}


def _next(logits: Tensor, temperature: float, top_k: int | None, drawn: torch.Generator) -> int:
    if temperature == 0.0:
        return int(logits.argmax())
    scaled = logits / temperature
    if top_k is not None and top_k < len(scaled):
        best = scaled.topk(top_k)
        scaled = torch.full_like(scaled, -torch.inf).scatter(0, best.indices, best.values)
    return int(torch.multinomial(scaled.softmax(0), 1, generator=drawn))


def continuation(asked: LanguageModel, ids: Sequence[int], new: Sequence[int]) -> str:
    """Return the text of new tokens after those of a prompt, with the space that comes first.

    Both are decoded together: some tokenizers drop the first space of what they decode, and several
    tokens can share a character.
    """
    before, whole = asked.decode(ids), asked.decode([*ids, *new])
    shared = next((i for i, (one, other) in enumerate(zip(before, whole, strict=False))
                   if one != other), min(len(before), len(whole)))
    return whole[shared:]
