"""Pretrained language models, as TransformerLens bridges whose codes can be read and written.

A softmax transformer is a hypernetwork too: with a = softmax over keys, the output of a layer is
sum_k W_qk x_k + b_O with W_qk = sum_h a_hqk W_O^h W_V^h (paper, Eq. 5), where query heads of one
group share W_V^h in grouped-query attention.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from latentcode.errors import ArtifactError, ConfigError, check
from latentcode.models.hooks import see
from latentcode.models.layers import attention_layers, other_layers
from latentcode.models.modes import evaluating, own_draws
from latentcode.models.opening import (
    INSTEAD,
    TOKENIZERS,
    Named,
    as_dtype,
    check_causal,
    check_eager,
    check_memory,
    check_not_quantized,
    first_line,
    is_run,
    named,
    one_device,
    one_line,
)
from latentcode.models.pattern_seam import add_seam
from latentcode.seeds import checked_seed

if TYPE_CHECKING:
    from transformer_lens.model_bridge import TransformerBridge
    from transformers import PreTrainedModel

ROUNDING = 0.01
"""How far from 1 the sum of a row of a softmax may be, whatever the type of the weights."""


@dataclass(frozen=True)
class Layout:
    """Where are the codes of a model, and does writing them take effect?

    layers          those with attention, in order; of a hybrid not all
    pattern_hooks   by these layers, the hook that shows the codes [B, H, Q, K]
    residual_hooks  by layer, all of them, the hook that shows the residual stream [B, T, D]
                    entering it
    others          by layer without attention, what stands there instead
    writable        whether what a hook returns at the pattern is what the layer goes on with
    normalized      whether codes obey their normalisation: those of a query of a bridge sum to 1
    causal          whether a query sees no later key
    """

    n_layers: int
    n_heads: int
    d_model: int
    layers: tuple[int, ...]
    pattern_hooks: Mapping[int, str]
    residual_hooks: Mapping[int, str]
    others: Mapping[int, str]
    writable: bool
    normalized: bool
    causal: bool

    def check_writable(self) -> None:
        """Raise `ConfigError` where writing a code would change nothing."""
        check(self.writable, "this architecture shows its attention pattern only after it was "
              "used, so that a code written there changes nothing; expected one whose pattern can "
              "be replaced, such as GPT-2, Llama, GPT-NeoX, Qwen or Gemma")

    def check_normalized(self) -> None:
        """Raise `ConfigError` where renormalised codes would be none that the model ever has."""
        check(self.normalized, "the codes of a query of this model do not sum to 1, to which "
              "renormalising would bring them (latentcode zoo check: rows); expected "
              "renormalize=False")


def layout(model: Any) -> Layout:
    """Return where the codes of a model are: of one of ours, or of a `TransformerBridge`.

    A bridge is asked by two passes over two tokens, one of them with all patterns set to zero.
    `ConfigError` names the layers that show no pattern or no residual stream.
    """
    config = model.cfg
    layers = attention_layers(model)
    patterns = {layer: f"blocks.{layer}.attn.hook_pattern" for layer in layers}
    residuals = {layer: f"blocks.{layer}.hook_resid_pre" for layer in range(config.n_layers)}
    ours = not hasattr(model, "original_model")
    writable, normalized = (True, True) if ours else _tried(
        model, tuple(patterns.values()), tuple(residuals.values()))
    return Layout(config.n_layers, config.n_heads, config.d_model, layers, patterns, residuals,
                  {} if ours else other_layers(model), writable, normalized, is_causal(model))


def is_causal(model: Any) -> bool:
    """Whether a query of a model, one of ours or a bridge, sees no later key."""
    if hasattr(model, "original_model"):
        return bool(getattr(model.cfg, "attention_dir", "causal") == "causal")
    return bool(model.cfg.causal)


def _tried(
    model: Any, patterns: tuple[str, ...], residuals: tuple[str, ...]
) -> tuple[bool, bool]:
    """Return whether patterns of zero change the logits, and whether the rows of patterns sum to 1.

    `ConfigError` unless all hooks exist.
    """
    def erase(pattern: Tensor, hook: object) -> Tensor:
        return torch.zeros_like(pattern)

    tokens = torch.arange(2, device=next(model.parameters()).device)[None]
    with evaluating(model), warnings.catch_warnings():
        # TransformerLens warns of an edit that it discards; that is what we want to find out.
        warnings.simplefilter("ignore")
        logits, shown = see(model, tokens, [*patterns, *residuals])
        seen = {name: tuple(activation.shape) for name, activation in shown.items()}
        expected = {**dict.fromkeys(patterns, (1, model.cfg.n_heads, 2, 2)),
                    **dict.fromkeys(residuals, (1, 2, model.cfg.d_model))}
        missing = [f"{name} {seen.get(name, '')}".strip() for name, shape in expected.items()
                   if seen.get(name) != shape]
        check(not missing, f"model {model.cfg.model_name!r} ({model.cfg.architecture}) does not "
              f"show {', '.join(missing)}; expected the attention pattern [B, H, Q, K] and the "
              "residual stream [B, T, D] of every layer with attention")
        erased = model.run_with_hooks(tokens, fwd_hooks=[(name, erase) for name in patterns])
    off = max(float((shown[name].float().sum(-1) - 1.0).abs().max()) for name in patterns)
    return not torch.equal(logits, erased), off < ROUNDING


def load_pretrained(
    name_or_folder: str | Path | PreTrainedModel,
    *,
    revision: str | None = None,
    device: str | torch.device | None = None,
    device_map: str | int | Mapping[str, Any] | None = None,
    dtype: str | torch.dtype | None = None,
    attn_implementation: str | None = None,
    untrained: bool = False,
    seed: int = 0,
    tokenizer: Any = None,
) -> TransformerBridge:
    """What does a pretrained language model look like to this toolkit? A `TransformerBridge`.

    name_or_folder  a folder that `save_pretrained` wrote, tokenizer included, read without a
                    network; a name on the Hugging Face hub, such as `gpt2`, also with its revision,
                    such as `EleutherAI/pythia-70m@step1000`; or a model of `transformers` in hand,
                    with its `tokenizer`, which the bridge takes over and changes: where it is still
                    needed as it is, give a `copy.deepcopy`
    revision        a branch, a tag or a commit on the hub; default: the newest commit
    device          `cpu` or `cuda`; default: cpu
    device_map      in its place, as `transformers` takes it: `auto`, the GPU with the most memory
                    left or else the CPU; or one device for all modules
    dtype           of the weights, such as `bfloat16`; default: float32
    attn_implementation  None or `eager`: no other forms a pattern
    untrained       the same architecture with fresh weights, drawn from `seed`: the control of
                    probes
    tokenizer       of a model in hand, and of nothing else

    Attention is computed openly (the `eager` implementation), so that
    `blocks.{l}.attn.hook_pattern` shows the codes and, where `layout(model).writable`, takes them.
    No layer keeps its pattern after its turn. Weights are read from safetensors only: a pickle
    runs whatever code it contains. The model is in evaluation mode. `cfg.model_name` is the name,
    with `@revision` where one was asked for; `to_tokens` of text begins as the tokenizer does.

    `ArtifactError` for a folder that is missing, holds no model or no safetensors, whose weights
    do not fit, and for a name or a revision that cannot be fetched; `ConfigError` for an
    encoder, an architecture without an attention pattern, for quantised weights, for weights that
    are more than the memory that is left, and for a model that was trained here.
    """
    check_eager(attn_implementation)
    if isinstance(name_or_folder, nn.Module):
        given = {"revision": revision, "device": device, "device_map": device_map, "dtype": dtype}
        for option, value in given.items():
            check(value is None, f"{option} is {value!r}, and the model is in hand; expected no "
                  f"{option}: network.to(...) moves and converts it")
        return _in_hand(name_or_folder, tokenizer, untrained=untrained, seed=seed)
    check(tokenizer is None, f"tokenizer is given, and the model is {str(name_or_folder)!r}, which "
          "brings its own; expected one with a model of transformers in hand alone")
    network, found, of = _opened(
        name_or_folder, revision, one_device(device, device_map), as_dtype(dtype),
        untrained=untrained, seed=seed)
    return as_bridge(of.full, network, found)


def _in_hand(network: Any, tokenizer: Any, *, untrained: bool, seed: int) -> TransformerBridge:
    """Return the bridge of a model of `transformers`, which it takes over."""
    from transformers import PreTrainedModel

    check(isinstance(network, PreTrainedModel), f"the model is a {type(network).__name__}; "
          "expected a model of transformers, a name or a folder (a bridge needs no loading)")
    name = str(network.config._name_or_path or type(network).__name__)
    check(tokenizer is not None, f"the model is a {type(network).__name__} in hand without a "
          "tokenizer; expected lc.load_pretrained(network, tokenizer=tokenizer)")
    check_not_quantized(name, network.config)
    weights = [*network.parameters()]
    where = sorted({str(weight.device) for weight in weights})
    check(len(where) == 1, f"the weights of model {name!r} are on {' and '.join(where)}; expected "
          "all of them on one device")
    if untrained:
        network = fresh_network(network.config, weights[0].dtype, seed).to(weights[0].device)
    network.set_attn_implementation("eager")
    network.config.output_attentions = False
    return bridge_of(name, network.eval(), tokenizer)


def bridge_of(name: str, network: nn.Module, tokenizer: Any) -> TransformerBridge:
    """Return the bridge of a model of `transformers`, as `as_bridge`, with a tokenizer in hand.

    TransformerLens reads a tokenizer again from where it says it is from, which need not be so.
    """
    with TemporaryDirectory() as folder:
        tokenizer.save_pretrained(folder)
        found = copy.deepcopy(tokenizer)
        found.init_kwargs["name_or_path"] = folder
        return as_bridge(name, network, found)


def load_network(
    name_or_folder: str | Path,
    *,
    revision: str | None = None,
    device: str | torch.device | None = None,
    dtype: str | torch.dtype | None = None,
    untrained: bool = False,
    seed: int = 0,
    tokenized: bool = True,
) -> tuple[Any, Any]:
    """What is it before it is a bridge? The model of `transformers`, and its tokenizer.

    tokenized  False: the tokenizer is None where there is none

    Other arguments and errors are those of `load_pretrained`. Nothing of the model is wrapped yet,
    so that its own forward pass can be compared with the bridge's.
    """
    return _opened(name_or_folder, revision, one_device(device, None), as_dtype(dtype),
                   untrained=untrained, seed=seed, tokenized=tokenized)[:2]


def _opened(
    name_or_folder: str | Path, revision: str | None, device: torch.device, dtype: torch.dtype,
    *, untrained: bool, seed: int, tokenized: bool = True,
) -> tuple[Any, Any, Named]:
    seed = checked_seed(seed)
    of = named(name_or_folder, revision)
    of.check_files(weights=not untrained or of.folder is not None)
    has_tokenizer = of.has(*TOKENIZERS)
    # transformers would make up an empty tokenizer.
    check(has_tokenizer or not tokenized, f"{of.called} holds no tokenizer; expected "
          "tokenizer.json, which the tokenizer's save_pretrained writes", ArtifactError)
    with _quiet(), one_line(of):
        from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

        config = AutoConfig.from_pretrained(**of.asked)
        check_causal(of.full, config)
        check_not_quantized(of.full, config)
        config.output_attentions = False  # or the patterns of all layers would be collected
        # What goes to a GPU is read into the memory of the machine first.
        check_memory(of.full, config, dtype, dict.fromkeys((torch.device("cpu"), device)))
        tokenizer = AutoTokenizer.from_pretrained(**of.asked) if has_tokenizer else None
        if untrained:
            network = fresh_network(config, dtype, seed)
        else:
            opened: Any = AutoModelForCausalLM.from_pretrained(
                config=config, dtype=dtype, attn_implementation="eager",
                use_safetensors=True, output_loading_info=True, **of.asked)
            network, loading = opened
            lacking = sorted(map(str, (*loading["missing_keys"], *loading["mismatched_keys"])))
            check(not lacking, f"the weights of model {of.full!r} lack {', '.join(lacking[:5])}"
                  f"{f' and {len(lacking) - 5} more' if len(lacking) > 5 else ''}; expected one "
                  "of the right shape for every parameter", ArtifactError)
        of.tie(network, tokenizer)
        return network.to(device).eval(), tokenizer, of


def fresh_network(config: Any, dtype: torch.dtype, seed: int) -> Any:
    """Return a model of `transformers` on the CPU with weights drawn from a seed.

    config  of `transformers`. No generator of torch is moved on.
    """
    from transformers import AutoModelForCausalLM

    with own_draws():
        torch.default_generator.manual_seed(checked_seed(seed))  # that of the CPU alone
        return AutoModelForCausalLM.from_config(
            copy.deepcopy(config), dtype=dtype, attn_implementation="eager")


def as_bridge(name: str, network: nn.Module, tokenizer: Any) -> TransformerBridge:
    """Return the bridge of a model of `transformers`, which it takes over and changes.

    tokenizer  None where the bridge is to be given token ids alone

    Where a bridge leaves attention to transformers, its pattern becomes one that can be replaced
    (`latentcode.models.pattern_seam`).

    `ConfigError` for an architecture that TransformerLens cannot open, or that shows a pattern in
    no layer.
    """
    from transformer_lens.model_bridge import TransformerBridge

    given = copy.deepcopy(tokenizer)
    architecture = type(network).__name__
    weight = next(network.parameters())
    try:
        with own_draws():  # some bridges make layers that are then replaced
            model = TransformerBridge.boot_transformers(
                name, hf_model=network, tokenizer=_wordless() if tokenizer is None else tokenizer,
                device=weight.device, dtype=weight.dtype)
        check(hasattr(model, "blocks") and len(attention_layers(model)) > 0,
              f"model {name!r} is a {architecture}, in which TransformerLens shows no attention; "
              "expected a transformer with an attention pattern in some layer")
        for layer in attention_layers(model):
            add_seam(model.blocks[layer].attn, model.cfg.n_heads)
            model.blocks[layer].attn.register_forward_pre_hook(_kept_keys, with_kwargs=True)
        layout(model)
    except (ConfigError, MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:  # adapters check what they support in many ways
        raise ConfigError(f"model {name!r} is a {architecture}, which TransformerLens cannot open: "
                          f"{first_line(error)}") from error
    for layer in attention_layers(model):
        model.blocks[layer].attn.register_forward_hook(_forget_pattern)
    # TransformerLens sets the tokenizer to begin with BOS, and has a default for each architecture.
    model.given_tokenizer = (given, model.tokenizer)
    model.cfg.default_prepend_bos = adds_bos(tokenizer_of(model))
    return model.eval()


def tokenizer_of(model: Any) -> Any:
    """Return the tokenizer of a bridge as it was given to `as_bridge`; or that which the bridge
    was given since, or which it has if it was made elsewhere."""
    given, changed = getattr(model, "given_tokenizer", (None, None))
    return model.tokenizer if given is None or changed is not model.tokenizer else given


def adds_bos(tokenizer: Any) -> bool:
    """Return whether a tokenizer of `transformers` puts its BOS token before a text."""
    whole, bare = (tokenizer("a", add_special_tokens=added)["input_ids"]
                   for added in (True, False))
    return whole[:1] == [tokenizer.bos_token_id] and len(whole) > len(bare)


def _wordless() -> Any:
    """Return a tokenizer that knows no word: without any, TransformerLens looks for one."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(WordLevel({"?": 0}, unk_token="?")), unk_token="?")


def _kept_keys(
    attention: nn.Module, inputs: tuple[Any, ...], given: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """Hand keys and values that are kept to a bridge by the name that it knows.

    From 5.24 on transformers calls them `cache`; TransformerLens 4.3 knows `past_key_values`. Where
    transformers computes attention itself (`latentcode.models.pattern_seam`), both are known.
    """
    from transformer_lens.model_bridge.generalized_components.attention import AttentionBridge

    if given.get("cache") is None or type(attention).forward is AttentionBridge.forward:
        return None
    return inputs, {**given, "past_key_values": given["cache"]}


def _forget_pattern(attention: nn.Module, inputs: object, output: object) -> None:
    """Let go of the pattern that some bridges keep, which for long prompts is most of the memory.

    A plain function, so that models can be copied.
    """
    attention._pattern = None  # type: ignore[assignment]


@contextmanager
def _quiet() -> Iterator[None]:
    """Show no progress bars of the weights."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


__all__ = ["INSTEAD", "Layout", "adds_bos", "as_bridge", "bridge_of", "fresh_network", "is_run",
           "layout", "load_network", "load_pretrained", "tokenizer_of"]
