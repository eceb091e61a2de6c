"""Can what is read from and written into a pretrained model be trusted?

Does its bridge compute, show and take what the model does? One number per question and layer.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from matplotlib.patches import Patch
from torch import Tensor

from latentcode.devices import make_generator
from latentcode.errors import ConfigError, as_tuple, check, check_choice
from latentcode.figures.style import GREY, PALETTE, Figure
from latentcode.files.provenance import package_version
from latentcode.models.hooks import attention_layers, evaluating, other_layers, see
from latentcode.models.hypernetwork import Gate, gates, generated_and_shown
from latentcode.models.patched.sites import capture, run_patched
from latentcode.models.pretrained import as_bridge, layout, load_network
from latentcode.probes.common.figures import panels
from latentcode.probes.common.results import TableResult
from latentcode.progress import Progress, watched

VERBS = ("extract, decode", "residual streams", "intervene", "renormalize", "value_network")
"""What a user does with a model."""
READING, RESIDUAL, WRITING, RENORMALIZING, GENERATING = VERBS
TOLERANCES: Mapping[str, float] = {"float64": 1e-6, "float32": 1e-4}
"""Largest difference over the largest number compared. The bridge and `transformers` add the same
products in another order: over all architectures of docs/architectures.md that gave at most 1e-6 in
float32. In float64 it gives 1e-15 where all is float64, and up to 4e-7 where an architecture
computes its norms, its rotations or its softmax in float32 whatever its weights are."""
ALL = "all"
"""The layer of numbers of the whole model."""
COLORS = {"holds": PALETTE[0], "fails": PALETTE[3], "not compared": GREY}
NUMBERS = 16
"""Layers up to which the numbers are written into their cells."""
Answer = tuple[str, int | str, float, str]
"""Question, layer, the number, and why it is NaN."""
LENGTHS = (4, 9, 32)
"""Tokens of the prompts, fewer where the context of the model is shorter."""


@dataclass(frozen=True)
class Question:
    """One thing that has to hold, and the verbs that cannot be trusted where it does not.

    The number may be no more than rounding; `exact`: 0; `changes`: it has to be more than rounding.
    """

    asks: str
    verbs: tuple[str, ...]
    exact: bool = False
    changes: bool = False


QUESTIONS: Mapping[str, Question] = {
    "logits": Question("are the logits those of transformers?", VERBS),
    "padding": Question("and of prompts of several lengths in one batch?", (READING, RESIDUAL)),
    "residual": Question("is hook_resid_pre the hidden state of transformers?", (RESIDUAL,)),
    "codes": Question("are the codes the attention weights of transformers?", VERBS),
    "rows": Question("do the codes of a query sum to 1?", (RENORMALIZING,)),
    "masked": Question("are codes of later keys zero?", VERBS, exact=True),
    "values": Question("do codes times values give z?", (GENERATING,)),
    "value networks": Question("does sum_k W_qk x_k + b_O give attention's output?",
                               (GENERATING,)),
    "identity": Question("do codes written back leave every bit of the logits?",
                         (WRITING, RENORMALIZING), exact=True),
    "patch": Question("do random codes change the logits?", (WRITING, RENORMALIZING),
                      changes=True),
}
"""Every question by its name, in the order in which they are asked."""


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
    """Compare the bridge of a pretrained model with `transformers`: can its codes be trusted?

    The forward pass of the same weights by `transformers` is taken first; then the bridge has to
    give its logits (alone and padded into a batch), its hidden states and its attention weights;
    codes have to sum to 1, to be zero for later keys, and to give z from the values; the value
    networks have to give attention's output; codes written back have to leave every bit of the
    logits, and random codes to change them.

    Args:
        name_or_folder: As for `load_pretrained`; a folder needs no tokenizer.
        lengths: Of the prompts, two of each, of tokens drawn at random; default: `LENGTHS`.
        dtype: Of the weights: `float32`, as verbs use them, or `float64`, in which rounding hides
            no mistake and for which the memory has to suffice.
        seed: Of the prompts and of the random codes.
        device: `cpu` or `cuda`.
        progress: Called with (prompts compared, prompts in all).

    Raises:
        LatentCodeError: What `load_pretrained` raises, and `ConfigError` where the model cannot
            take the lengths.
    """
    check_choice("dtype", dtype, TOLERANCES)
    network, tokenizer = load_network(
        name_or_folder, device=device, dtype=getattr(torch, dtype), tokenized=False)
    config = network.config.get_text_config()
    limit = getattr(config, "max_position_embeddings", None)
    lengths = tuple(min(length, limit or length) for length in LENGTHS) if (
        lengths is None) else as_tuple(lengths)
    check(len(lengths) > 0 and min(lengths) >= 2, f"lengths are {lengths}; expected at least 2 "
          "tokens each")
    check(not limit or max(lengths) <= limit, f"the longest prompt has {max(lengths)} tokens; "
          f"expected at most {limit}, the context of the model")
    commit = getattr(network.config, "_commit_hash", None)
    generator = make_generator(seed, "check model")
    device = next(network.parameters()).device
    references = [
        reference(network, torch.randint(config.vocab_size, (2, length), generator=generator).to(
            device)) for length in lengths]
    name = str(name_or_folder)
    model = as_bridge(name, network, tokenizer)
    answers: list[Answer] = []
    with evaluating(model):
        for done, prompt in enumerate(references, 1):
            answers += [*_forward(model, prompt), *_written(model, prompt, seed)]
            if progress is not None:
                progress(done, len(references))
        answers.append(("padding", ALL, _padded(model, references), ""))
        shortest = min(references, key=lambda prompt: prompt.tokens.shape[1]).tokens
        answers += [("value networks", layer, *value_network_error(model, shortest, layer))
                    for layer in attention_layers(model)]
    return ModelCheckResult(worst_answers(answers, TOLERANCES[dtype]), settings={
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


@dataclass(frozen=True)
class Reference:
    """A prompt and the pass of `transformers`: the stream that enters each layer [B, T, D] and the
    attention weights [B, H, Q, K], which are empty where they are not told."""

    tokens: Int[Tensor, "B T"]
    logits: Float[Tensor, "B T V"]
    hidden: tuple[Tensor, ...]
    weights: tuple[Tensor, ...]


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
    hidden, weights = (tuple(getattr(output, name, None) or ())
                       for name in ("hidden_states", "attentions"))
    return Reference(tokens, output.logits, *(
        layers if all(isinstance(x, Tensor) for x in layers) else ()
        for layers in (hidden, weights)))


def difference(ours: Tensor, theirs: Tensor) -> float:
    """max |ours - theirs| / max |theirs|; infinite where one of them is not finite."""
    scale = theirs.abs().max().clamp_min(torch.finfo(theirs.dtype).tiny)
    largest = float((ours - theirs).abs().max() / scale)
    return largest if largest < torch.inf else torch.inf


def value_network_error(
    model: Any, tokens: Int[Tensor, "B T"], layer: int
) -> tuple[float, str]:
    """Return how far sum_k W_qk x_k + b_O is from attention's output, or NaN and why."""
    try:
        return difference(*generated_and_shown(model, tokens, layer)), ""
    except (AttributeError, KeyError, ValueError, RuntimeError, TypeError) as error:
        # Weights that the bridge does not have, or not in the shape of value heads.
        lines = str(error).strip().splitlines() or [type(error).__name__]
        return torch.nan, f"no value network: {lines[0]}"


def _forward(model: Any, reference: Reference) -> Iterator[Answer]:
    """Compare one pass with that of transformers, and what it shows with itself."""
    shown, gated = layout(model), gates(model)
    logits, cache = see(model, reference.tokens, [
        *(gate.hook for gate in gated.values()),
        *shown.pattern_hooks.values(), *shown.residual_hooks.values(),
        *(f"blocks.{layer}.attn.{point}" for layer in shown.layers
          for point in ("v.hook_out", "o.hook_in"))])
    yield "logits", ALL, difference(logits, reference.logits), ""
    for layer, hook in shown.residual_hooks.items():
        if reference.hidden:
            yield "residual", layer, difference(cache[hook], reference.hidden[layer]), ""
        else:
            yield "residual", layer, torch.nan, "transformers tells no hidden states"
    n_tokens = logits.shape[1]
    later = torch.ones(n_tokens, n_tokens, dtype=torch.bool, device=logits.device).triu(1)
    # Of a hybrid transformers tells those of its attention alone.
    for (layer, hook), weights in zip_longest(shown.pattern_hooks.items(), reference.weights[
            :len(shown.pattern_hooks)]):
        code = cache[hook]
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
    if (v.ndim != 4 or z.ndim != 4 or code.shape[1] % v.shape[2] or z.shape[2] != code.shape[1]
            or v.shape[-1] != z.shape[-1]):
        return torch.nan, f"values have shape {tuple(v.shape)}, z {tuple(z.shape)}"
    v = v.repeat_interleave(code.shape[1] // v.shape[2], dim=2)
    weighted = torch.einsum("bhqk,bkhd->bqhd", code, v)
    return difference(weighted if gate is None else weighted * gate(cache[gate.hook]), z), ""


def _written(model: Any, reference: Reference, seed: int) -> Iterator[Answer]:
    """Write back what was read, then random codes, as `intervene` writes."""
    logits, codes = capture(
        model, reference.tokens, [("code", layer) for layer in attention_layers(model)])
    generator = torch.Generator(logits.device).manual_seed(seed)

    def put(codes: Mapping[Any, Tensor]) -> Tensor:
        with warnings.catch_warnings():
            # TransformerLens warns of an edit that it discards; that is one of the questions.
            warnings.simplefilter("ignore")
            return run_patched(model, reference.tokens, {
                place: partial(_copy, code) for place, code in codes.items()})

    def bits(ours: Tensor) -> float:  # 0 where all are equal
        return 0.0 if torch.equal(ours, unpatched) else max(
            difference(ours, unpatched), float(torch.finfo(ours.dtype).tiny))

    unpatched = put({})
    yield "identity", ALL, bits(put(codes)), ""
    for (site, layer), code in codes.items():
        yield "identity", layer, bits(put({(site, layer): code})), ""
        # Rows that sum to 1, zero where the codes are zero.
        noise = torch.rand(code.shape, generator=generator, device=code.device).to(code.dtype)
        noise = torch.where(code == 0.0, 0.0, noise + 0.01)
        random = noise / noise.sum(-1, keepdim=True).clamp_min(torch.finfo(code.dtype).tiny)
        yield "patch", layer, difference(put({(site, layer): random}), unpatched), ""


def _copy(code: Tensor, live: Tensor) -> Tensor:
    return code.clone()


def _padded(model: Any, references: Sequence[Reference]) -> float:
    """Compare prompts of all lengths in one batch, padded on the right, with each alone."""
    rows = [row for reference in references for row in reference.tokens]
    alone = [logits for reference in references for logits in reference.logits]
    lengths = torch.tensor([len(row) for row in rows], device=rows[0].device)
    padded = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
    mask = torch.arange(padded.shape[1], device=lengths.device) < lengths[:, None]
    together = model.run_with_hooks(padded, attention_mask=mask.long(), fwd_hooks=[])
    return max(difference(shared[:len(logits)], logits)
               for shared, logits in zip(together, alone, strict=True))


def worst_answers(answers: Sequence[Answer], tolerance: float) -> pd.DataFrame:
    """Return one row per question and layer: the worst of all prompts."""
    table: list[dict[str, Any]] = []
    frame = pd.DataFrame(answers, columns=["check", "layer", "value", "note"])
    order = frame["check"].map(list(QUESTIONS).index)
    frame = frame.astype({"layer": str}).loc[order.sort_values(kind="stable").index]
    for (name, layer), rows in frame.groupby(["check", "layer"], sort=False):
        question = QUESTIONS[str(name)]
        bound = 0.0 if question.exact else tolerance
        values = rows["value"].to_numpy()
        # No change and one without bounds are both wrong.
        least = question.changes and not np.isinf(values).any()
        worst = float(values.min() if least else values.max())
        note = next((note for note in rows["note"] if note), "")
        # Both are false for NaN; a change that is not finite breaks the model.
        holds = bound < worst < np.inf if question.changes else worst <= bound
        unseen = np.isnan(values).any() and note.startswith("transformers")
        table.append({
            "check": name, "layer": layer, "value": worst, "bound": bound,
            "outcome": "not compared" if unseen else "holds" if holds else "fails", "note": note})
    return pd.DataFrame(table)


@dataclass(frozen=True, repr=False)
class ModelCheckResult(TableResult):
    """Does a bridge compute, show and take what the model does?

    Attributes:
        table: One row per question and layer (`all`: of the whole model): `value`, the worst of all
            prompts, which has to be at most `bound` (above it for `patch`); `outcome`: `holds`,
            `fails` or `not compared`; `note`, why there is no number. Numbers are differences over
            the largest of the numbers compared; of `rows` and `masked` they are codes. 0 for
            `identity` says that all bits are equal.
        settings: Everything else that determines the numbers.
    """

    FORMAT = "latentcode.model_checks"
    CAPTION = "the worst layer of every question"
    COLUMNS: ClassVar = {"table": ("check", "layer", "value", "bound", "outcome", "note")}

    table: pd.DataFrame
    settings: Mapping[str, Any]

    @property
    def failed(self) -> tuple[str, ...]:
        """The names of the questions whose answer is no in some layer."""
        fails = set(self.table.loc[self.table["outcome"] == "fails", "check"])
        return tuple(name for name in QUESTIONS if name in fails)

    @property
    def supported(self) -> bool:
        """Whether every answer is yes, that about the codes of every layer included."""
        codes = set(self.table.loc[self.table["check"] == "codes", "outcome"])
        return not self.failed and bool(codes) and "not compared" not in codes

    @property
    def trusted(self) -> dict[str, bool]:
        """What a user does with a model -> whether no answer speaks against it."""
        return {verb: all(verb not in QUESTIONS[name].verbs for name in self.failed)
                for verb in VERBS}

    @property
    def verdict(self) -> str:
        """`SUPPORTED`, or what fails or was not seen, and what can be used, in one line."""
        if self.supported:
            return "SUPPORTED"
        if not self.failed:
            return ("NOT SHOWN: codes were not compared in every layer. Nothing that was compared "
                    "fails.")
        failing = []
        for row in self._worst().query("outcome == 'fails'").to_dict("records"):
            layer = ALL if row["layer"] == ALL else f"layer {row['layer']}"
            why = row["note"] if pd.isna(row["value"]) else f"{row['value']:.2g} in {layer}"
            failing.append(f"{row['check']} ({why})")
        left = ", ".join(verb for verb, trusted in self.trusted.items() if trusted)
        return f"NOT SUPPORTED in full: {'; '.join(failing)}. " + (
            f"Nothing speaks against {left}." if left else "Nothing is left to be trusted.")

    @property
    def caveats(self) -> tuple[str, ...]:
        notes = [f"{self.settings['model']} ({self.settings['architecture']}, "
                 f"{self.settings['dtype']}): {self.verdict}"]
        others: Mapping[str, str] = self.settings.get("others", {})
        if others:
            notes.append(f"A hybrid: {', '.join(sorted(set(others.values())))} in layers "
                         f"{', '.join(others)}, which have no codes; checked are the others.")
        notes += [f"Attention has a gate ({function}): a value network needs it beside the code "
                  "(hypernetwork.gate_of)." for function in self.settings.get("gates", ())]
        longest, window = max(self.settings["lengths"]), self.settings["sliding_window"]
        if window and window >= longest:
            notes.append(f"The sliding window has {window} tokens and the longest prompt {longest}:"
                         " what the window masks was not seen; give longer prompts.")
        notes += [f"Not compared: {row.check}, as {row.note}." for row in self._worst().itertuples()
                  if row.outcome == "not compared"]
        return tuple(notes)

    def _worst(self) -> pd.DataFrame:
        """Return the row of the worst layer of every question, what fails before what holds."""
        changes = self.table["check"].map(lambda name: QUESTIONS[name].changes)
        size = self.table["value"].where(~changes, -self.table["value"]).fillna(np.inf)
        return self.table.fillna({"note": ""}).assign(
            fine=self.table["outcome"] != "fails", size=-size,
            order=self.table["check"].map(list(QUESTIONS).index)).sort_values(
            ["order", "fine", "size"], kind="stable").drop_duplicates("check")

    def summary(self) -> pd.DataFrame:
        """Return the worst layer of every question, and what cannot be trusted where it fails."""
        rows = []
        for row in self._worst().to_dict("records"):
            question = QUESTIONS[row["check"]]
            rows.append({
                "check": row["check"], "asks": question.asks, "outcome": row["outcome"],
                "value": "" if pd.isna(row["value"]) else f"{row['value']:.2g}",
                "bound": f"{'>' if question.changes else '<='} {row['bound']:.2g}",
                "layer": row["layer"],
                "not to be trusted": ", ".join(question.verbs) * (row["outcome"] == "fails")})
        return pd.DataFrame(rows)

    def figure(self) -> Figure:
        """Return the questions down and the layers across: what holds, what fails, by how much."""
        checks, layers = (list(self.table[name].unique()) for name in ("check", "layer"))
        layers.sort(key=lambda layer: int(layer) if layer.isdigit() else -1)
        width = min(0.62 * len(layers), 12.0) + 1.6
        with panels(1, 1, width, 0.24 * len(checks) + 1.0) as (figure, grid):
            axes = grid[0, 0]
            axes.grid(False)
            for row in self.table.to_dict("records"):
                x, y, value = layers.index(row["layer"]), checks.index(row["check"]), row["value"]
                axes.barh(y, 0.94, 0.9, x - 0.47, color=COLORS[row["outcome"]])
                if len(layers) <= NUMBERS and pd.notna(value):
                    axes.text(x, y, f"{value:.0e}" if value else "0", ha="center", va="center",
                              fontsize=6.5, color="white")
            step = max(1, len(layers) // NUMBERS)
            axes.set_xticks(range(0, len(layers), step), layers[::step])
            axes.set_yticks(range(len(checks)), checks)
            axes.set(xlim=(-0.5, len(layers) - 0.5), ylim=(len(checks) - 0.5, -0.5), xlabel="layer")
            axes.tick_params(length=0)
            axes.spines[:].set_visible(False)
            outcomes = [name for name in COLORS if name in set(self.table["outcome"])]
            figure.legend(handles=[Patch(color=COLORS[name], label=name) for name in outcomes],
                          loc="outside upper center", ncols=3)
        return figure
