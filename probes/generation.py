"""What does a model generate, with which codes, and what if these are patched?"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import takewhile
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from latentcode.codes import LatentCodes
from latentcode.devices import checked_seed
from latentcode.errors import as_tuple, check, check_choice, check_count, chosen
from latentcode.files.provenance import package_version
from latentcode.models.hooks import evaluating
from latentcode.models.kernels.fused import written_out
from latentcode.models.patched.sites import SITES, Place, check_written
from latentcode.models.pretrained import layout
from latentcode.probes.interventions.patch import Patch
from latentcode.probes.interventions.patches import Problem
from latentcode.progress import Progress, watched
from latentcode.prompts import LanguageModel, OwnLanguageModel, load_language_model
from latentcode.prompts.messages import Messages, is_messages
from latentcode.tasks.pairs import Pair

if TYPE_CHECKING:
    from latentcode.probes.interventions.patch import Patches, Tokens

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
    prompt: str | Sequence[int] | Messages,
    *,
    max_new_tokens: int = 20,
    patches: Patch | Patches | Sequence[Patch] = (),
    fwd_hooks: Sequence[Hook] = (),
    layers: Sequence[int] | int | None = None,
    logits: bool = False,
    temperature: float = 0.0,
    top_k: int | None = None,
    seed: int = 0,
    stop: bool = True,
    cache: bool = True,
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
        prompt: Text, messages that the tokenizer's chat template renders
            (`[{"role": "user", "content": ...}]`), or ids of tokens as they are.
        max_new_tokens: Most tokens to generate; fewer come where the model ends the text.
        patches: What is written, at all tokens or at some: `lc.Patch` (one, several or their sum)
            of `zero_ablation`, `random`, `identity` or a function (base, source, problem), whose
            source is None; `queries` and `keys` choose `prompt`, `generated` or positions, from 0,
            negative ones from the end of the prompt.
        fwd_hooks: Hooks as TransformerLens takes them, (name, function of activation and hook),
            after the patches.
        layers: Layers whose codes are kept; default: all; none with ().
        logits: Keep the logits of every new token, too.
        temperature: 0: the most probable token; else p^(1 / temperature), drawn from `seed`.
        top_k: Draw from the most probable ones alone; default: from all.
        stop: End where the model says the token that ends a text.
        cache: Keep keys and values where the model can, which is tried on a few tokens first, so
            that a pass computes the new token alone: codes are then [1, H, 1, K], and a value is
            written once, when its token is computed. Else every pass computes all tokens, with the
            same patches at the same places; tokens, logits and codes are the same up to rounding
            (but for noise that is drawn).
        seed: Seed of drawn tokens and of noise that is written.

    Raises:
        LatentCodeError: `ConfigError` for a prompt without tokens, with some that the model does
            not have, or without room for new ones in its context, and for patches that it cannot
            take; and what `load_language_model` raises.
    """
    check_count("max_new_tokens", max_new_tokens)
    check(temperature >= 0.0, f"temperature is {temperature!r}; expected a number of at least 0")
    seed = checked_seed(seed)
    language_model = load_language_model(model)
    network, beginning = language_model.model, {}
    text: Any = language_model.chat(cast("Any", prompt)) if is_messages(prompt) else prompt
    if isinstance(text, str):
        ids = language_model.encode(text, prepend_bos)[0]
        beginning = language_model.beginning(prepend_bos)
    else:
        ids = [int(token) for token in text]
    check(len(ids) > 0, "the prompt has no tokens; expected at least one")
    for token in ids:  # on a GPU others would end the process
        check(0 <= token < language_model.vocabulary, f"the prompt has token {token}; expected "
              f"ids below {language_model.vocabulary:,}")
    context = language_model.context
    check(context is None or len(ids) + max_new_tokens <= context, f"the prompt has {len(ids)} "
          f"tokens, and max_new_tokens is {max_new_tokens}; expected at most {context} tokens in "
          "all, the context of the model")
    shown = layout(network)
    check(shown.causal, "the model sees later tokens, too; expected one that goes on with a text")
    none_kept = isinstance(layers, Sequence) and not layers
    kept: tuple[int, ...] = () if none_kept else chosen("layer", layers, shown.layers)
    scores = np.zeros((max_new_tokens, len(kept), shown.n_heads, len(ids) + max_new_tokens),
                      np.float32)
    weight = next(network.parameters())
    tokens = torch.tensor([ids], device=weight.device)
    parts = [part for patch in as_tuple(patches) for part in patch.parts]
    _check_patches(parts, network, tokens, max_new_tokens)
    passes = _Passes(network, cached=cache and _keeps(network, tokens))
    drawn = torch.Generator().manual_seed(seed)
    # In the order of the passes: with a cache other noise is drawn than without.
    noise = torch.Generator(tokens.device).manual_seed(seed)
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
            writing = _hooks(network, parts, len(ids), passes.first, tokens.shape[1], noise)
            last = passes.run(tokens, [*writing, *fwd_hooks, *keeping])
            token = int(last.argmax())
            if temperature > 0.0:
                scaled = last / temperature
                if top_k is not None:
                    best = scaled.topk(min(top_k, len(scaled)))
                    scaled = torch.full_like(scaled, -torch.inf).scatter(
                        0, best.indices, best.values)
                token = int(torch.multinomial(scaled.softmax(0), 1, generator=drawn))
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
        text if isinstance(text, str) else language_model.decode(ids),
        continuation(language_model, ids, new), (*ids, *new), len(ids), table,
        scores[:len(new), ..., :tokens.shape[1]], kept,
        torch.stack(kept_logits).numpy() if kept_logits else None, passes.cached, settings={
            **language_model.settings, **beginning, "dtype": str(weight.dtype),
            "temperature": temperature, "top_k": top_k, "seed": seed, "cached": passes.cached,
            "latentcode_version": package_version("latentcode")})


def _ends(language_model: LanguageModel) -> set[int]:
    """Return the tokens that end a text."""
    if isinstance(language_model, OwnLanguageModel):
        return {language_model.tokenizer.end}
    bridge = language_model.model
    configured = getattr(bridge.original_model, "generation_config", None)
    return {int(token) for source in (bridge.tokenizer, configured)
            for token in as_tuple(getattr(source, "eos_token_id", None)) if token is not None}


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
    """Forward passes over a text that grows; `cached` ones compute the tokens from `first` on."""

    def __init__(self, model: Any, *, cached: bool) -> None:
        self.model, self.cached, self.first, self.past = model, cached, 0, None

    def run(self, tokens: Tensor, hooks: Sequence[Hook] = ()) -> Tensor:
        """Return the logits of the next token, float64 [V] on the CPU."""
        if not self.cached:
            logits = self.model.run_with_hooks(tokens, fwd_hooks=list(hooks))
        else:
            options = inspect.signature(self.model.original_model.forward).parameters
            name = "cache" if "cache" in options else "past_key_values"  # from transformers 5.24 on
            logits, self.past = self.model.run_with_hooks(
                tokens[:, self.first:], fwd_hooks=list(hooks), return_type="logits_and_cache",
                use_cache=True, **{name: self.past})
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


def _check_patches(parts: Sequence[Patch], model: Any, tokens: Tensor, n_new: int) -> None:
    """Raise `ConfigError` for patches that the model or a text without a source cannot take, and
    where writing would change nothing."""
    n_prompt = tokens.shape[1]
    text: Any = SimpleNamespace(  # what a patch asks of a task
        places=dict.fromkeys(PARTS, ""), place_scopes=(),
        check_scope=lambda scope: check_choice("scope", scope, WHOLE))
    for part in parts:
        kind, by_name = part.kind, isinstance(part.value, str)
        check(not kind.needs and not (kind.source and by_name), f"patch {part.named!r} takes "
              "activations from a source or from training problems, and a prompt has none; "
              "expected zero_ablation, random, identity, or a function (base, source, problem)")
        check(part.where in WHOLE, f"where is {part._where()!r}, and a text that grows has no such "
              "places; expected 'everything', of which queries= and keys= choose: 'prompt', "
              "'generated', or positions")
        check("message" not in part.sites, "a patch is at site 'message', and values of earlier "
              "tokens are not computed again; expected another site")
        for name, positions in (("queries", part.queries), ("keys", part.keys)):
            for position in as_tuple(positions):
                check(not isinstance(position, int) or -n_prompt <= position < n_prompt + n_new,
                      f"{name} has {position}; expected positions from {-n_prompt} (negative ones "
                      f"from the end of the prompt) to {n_prompt + n_new - 1}")
        replace(part, where="everything").check_alone(text, model, {})
    if parts:
        check_written(model, tokens[:, :4], [place for part in parts for place in part.places])


def _hooks(
    model: Any, parts: Sequence[Patch], n_prompt: int, first: int, total: int,
    noise: torch.Generator,
) -> list[Hook]:
    """Return the hooks that write patches in a pass over the tokens from `first` on, of `total`."""
    def chosen_of(chosen_tokens: Tokens, start: int) -> Tensor:
        """Return which of the positions from `start` on are chosen, bool."""
        positions = torch.arange(start, total, device=noise.device)
        if chosen_tokens is None:
            return torch.ones_like(positions, dtype=torch.bool)
        if isinstance(chosen_tokens, str):
            return (positions < n_prompt) == (chosen_tokens == PARTS[0])
        return torch.isin(positions, torch.tensor(
            [n if n >= 0 else n + n_prompt for n in as_tuple(chosen_tokens)], device=noise.device))

    def write(live: Tensor, hook: object, part: Patch, place: Place) -> Tensor:
        # Layers with a sliding window keep the last keys alone.
        first_key = total - live.shape[-1] if place[0] == "code" else first
        scope = chosen_of(part.queries, first)[:, None] & chosen_of(part.keys, first_key)
        problem = Problem(None, {part.kind.source: {place: None}},  # type: ignore
                          scope[None], noise, place, part.alpha)
        alone = replace(part, site=place[0], layers=(place[1],))
        return alone.edits(model, problem)[place](live)

    return [(SITES[place[0]].hook.format(place[1]), partial(write, part=part, place=place))
            for part in parts for place in part.places]


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
