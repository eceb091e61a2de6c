"""What does a model generate, with which codes, and what if these are patched?"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import takewhile
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from latentcode.codes import LatentCodes
from latentcode.devices import available_memory, checked_seed, readable
from latentcode.errors import UnknownNameError, as_tuple, check, check_choice, check_count, chosen
from latentcode.files.provenance import package_version
from latentcode.models.hooks import check_layer, evaluating
from latentcode.models.kernels.fused import written_out
from latentcode.models.patched.sites import SITES, Edit, Place, check_written
from latentcode.models.pretrained import layout
from latentcode.probes.interventions.patch import Added, Patch, Tokens
from latentcode.probes.interventions.patches import Problem
from latentcode.progress import Progress, watched
from latentcode.prompts import LanguageModel, OwnLanguageModel, load_language_model
from latentcode.tasks.pairs import Pair

if TYPE_CHECKING:
    from latentcode.probes.interventions.patch import Patches

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
    language_model = load_language_model(model)
    network, beginning = language_model.model, {}
    if isinstance(prompt, str):
        ids = language_model.encode(prompt, prepend_bos)[0]
        beginning = language_model.beginning(prepend_bos)
    else:
        ids = _ids(prompt)
    check(len(ids) > 0, "the prompt has no tokens; expected at least one")
    for token in ids:
        check(0 <= token < language_model.vocabulary, f"the prompt has token {token}; expected "
              f"ids below {language_model.vocabulary:,}")
    context = language_model.context
    check(context is None or len(ids) + max_new_tokens <= context, f"the prompt has {len(ids)} "
          f"tokens, and max_new_tokens is {max_new_tokens}; expected at most {context} tokens in "
          "all, the context of the model")
    shown = layout(network)
    check(shown.causal, "the model sees later tokens, too; expected one that goes on with a text")
    without_codes = isinstance(layers, Sequence) and not layers
    kept: tuple[int, ...] = () if without_codes else chosen("layer", layers, shown.layers)
    shape = max_new_tokens, len(kept), shown.n_heads, len(ids) + max_new_tokens
    needed, free = 4 * math.prod(shape), available_memory(torch.device("cpu"))
    check(free is None or needed <= free, f"codes of {max_new_tokens} new tokens in {len(kept)} "
          f"layers take {readable(needed)}, and {readable(free or 0)} are left; expected "
          "layers=, some of them, or fewer tokens")
    scores = np.zeros(shape, np.float32)
    weight = next(network.parameters())
    tokens = torch.tensor([ids], device=weight.device)
    passes = _Passes(network, cached=cache is not False and _keeps(network, tokens))
    check(passes.cached or cache is not True, "cache is True, and the model keeps no keys and "
          "values with which a pass of the new token alone says what a whole pass says; expected "
          "None, with which every pass computes all tokens")
    writing = Writing(network, tokens, patches, fwd_hooks, n_new=max_new_tokens, seed=seed)
    drawn = torch.Generator().manual_seed(seed)
    ends = _ends(language_model) if stop else set()
    new: list[int] = []
    logprobs: list[float] = []
    kept_logits: list[Tensor] = []

    def keep(pattern: Tensor, hook: object, place: int) -> None:
        row = pattern[0, :, -1].float().cpu().numpy()  # [H, K]
        # Layers with a sliding window keep the last keys alone.
        scores[len(new), place, :, tokens.shape[1] - row.shape[1]:tokens.shape[1]] = row

    keeping = [(SITES["code"].hook.format(layer), partial(keep, place=place))
               for place, layer in enumerate(kept)]
    with evaluating(network), written_out():
        for i in range(max_new_tokens):
            last = passes.run(tokens, [*writing.hooks(passes.first, tokens.shape[1]), *keeping])
            token = _next(last, temperature, top_k, drawn)
            new.append(token)
            logprobs.append(float(last.log_softmax(0)[token]))
            if logits:
                kept_logits.append(last.float())
            tokens = torch.cat([tokens, torch.tensor([[token]], device=weight.device)], 1)
            if progress is not None:
                progress(i + 1, max_new_tokens)
            if token in ends:
                break
    table = pd.DataFrame({
        "token": new, "text": language_model.texts(new),
        "position": range(len(ids), tokens.shape[1]), "logprob": logprobs})
    return Generation(
        prompt if isinstance(prompt, str) else language_model.decode(ids),
        continuation(language_model, ids, new), (*ids, *new), len(ids), table,
        scores[:len(new), ..., :tokens.shape[1]], kept,
        torch.stack(kept_logits).numpy() if kept_logits else None, passes.cached, settings={
            **language_model.settings, **beginning, "dtype": str(weight.dtype),
            "temperature": temperature, "top_k": top_k, "seed": seed, "cached": passes.cached,
            "latentcode_version": package_version("latentcode")})


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


def _ends(language_model: LanguageModel) -> set[int]:
    """Return the tokens that end a text."""
    if isinstance(language_model, OwnLanguageModel):
        return {language_model.tokenizer.end}
    bridge = language_model.model
    configured = getattr(bridge.original_model, "generation_config", None)
    return {int(token) for source in (bridge.tokenizer, configured)
            for token in as_tuple(getattr(source, "eos_token_id", None)) if token is not None}


def _next(logits: Tensor, temperature: float, top_k: int | None, drawn: torch.Generator) -> int:
    if temperature == 0.0:
        return int(logits.argmax())
    scaled = logits / temperature
    if top_k is not None and top_k < len(scaled):
        best = scaled.topk(top_k)
        scaled = torch.full_like(scaled, -torch.inf).scatter(0, best.indices, best.values)
    return int(torch.multinomial(scaled.softmax(0), 1, generator=drawn))


def continuation(
    language_model: LanguageModel, ids: Sequence[int], new: Sequence[int]
) -> str:
    """Return the text of new tokens after those of a prompt, with the space that comes first.

    Both are decoded together: some tokenizers drop the first space of what they decode, and several
    tokens can share a character.
    """
    before, whole = language_model.decode(ids), language_model.decode([*ids, *new])
    shared = takewhile(lambda letters: letters[0] == letters[1], zip(before, whole, strict=False))
    return whole[len(list(shared)):]


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
            last = parts.run(few[:, :n])
            if parts.past is None:
                return False
    dtype = next(model.parameters()).dtype
    return bool((last - wanted).abs().max() <= ROUNDING.get(dtype, 1e-2) * wanted.abs().max())


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
        given = () if isinstance(patches, Mapping) else as_tuple(patches)
        for patch in given:
            check(isinstance(patch, Added), f"patches has {patch!r}; expected lc.Patch(...), "
                  "several of them, or {(site, layer): edit}; hooks of TransformerLens go by "
                  "fwd_hooks=")
        self.patches: list[Patch] = [part for patch in given for part in patch.parts]
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

    def hooks(self, first: int, total: int) -> list[Hook]:
        """Return the hooks of a pass over the tokens from `first` on, of `total`."""
        hooks: list[Hook] = []
        for (site, layer), edit in self.edits.items():
            def put(
                live: Tensor, hook: object, edit: Edit = edit, site: str = site, at: int = layer
            ) -> Tensor:
                edited = edit(live.clone())
                check(isinstance(edited, Tensor) and edited.shape == live.shape, "the edit at site "
                      f"{site!r} of layer {at} returned {getattr(edited, 'shape', edited)}; "
                      f"expected a tensor {list(live.shape)}")
                return edited

            hooks.append((SITES[site].hook.format(layer), put))
        for part in self.patches:
            for place in part.own_places:
                alone = replace(part, site=place[0], layers=(place[1],))

                def write(
                    live: Tensor, hook: object, patch: Patch = alone, at: Place = place
                ) -> Tensor:
                    problem = self._problem(patch, at, live, first, total)
                    return patch.edits(self.model, problem)[at](live)

                hooks.append((SITES[place[0]].hook.format(place[1]), write))
        return [*hooks, *self.fwd_hooks]

    def _problem(
        self, part: Patch, place: Place, live: Tensor, first: int, total: int
    ) -> Problem:
        """Return what a patch is given: no pairs, and no source."""
        def meant(chosen_tokens: Tokens, start: int) -> Tensor:
            """Return which of the positions from `start` on are meant, bool."""
            positions = torch.arange(start, total, device=live.device)
            if chosen_tokens is None:
                return torch.ones_like(positions, dtype=torch.bool)
            if isinstance(chosen_tokens, str):
                return (positions < self.n_prompt) == (chosen_tokens == PARTS[0])
            return torch.isin(positions, torch.tensor(
                [n if n >= 0 else n + self.n_prompt for n in as_tuple(chosen_tokens)],
                device=live.device))

        # Layers with a sliding window keep the last keys alone.
        first_key = total - live.shape[-1] if place[0] == "code" else first
        written = meant(part.queries, first)[:, None] & meant(part.keys, first_key)
        nothing: Any = dict.fromkeys((place,))
        return Problem(
            None, {part.kind.source: nothing},  # type: ignore[arg-type]
            written[None], self.generator, place, part.alpha)


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
        for number in () if tokens is None or isinstance(tokens, str) else as_tuple(tokens):
            check(-n_prompt <= number < n_prompt + n_new, f"{name} has {number}; expected "
                  f"positions from {-n_prompt} (negative ones from the end of the prompt) to "
                  f"{n_prompt + n_new - 1}")
    text: Any = SimpleNamespace(  # what a patch asks of a task
        places=dict.fromkeys(PARTS, ""), place_scopes=(),
        check_scope=lambda scope: check_choice("scope", scope, WHOLE))
    replace(part, where="everything").check_alone(text, model, {})


@dataclass(frozen=True, repr=False)
class Generation:
    """A text that a model went on with: N new tokens after P of the prompt.

    prompt    the text that was given
    text      what the model went on to say
    tokens    ids of all P + N tokens
    n_prompt  P
    table     one row per new token: `token`, `text`, `position` (from 0, in the whole text) and
              `logprob`, log p of the token in nats, at temperature 1
    scores    float32 [N, layer, head, P + N]: of each new token the row of codes of the query that
              said it, the token before; 0 for keys that it does not see. As they were used, with
              what was written
    layers    the layers of the second axis
    logits    float32 [N, vocabulary], of what was said next; None where they were not asked for
    cached    whether keys and values were kept, so that a pass computes the new token alone
    settings  of the model and of the call
    """

    prompt: str
    text: str
    tokens: tuple[int, ...]
    n_prompt: int
    table: pd.DataFrame
    scores: np.ndarray
    layers: tuple[int, ...]
    logits: np.ndarray | None
    cached: bool
    settings: Mapping[str, Any]

    def __len__(self) -> int:
        return len(self.table)

    def codes(self, *keys: int) -> LatentCodes:
        """Return the codes of all new tokens with some tokens of the prompt.

        keys  positions in the prompt, negative ones from its end; default: all

        An instance is a new token, and its pair is `query->KEY`, of the token before it. So every
        question about codes can be asked. `ConfigError` for keys that the prompt does not have.
        """
        wanted = keys or tuple(range(self.n_prompt))
        for key in wanted:
            check(-self.n_prompt <= key < self.n_prompt, f"key is {key}; expected a position of "
                  f"the prompt, which has {self.n_prompt} tokens")
        places = [key % self.n_prompt for key in wanted]
        scores = self.scores[..., places].transpose(0, 1, 3, 2)  # [N, L, pair, H]
        return LatentCodes(np.ascontiguousarray(scores), self.table.copy(), tuple(
            Pair(f"query->{key}", f"the token before a new one, and token {key} of the prompt")
            for key in places), self.layers, dict(self.settings))

    def __repr__(self) -> str:
        kept = "with kept keys and values" if self.cached else "by whole passes"
        return (f"{self.prompt!r} -> {self.text!r} ({len(self)} tokens {kept}; codes of "
                f"{self.scores.shape[1]} layers, {self.scores.shape[2]} heads)")
