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
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from latentcode.errors import ArtifactError, ConfigError, check
from latentcode.models.hooks import see
from latentcode.models.layers import attention_layers, other_layers
from latentcode.models.pattern_seam import add_seam
from latentcode.seeds import checked_seed

if TYPE_CHECKING:
    from transformer_lens.model_bridge import TransformerBridge

PICKLED = ("pytorch_model.bin", "pytorch_model.bin.index.json")
SAFE = ("model.safetensors", "model.safetensors.index.json")
TOKENIZERS = ("tokenizer*", "vocab*", "*.model")
ZOO = Path(__file__).parent / "zoo"
OURS = "config.yaml", "provenance.json"
"""Files of a run, which a model folder of transformers does not have."""
INSTEAD = ("expected a pretrained language model, which a bridge opens; one trained here needs no "
           "bridge: latentcode.prompts.load_language_model opens it for prompts, and lc.extract, "
           "lc.decode and lc.intervene ask it about its own text")
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
    causal = (config.causal if ours
              else getattr(config, "attention_dir", "causal") == "causal")
    writable, normalized = (True, True) if ours else _tried(
        model, tuple(patterns.values()), tuple(residuals.values()))
    return Layout(config.n_layers, config.n_heads, config.d_model, layers, patterns, residuals,
                  {} if ours else other_layers(model), writable, normalized, causal)


def _tried(
    model: Any, patterns: tuple[str, ...], residuals: tuple[str, ...]
) -> tuple[bool, bool]:
    """Return whether patterns of zero change the logits, and whether the rows of patterns sum to 1.

    `ConfigError` unless all hooks exist.
    """
    def erase(pattern: Tensor, hook: object) -> Tensor:
        return torch.zeros_like(pattern)

    tokens = torch.arange(2, device=next(model.parameters()).device)[None]
    with torch.no_grad(), warnings.catch_warnings():
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
    name_or_folder: str | Path,
    *,
    device: str | torch.device = "cpu",
    dtype: torch.dtype = torch.float32,
    untrained: bool = False,
    seed: int = 0,
) -> TransformerBridge:
    """What does a pretrained language model look like to this toolkit? A `TransformerBridge`.

    name_or_folder  a folder that `save_pretrained` wrote, tokenizer included, read without a
                    network; or a name on the Hugging Face hub, such as `gpt2`
    untrained       the same architecture with fresh weights, drawn from `seed`: the control of
                    probes
    dtype           of the weights

    Attention is computed openly (the `eager` implementation), so that
    `blocks.{l}.attn.hook_pattern` shows the codes and, where `layout(model).writable`, takes them.
    No layer keeps its pattern after its turn. Weights are read from safetensors only: a pickle
    runs whatever code it contains. The model is in evaluation mode.

    `ArtifactError` for a folder that is missing, holds no model or no safetensors, whose weights
    do not fit, and for a name that cannot be fetched; `ConfigError` for an architecture without
    an attention pattern, and for a model that was trained here.
    """
    network, tokenizer = load_network(name_or_folder, device=device, dtype=dtype,
                                      untrained=untrained, seed=seed)
    return as_bridge(str(name_or_folder), network, tokenizer)


def load_network(
    name_or_folder: str | Path,
    *,
    device: str | torch.device = "cpu",
    dtype: torch.dtype = torch.float32,
    untrained: bool = False,
    seed: int = 0,
    tokenized: bool = True,
) -> tuple[Any, Any]:
    """What is it before it is a bridge? The model of `transformers`, and its tokenizer.

    tokenized  False: the tokenizer is None where a folder holds none

    Other arguments and errors are those of `load_pretrained`. Nothing of the model is wrapped yet,
    so that its own forward pass can be compared with the bridge's.
    """
    seed = checked_seed(seed)
    folder = _folder(name_or_folder)
    has_tokenizer = folder is None or any(
        found for pattern in TOKENIZERS for found in folder.glob(pattern))
    # transformers would make up an empty tokenizer.
    check(has_tokenizer or not tokenized, f"model folder {str(name_or_folder)!r} holds no "
          "tokenizer; expected tokenizer.json, which the tokenizer's save_pretrained writes",
          ArtifactError)
    name = str(name_or_folder)
    with _quiet(), _as_artifact_error(name, folder):
        from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

        source = {"local_files_only": folder is not None, "trust_remote_code": False}
        config = AutoConfig.from_pretrained(name, **source)
        config.output_attentions = False  # or the patterns of all layers would be collected
        tokenizer = AutoTokenizer.from_pretrained(name, **source) if has_tokenizer else None
        if untrained:
            network = fresh_network(config, dtype, seed)
        else:
            opened: Any = AutoModelForCausalLM.from_pretrained(
                name, config=config, dtype=dtype, attn_implementation="eager",
                use_safetensors=True, output_loading_info=True, **source)
            network, loading = opened
            lacking = sorted(map(str, (*loading["missing_keys"], *loading["mismatched_keys"])))
            check(not lacking, f"the weights of model {name!r} lack {', '.join(lacking[:5])}"
                  f"{f' and {len(lacking) - 5} more' if len(lacking) > 5 else ''}; expected one "
                  "of the right shape for every parameter", ArtifactError)
        return network.to(device).eval(), tokenizer


def fresh_network(config: Any, dtype: torch.dtype, seed: int) -> Any:
    """Return a model of `transformers` on the CPU with weights drawn from a seed.

    config  of `transformers`. No generator of torch is moved on.
    """
    from transformers import AutoModelForCausalLM

    with torch.random.fork_rng(devices=[]):
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

    architecture = type(network).__name__
    weight = next(network.parameters())
    try:
        with torch.random.fork_rng(devices=[]):  # some bridges make layers that are then replaced
            model = TransformerBridge.boot_transformers(
                name, hf_model=network, tokenizer=_wordless() if tokenizer is None else tokenizer,
                device=weight.device, dtype=weight.dtype)
        check(hasattr(model, "blocks") and len(attention_layers(model)) > 0,
              f"model {name!r} is a {architecture}, in which TransformerLens shows no attention; "
              "expected a transformer with an attention pattern in some layer")
        for layer in attention_layers(model):
            add_seam(model.blocks[layer].attn, model.cfg.n_heads)
        layout(model)
    except (ConfigError, MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:  # adapters check what they support in many ways
        raise ConfigError(f"model {name!r} is a {architecture}, which TransformerLens cannot open: "
                          f"{_first_line(error)}") from error
    for layer in attention_layers(model):
        model.blocks[layer].attn.register_forward_hook(_forget_pattern)
    return model.eval()


def _wordless() -> Any:
    """Return a tokenizer that knows no word: without any, TransformerLens looks for one."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(WordLevel({"?": 0}, unk_token="?")), unk_token="?")


def _forget_pattern(attention: nn.Module, inputs: object, output: object) -> None:
    """Let go of the pattern that some bridges keep, which for long prompts is most of the memory.

    A plain function, so that models can be copied.
    """
    attention._pattern = None  # type: ignore[assignment]


def is_run(name_or_folder: str | Path) -> bool:
    """Whether a name or a folder is that of a model which was trained here."""
    folder = Path(name_or_folder)
    ours = folder if folder.is_dir() else ZOO / str(name_or_folder).removeprefix("zoo:")
    return all((ours / file).is_file() for file in OURS)


def _folder(name_or_folder: str | Path) -> Path | None:
    """Return a model folder after a look at its files, or None for a name on the hub."""
    check(isinstance(name_or_folder, (str, Path)), f"model is {name_or_folder!r}; {INSTEAD}")
    folder = Path(name_or_folder)
    # A name of the zoo would be looked for on the hub, for half a minute.
    check(not is_run(name_or_folder),
          f"{str(name_or_folder)!r} is a model that was trained here; {INSTEAD}")
    text = str(name_or_folder)
    if not folder.is_dir():
        is_name = isinstance(name_or_folder, str) and not folder.exists() and (
            text.count("/") <= 1 and "\\" not in text and not text.startswith((".", "/", "~")))
        check(is_name, f"model folder {text!r} does not exist", ArtifactError)
        return None
    check((folder / "config.json").is_file(), f"folder {text!r} holds no config.json; expected a "
          "model that save_pretrained wrote", ArtifactError)
    if not any((folder / file).is_file() for file in SAFE):
        pickled = [file for file in PICKLED if (folder / file).is_file()]
        why = (f"only {pickled[0]}, a pickle, which runs whatever code it contains and is never "
               "loaded" if pickled else "no weights")
        raise ArtifactError(f"model folder {text!r} holds {why}; expected {SAFE[0]}, which "
                            "save_pretrained writes")
    return folder


@contextmanager
def _as_artifact_error(name: str, folder: Path | None) -> Iterator[None]:
    from safetensors import SafetensorError

    try:
        yield
    except (OSError, ValueError, KeyError, RuntimeError, ImportError, SafetensorError) as error:
        if isinstance(error, (ArtifactError, ConfigError, torch.OutOfMemoryError)):
            raise
        where = (f"model folder {name!r} cannot be opened" if folder is not None else
                 f"model {name!r} is no folder here, and could not be fetched from the Hugging "
                 "Face hub")
        raise ArtifactError(f"{where}: {_first_line(error)}") from error


def _first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()),
                type(error).__name__)


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


__all__ = ["INSTEAD", "Layout", "as_bridge", "fresh_network", "is_run", "layout",
           "load_network", "load_pretrained"]
