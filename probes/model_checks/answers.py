"""Does a bridge compute, show and take what the model does? One number per question and layer."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from latentcode.arguments import as_tuple
from latentcode.errors import ConfigError, check, check_choice
from latentcode.files.provenance import package_version
from latentcode.models.bridges import generated_and_shown
from latentcode.models.gates import Gate, gates
from latentcode.models.hooks import see
from latentcode.models.layers import attention_layers, other_layers
from latentcode.models.modes import evaluating
from latentcode.models.patched.sites import capture, run_patched
from latentcode.models.pretrained import as_bridge, layout, load_network
from latentcode.probes.model_checks.result import ALL, QUESTIONS, TOLERANCES, ModelCheckResult
from latentcode.progress import Progress, watched
from latentcode.seeds import make_generator

Answer = tuple[str, int | None, float, str]
"""Question, layer (None: the whole model), the number, and why it is NaN."""
SEEN = "hook_in", "hook_pattern", "v.hook_out", "o.hook_in", "o.hook_out"
LENGTHS = (4, 9, 32)
"""Tokens of the prompts, fewer where the context of the model is shorter."""


@dataclass(frozen=True)
class Reference:
    """One prompt and what the forward pass of `transformers` makes of it.

    tokens   [B, T]
    logits   [B, T, V]
    hidden   the stream entering each layer [B, T, D]; empty where it is not told
    weights  the attention weights of each layer [B, H, Q, K]; empty where they are not told
    """

    tokens: Int[Tensor, "B T"]
    logits: Float[Tensor, "B T V"]
    hidden: tuple[Tensor, ...]
    weights: tuple[Tensor, ...]


def random_prompts(
    vocabulary: int, lengths: Sequence[int], seed: int, device: torch.device
) -> list[Int[Tensor, "B T"]]:
    """Return two prompts of random tokens [2, T] of each length."""
    generator = make_generator(seed, "check model")
    return [torch.randint(vocabulary, (2, length), generator=generator).to(device)
            for length in lengths]


@torch.no_grad()
def reference(network: Any, tokens: Int[Tensor, "B T"]) -> Reference:
    """Return what a model of `transformers` computes; `ConfigError` where it computes nothing."""
    try:
        output = network(input_ids=tokens, use_cache=False, output_attentions=True,
                         output_hidden_states=True)
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, NotImplementedError) as error:
        raise ConfigError(
            f"transformers cannot run a {type(network).__name__} with weights in "
            f"{str(network.dtype).removeprefix('torch.')}: {str(error).splitlines()[0]}") from error
    return Reference(tokens, output.logits, _tensors(output, "hidden_states"),
                     _tensors(output, "attentions"))


def _tensors(output: Any, name: str) -> tuple[Tensor, ...]:
    """Return what is told of every layer, nothing where it is told of some only."""
    found = tuple(getattr(output, name, None) or ())
    return found if all(isinstance(x, Tensor) for x in found) else ()


def difference(ours: Tensor, theirs: Tensor) -> float:
    """max |ours - theirs| / max |theirs|; infinite where one of them is not finite."""
    scale = theirs.abs().max().clamp_min(torch.finfo(theirs.dtype).tiny)
    found = float((ours - theirs).abs().max() / scale)
    return found if found < torch.inf else torch.inf


def answers(model: Any, references: Sequence[Reference], seed: int = 0) -> Iterator[Answer]:
    """Yield every number for one bridge, of all prompts."""
    with evaluating(model):
        for reference in references:
            yield from _forward(model, reference)
            yield from _written(model, reference, seed)
        yield from _padded(model, references)
        yield from _generated(model, min(references, key=lambda r: r.tokens.shape[1]).tokens)


def _forward(model: Any, reference: Reference) -> Iterator[Answer]:
    """Compare one pass with that of transformers, and what it shows with itself."""
    shown, gated = layout(model), gates(model)
    logits, cache = see(model, reference.tokens, [
        *(gate.hook for gate in gated.values()),
        *shown.pattern_hooks.values(), *shown.residual_hooks.values(),
        *(f"blocks.{layer}.attn.{point}" for layer in shown.layers for point in SEEN)])
    yield "logits", None, difference(logits, reference.logits), ""
    later = torch.ones(logits.shape[1], logits.shape[1], dtype=torch.bool,
                       device=logits.device).triu(1)
    for layer, hook in shown.residual_hooks.items():
        stream = cache[hook]
        if reference.hidden:
            yield "residual", layer, difference(stream, reference.hidden[layer]), ""
        else:
            yield "residual", layer, torch.nan, "transformers tells no hidden states"
    for number, (layer, hook) in enumerate(shown.pattern_hooks.items()):
        code = cache[hook]
        # Of a hybrid transformers tells those of its attention alone.
        weights = reference.weights[number] if number < len(reference.weights) else None
        if weights is None or weights.shape != code.shape:
            yield "codes", layer, torch.nan, "transformers tells no attention weights"
        else:
            yield "codes", layer, difference(code, weights), ""
        yield "rows", layer, float((code.sum(-1) - 1.0).abs().max()), ""
        if shown.causal:
            yield "masked", layer, float(code[..., later].abs().max()), ""
        yield "values", layer, *_values(cache, layer, code, gated.get(layer))


def _values(
    cache: dict[str, Tensor], layer: int, code: Tensor, gate: Gate | None
) -> tuple[float, str]:
    """z_qh = g_qh sum_k a_hqk v_kh, where query heads of a group share their values; without a gate
    g is 1."""
    v, z = (cache.get(f"blocks.{layer}.attn.{point}") for point in ("v.hook_out", "o.hook_in"))
    if v is None or z is None:
        return torch.nan, "the bridge shows no values and z"
    if v.ndim != 4 or z.ndim != 4 or code.shape[1] % v.shape[2] or z.shape[2] != code.shape[1]:
        return torch.nan, f"values have shape {tuple(v.shape)}, z {tuple(z.shape)}"
    v = v.repeat_interleave(code.shape[1] // v.shape[2], dim=2)
    if v.shape[-1] != z.shape[-1]:
        return torch.nan, f"values have shape {tuple(v.shape)}, z {tuple(z.shape)}"
    weighted = torch.einsum("bhqk,bkhd->bqhd", code, v)
    return difference(weighted if gate is None else weighted * gate(cache[gate.hook]), z), ""


def _generated(model: Any, tokens: Int[Tensor, "B T"]) -> Iterator[Answer]:
    """sum_k W_qk x_k + b_O = MHA_q(X), on the shortest prompt."""
    for layer in attention_layers(model):
        try:
            generated, shown = generated_and_shown(model, tokens, layer)
            yield "value networks", layer, difference(generated, shown), ""
        except (AttributeError, KeyError, ValueError, RuntimeError, TypeError) as error:
            # Weights that the bridge does not have, or not in the shape of value heads.
            lines = str(error).strip().splitlines() or [type(error).__name__]
            yield "value networks", layer, torch.nan, f"no value network: {lines[0]}"


def _written(model: Any, reference: Reference, seed: int) -> Iterator[Answer]:
    """Write back what was read, then random codes, as `intervene` writes."""
    layers = attention_layers(model)
    logits, codes = capture(model, reference.tokens, [("code", i) for i in layers])
    unpatched = run_patched(model, reference.tokens, {})
    yield "identity", None, _bits(_put(model, reference, codes), unpatched), ""
    generator = torch.Generator(logits.device).manual_seed(seed)
    for layer in layers:
        code = codes["code", layer]
        yield "identity", layer, _bits(_put(model, reference, {("code", layer): code}),
                                       unpatched), ""
        random = random_codes(code, generator)
        changed = _put(model, reference, {("code", layer): random})
        yield "patch", layer, difference(changed, unpatched), ""


def random_codes(code: Float[Tensor, "B H Q K"], generator: torch.Generator) -> Tensor:
    """Return codes whose rows sum to 1, zero where the given ones are zero."""
    noise = torch.rand(code.shape, generator=generator, device=code.device).to(code.dtype)
    noise = torch.where(code == 0.0, 0.0, noise + 0.01)
    return noise / noise.sum(-1, keepdim=True).clamp_min(torch.finfo(code.dtype).tiny)


def _put(model: Any, reference: Reference, codes: dict[Any, Tensor]) -> Tensor:
    def give(code: Tensor) -> Callable[[Tensor], Tensor]:
        return lambda live: code.clone()

    with warnings.catch_warnings():
        # TransformerLens warns of an edit that it discards; that is one of the questions.
        warnings.simplefilter("ignore")
        return run_patched(model, reference.tokens, {place: give(code) for place,
                                                     code in codes.items()})


def _bits(ours: Tensor, theirs: Tensor) -> float:
    """Return 0 where two tensors are equal bit for bit, or how far apart they are."""
    if torch.equal(ours, theirs):
        return 0.0
    return max(difference(ours, theirs), float(torch.finfo(ours.dtype).tiny))


def _padded(model: Any, references: Sequence[Reference]) -> Iterator[Answer]:
    """Compare prompts of all lengths in one batch, padded on the right, with each alone."""
    rows = [(row, logits) for reference in references
            for row, logits in zip(reference.tokens, reference.logits, strict=True)]
    lengths = torch.tensor([len(row) for row, _ in rows], device=rows[0][0].device)
    padded = torch.nn.utils.rnn.pad_sequence([row for row, _ in rows], batch_first=True)
    mask = torch.arange(padded.shape[1], device=lengths.device) < lengths[:, None]
    together = model.run_with_hooks(padded, attention_mask=mask.long(), fwd_hooks=[])
    yield "padding", None, max(difference(found[:len(logits)], logits)
                               for found, (_, logits) in zip(together, rows, strict=True)), ""


@watched("comparing")
def check_model(
    name_or_folder: str | Path,
    *,
    lengths: Sequence[int] | int | None = None,
    dtype: str = "float32",
    seed: int = 0,
    device: str | torch.device = "cpu",
    progress: Progress | None = None,
) -> ModelCheckResult:
    """Can the codes of a pretrained model be trusted? Its bridge against `transformers`.

    name_or_folder  as for `load_pretrained`; a folder needs no tokenizer
    lengths         of the prompts, two of each, of tokens drawn at random; default: `LENGTHS`
    dtype           of the weights: `float32`, as verbs use them, or `float64`, in which rounding
                    hides no mistake and for which the memory has to suffice
    seed            of the prompts and of the random codes
    progress        called with (prompts compared, prompts in all)

    The forward pass of the same weights by `transformers` is taken first; then the bridge has to
    give its logits (alone and padded into a batch), its hidden states and its attention weights;
    codes have to sum to 1, to be zero for later keys, and to give z from the values; the value
    networks have to give attention's output; codes written back have to leave every bit of the
    logits, and random codes to change them.

    Raises what `load_pretrained` raises, and `ConfigError` for lengths that the model cannot take.
    """
    check_choice("dtype", dtype, TOLERANCES)
    if lengths is not None:
        lengths = as_tuple(lengths)
        check(len(lengths) > 0 and min(lengths) >= 2, f"lengths are {lengths}; "
              "expected at least 2 tokens each")
    network, tokenizer = load_network(
        name_or_folder, device=device, dtype=getattr(torch, dtype), tokenized=False)
    config = network.config.get_text_config()
    limit = getattr(config, "max_position_embeddings", None)
    lengths = lengths or tuple(min(length, limit or length) for length in LENGTHS)
    check(not limit or max(lengths) <= limit, f"the longest prompt has {max(lengths)} tokens; "
          f"expected at most {limit}, the context of the model")
    weight = next(network.parameters())
    commit = getattr(network.config, "_commit_hash", None)
    references = [reference(network, tokens) for tokens in random_prompts(
        config.vocab_size, lengths, seed, weight.device)]
    model = as_bridge(str(name_or_folder), network, tokenizer)
    found: list[Answer] = []
    for answer in answers(model, references, seed):
        found.append(answer)
        if progress is not None and answer[0] == "logits":
            progress(sum(a[0] == "logits" for a in found), len(references))
    name = str(name_or_folder)
    return ModelCheckResult(_worst(found, TOLERANCES[dtype]), settings={
        "model": Path(name).name if Path(name).is_dir() else name,
        **({"commit": commit} if commit else {}),
        "architecture": type(network).__name__, "dtype": dtype,
        "tolerance": TOLERANCES[dtype], "lengths": list(lengths), "seed": seed,
        "n_layers": model.cfg.n_layers, "n_heads": model.cfg.n_heads,
        "others": {str(layer): what for layer, what in other_layers(model).items()},
        "gates": sorted({gate.function for gate in gates(model).values()}),
        "sliding_window": getattr(config, "sliding_window", None),
        "transformer_lens": package_version("transformer-lens"),
        "transformers": package_version("transformers")})


def _worst(found: Sequence[Answer], tolerance: float) -> pd.DataFrame:
    """Return one row per question and layer: the worst of all prompts."""
    table: list[dict[str, Any]] = []
    frame = pd.DataFrame(found, columns=["check", "layer", "value", "note"])
    frame["layer"] = [ALL if pd.isna(layer) else str(int(layer)) for layer in frame["layer"]]
    for name, question in QUESTIONS.items():
        for layer, rows in frame[frame["check"] == name].groupby("layer", sort=False):
            values = rows["value"].to_numpy()
            # No change and one without bounds are both wrong.
            least = question.changes and not np.isinf(values).any()
            worst = float(values.min() if least else values.max())
            unknown = bool(np.isnan(values).any())
            told = next((note for note in rows["note"] if note), "")
            table.append({
                "check": name, "layer": layer, "value": worst,
                "bound": question.bound(tolerance),
                "outcome": _outcome(question.holds(worst, tolerance), unknown, told),
                "note": told})
    return pd.DataFrame(table)


def _outcome(holds: bool, unknown: bool, note: str) -> str:
    if unknown:
        return "not compared" if note.startswith("transformers") else "fails"
    return "holds" if holds else "fails"
