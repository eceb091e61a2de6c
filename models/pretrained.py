"""Pretrained language models, as TransformerLens bridges whose codes can be read and written.

A softmax transformer is a hypernetwork too: with a = softmax over keys, the output of a layer is
sum_k W_qk x_k + b_O with W_qk = sum_h a_hqk W_O^h W_V^h (paper, Eq. 5), where query heads of one
group share W_V^h in grouped-query attention.
"""

from __future__ import annotations

import copy
import re
import struct
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from latentcode.devices import available_memory, checked_seed, readable, resolve_device
from latentcode.errors import ArtifactError, ConfigError, check, check_choice
from latentcode.models.hooks import attention_layers, evaluating, other_layers, own_draws, see
from latentcode.models.pattern_seam import add_seam

if TYPE_CHECKING:
    from transformer_lens.model_bridge import TransformerBridge
    from transformers import PreTrainedModel

    from latentcode.models.transformer import HookedTransformer


ROUNDING = 0.01
"""How far from 1 the sum of a row of a softmax may be, whatever the type of the weights."""
ZOO = Path(__file__).parent / "zoo"
INSTEAD = ("expected a pretrained language model, which a bridge opens; one trained here needs no "
           "bridge: latentcode.prompts.load_language_model opens it for prompts, and lc.extract, "
           "lc.decode and lc.intervene ask it about its own text")
AT = "@"
"""What stands between the name of a model and its revision."""
NAME, REVISION = r"[\w-][\w.-]*(/[\w-][\w.-]*)?", r"(?!.*\.\.)[A-Za-z0-9_][\w./+-]*"
SMALL = ["*.json", "*.txt", "*.model", "*.tiktoken", "*.jinja"]
"""Files of a model on the hub that are read before its weights: configuration and tokenizer."""
SAFE = ["model.safetensors", "model.safetensors.index.json", "model-*-of-*.safetensors"]
GGUF = ".gguf"
TOKENIZERS = "tokenizer*", "vocab*", "*.model"
DTYPES = "float32", "bfloat16", "float16", "float64"
"""Names of the types of weights."""


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
                    such as `EleutherAI/pythia-70m@step1000`; a file `.gguf`, whose weights are
                    unpacked (needs latentcode[gguf]); or a model of `transformers` in hand,
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
    No layer keeps its pattern after its turn. Weights are read from safetensors and GGUF only: a
    pickle runs whatever code it contains. The model is in evaluation mode. `cfg.model_name` is the
    name, with `@revision` where one was asked for; `to_tokens` of text begins as the tokenizer
    does.

    `ArtifactError` for a folder that is missing, holds no model or no safetensors, whose weights
    do not fit, and for a name or a revision that cannot be fetched; `ConfigError` for an
    encoder, an architecture without an attention pattern, for quantised weights, for weights that
    are more than the memory that is left, and for a model that was trained here.
    """
    check(attn_implementation in (None, "eager"), f"attn_implementation is "
          f"{attn_implementation!r}, which never forms the attention pattern: no code could be "
          "read or written; expected 'eager', as without it")
    if isinstance(name_or_folder, nn.Module):
        given = {"revision": revision, "device": device, "device_map": device_map, "dtype": dtype}
        for option, value in given.items():
            check(value is None, f"{option} is {value!r}, and the model is in hand; expected no "
                  f"{option}: network.to(...) moves and converts it")
        return _in_hand(name_or_folder, tokenizer, untrained=untrained, seed=seed)
    check(tokenizer is None, f"tokenizer is given, and the model is {str(name_or_folder)!r}, which "
          "brings its own; expected one with a model of transformers in hand alone")
    seed, where, weights = (
        checked_seed(seed), one_device(device, device_map), as_dtype(dtype))
    files = find_model(name_or_folder, revision)
    network, tokenizer = load_network(
        files, device=where, dtype=weights, untrained=untrained, seed=seed)
    return as_bridge(files.called, network, tokenizer)


def _in_hand(network: Any, tokenizer: Any, *, untrained: bool, seed: int) -> TransformerBridge:
    """Return the bridge of a model of `transformers`, which it takes over."""
    from transformers import PreTrainedModel

    check(isinstance(network, PreTrainedModel), f"the model is a {type(network).__name__}; "
          "expected a model of transformers, a name or a folder (a bridge needs no loading)")
    name = str(network.config._name_or_path or type(network).__name__)
    check(tokenizer is not None, f"the model is a {type(network).__name__} in hand without a "
          "tokenizer; expected lc.load_pretrained(network, tokenizer=tokenizer)")
    check_supported(name, network.config)
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
    model: str | Path | ModelFiles,
    *,
    revision: str | None = None,
    device: str | torch.device | None = None,
    dtype: str | torch.dtype | None = None,
    untrained: bool = False,
    seed: int = 0,
    tokenized: bool = True,
) -> tuple[Any, Any]:
    """Return what becomes a bridge: a model of `transformers`, evaluating, and its tokenizer.

    model      a folder or a name, as for `load_pretrained`, or what `find_model` returned of it
    tokenized  False: the tokenizer is None where there is none

    Other arguments and errors are those of `load_pretrained`. Nothing of the model is wrapped yet,
    so that its own forward pass can be compared with the bridge's.
    """
    seed, device, dtype = checked_seed(seed), one_device(device, None), as_dtype(dtype)
    files = model if isinstance(model, ModelFiles) else find_model(model, revision)
    if tokenized:
        files.check_tokenizer()
    with _quiet(), one_line(files):
        from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

        config = AutoConfig.from_pretrained(**files.options)
        check_supported(files.called, config)
        config.output_attentions = False  # or the patterns of all layers would be collected
        # What goes to a GPU is read into the memory of the machine first.
        check_memory(files.called, config, dtype, dict.fromkeys((torch.device("cpu"), device)))
        # transformers would make up an empty tokenizer.
        tokenizer = (AutoTokenizer.from_pretrained(**files.options) if files.has_tokenizer
                     else None)
        if untrained:
            network = fresh_network(config, dtype, seed)
        else:
            files.fetch_weights()
            opened: Any = AutoModelForCausalLM.from_pretrained(
                **files.options, config=config, dtype=dtype, attn_implementation="eager",
                use_safetensors=None if files.gguf else True, output_loading_info=True)
            network, loading = opened
            lacking = sorted(map(str, (*loading["missing_keys"], *loading["mismatched_keys"])))
            check(not lacking, f"the weights of model {files.called!r} lack "
                  f"{', '.join(lacking[:5])}; expected one of the right shape for every parameter",
                  ArtifactError)
        network.config._commit_hash = files.commit
        return network.to(device).eval(), tokenizer


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


@dataclass(frozen=True)
class ModelFiles:
    """The files of a pretrained model: a folder, or a snapshot of the hub in the cache.

    called  its folder as it was given, or its name, with @REVISION where one is asked for
    repo    its name on the hub; None for a folder
    commit  of the hub; None for a folder
    gguf    the file of the folder that holds the whole model; None of files in safetensors
    """

    called: str
    folder: Path
    repo: str | None = None
    commit: str | None = None
    gguf: str | None = None

    @property
    def options(self) -> dict[str, Any]:
        """What `from_pretrained` is called with: files of the folder, and no code of others."""
        return {"pretrained_model_name_or_path": self.folder, "local_files_only": True,
                "trust_remote_code": False, "gguf_file": self.gguf}

    @property
    def has_tokenizer(self) -> bool:
        """Whether there are files of a tokenizer."""
        return self.gguf is not None or any(
            any(self.folder.glob(pattern)) for pattern in TOKENIZERS)

    def check_tokenizer(self) -> None:
        """Raise `ArtifactError` where there are no files of a tokenizer."""
        check(self.has_tokenizer, f"model {self.called!r} holds no tokenizer; expected "
              "tokenizer.json, which the tokenizer's save_pretrained writes", ArtifactError)

    def fetch_weights(self) -> None:
        """Fetch the weights of a model on the hub; `ArtifactError` where there are none."""
        if self.gguf is not None:
            return
        if self.repo is not None:
            _fetch(self.repo, self.commit, SAFE)
        check(any((self.folder / name).is_file() for name in SAFE[:2]), f"model {self.called!r} "
              f"holds no weights in safetensors; expected {SAFE[0]}, which save_pretrained writes "
              "(a pickle such as pytorch_model.bin runs whatever code it contains, and is never "
              "loaded; of many models a pull request has both: revision='refs/pr/1', say)",
              ArtifactError)


def find_model(name_or_folder: str | Path, revision: str | None = None) -> ModelFiles:
    """Return the files of a pretrained model; of the hub all but its weights are fetched.

    name_or_folder  a folder; a file in the format GGUF; a name on the hub, such as `gpt2`, also
                    with its revision, such as `EleutherAI/pythia-70m@step1000`

    Where the hub cannot be reached, the copy in its cache is meant. `ArtifactError` for a folder,
    a name or a revision that does not exist and for a hub that cannot be reached;
    `ConfigError` for a revision of a folder, two revisions, and a model that was trained here.
    """
    check(isinstance(name_or_folder, str | Path), f"model is {name_or_folder!r}; {INSTEAD}")
    text = str(name_or_folder)
    check(not text.startswith("hf://"), f"model is {text!r}, and such addresses are those of runs "
          f"and codes; expected the name alone, {text.removeprefix('hf://')!r}")
    if not Path(text).exists() and isinstance(name_or_folder, str) and AT in text:
        text, _, named = text.partition(AT)
        check(revision in (None, named), f"{name_or_folder!r} names revision {named!r}, and "
              f"revision is {revision!r}; expected one of them")
        revision = named
    # A name of the zoo would be looked for on the hub.
    check(not is_run(text), f"{text!r} is a model that was trained here; {INSTEAD}" + (
        "" if revision is None else "; of its checkpoints step= takes one, not a revision"))
    folder = Path(text)
    if folder.is_dir() or (folder.is_file() and folder.suffix == GGUF):
        check(revision is None, f"revision is {revision!r}, and {text!r} is a folder here, which "
              "has none; expected a name on the Hugging Face hub, or the folder of that revision")
        if folder.is_file():
            return ModelFiles(text, folder.parent, gguf=folder.name)
        files = ModelFiles(text, folder)
    else:
        check(not folder.is_file(), f"model is {text!r}, a file; expected the folder of a model "
              f"that save_pretrained wrote, with config.json, {SAFE[0]} and a tokenizer, or a file "
              f"{GGUF} (other formats, such as .bin, are not read)", ArtifactError)
        check(isinstance(name_or_folder, str) and re.fullmatch(NAME, text, re.ASCII) is not None,
              f"model folder {text!r} does not exist", ArtifactError)
        check(revision is None or re.fullmatch(REVISION, revision, re.ASCII) is not None,
              f"revision of model {text!r} is {revision!r}; expected a branch, a tag or a commit")
        snapshot = _fetch(text, revision, SMALL)
        files = ModelFiles(text if revision is None else f"{text}{AT}{revision}", snapshot, text,
                           snapshot.name)
    check((files.folder / "config.json").is_file(), f"model {files.called!r} holds no config.json; "
          "expected a model that save_pretrained wrote", ArtifactError)
    return files


def _fetch(name: str, revision: str | None, patterns: list[str]) -> Path:
    """Return the snapshot of a model on the hub, with some of its files; offline that in the cache.
    """
    from huggingface_hub import constants, errors, snapshot_download

    network: Any = vars(errors)["HTTPError"]  # of httpx or httpx2
    try:
        return Path(snapshot_download(
            name, revision=revision, allow_patterns=patterns, ignore_patterns="*/*"))
    except errors.GatedRepoError as error:
        raise ArtifactError(
            f"model {name!r} is gated; expected the token of an account that was granted access on "
            f"{constants.ENDPOINT}/{name} (`hf auth login`, or HF_TOKEN)") from error
    except errors.RevisionNotFoundError as error:
        raise ArtifactError(
            f"model {name!r} has no revision {revision!r}; expected a branch, a tag or a commit of "
            f"{constants.ENDPOINT}/{name}/tree/main") from error
    except errors.RepositoryNotFoundError as error:
        raise ArtifactError(
            f"model {name!r} is no folder here, and could not be fetched from the Hugging Face "
            "hub: there is none of that name, or it is private (`hf auth login`)") from error
    except (network, OSError, ValueError) as error:
        called = name if revision is None else f"{name}{AT}{revision}"
        raise ArtifactError(
            f"model {called!r} is no folder here, and could not be fetched from the Hugging Face "
            f"hub ({first_line(error.__cause__ or error)}), nor is there a copy in its cache; "
            "expected a network, or a folder") from error


def is_run(name_or_folder: str | Path) -> bool:
    """Whether a name or a folder is that of a model which was trained here."""
    folder = Path(name_or_folder)
    ours = folder if folder.is_dir() else ZOO / str(name_or_folder).removeprefix("zoo:")
    return (ours / "config.yaml").is_file() and (ours / "provenance.json").is_file()


@contextmanager
def one_line(files: ModelFiles) -> Iterator[None]:
    """Turn what transformers and safetensors raise of some files into one `ArtifactError`."""
    from safetensors import SafetensorError

    try:
        yield
    except (ArtifactError, ConfigError, torch.OutOfMemoryError):
        raise
    except (OSError, ValueError, KeyError, RuntimeError, ImportError, SafetensorError,
            IndexError, struct.error) as error:
        expected = ("" if files.gguf is None else "; expected the package gguf, which "
                    "pip install 'latentcode[gguf]' adds" if isinstance(error, ImportError) else
                    f"; expected a whole file {GGUF} of a causal language model")
        raise ArtifactError(
            f"model {files.called!r} cannot be opened: {first_line(error)}{expected}") from error


def first_line(error: BaseException) -> str:
    """Return what an error says, or its name."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()),
                type(error).__name__)


def as_dtype(dtype: str | torch.dtype | None) -> torch.dtype:
    """Return a type of weights by its name, such as `bfloat16`; None is float32.

    `UnknownNameError` for another name.
    """
    if isinstance(dtype, str):
        check_choice("dtype", dtype, DTYPES)
        return getattr(torch, dtype)
    return torch.float32 if dtype is None else dtype


def check_supported(name: str, config: Any) -> None:
    """Raise `ConfigError` for an encoder, and for weights of 4 or 8 bits.

    config  of `transformers`. Layers of quantised weights are of other classes, whose numbers are
            packed: no value network could be read of them
    """
    from transformers.models.auto import modeling_auto

    causal = modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    kinds = [*(config.architectures or ())]  # one without names is what its type can be
    has_encoder = (
        config.model_type in modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES
        or config.is_encoder_decoder or any(kind.endswith("EncoderModel") for kind in kinds))
    is_causal_model = (not {*kinds}.isdisjoint(causal.values()) if kinds
                       else config.model_type in causal)
    check(is_causal_model or not has_encoder,
          f"model {name!r} is a {', '.join(kinds) or config.model_type}, an encoder or with one, "
          "whose tokens see later ones, too; expected a causal language model, which predicts the "
          "next token, such as GPT-2")
    for part in (config, config.get_text_config()):
        for field in ("quantization_config", "compression_config"):
            quantized: Any = getattr(part, field, None)
            if quantized:
                settings = quantized if isinstance(quantized, Mapping) else quantized.to_dict()
                raise ConfigError(
                    f"the weights of model {name!r} are quantised ({settings['quant_method']}): "
                    "packed numbers, of which no value network can be read; expected the model "
                    "that it was made from, whose weights are not, with dtype='bfloat16' where "
                    "memory is short")


def check_memory(
    name: str, config: Any, dtype: torch.dtype, devices: Iterable[torch.device]
) -> None:
    """Raise `ConfigError` where the weights alone are more than what a device has left.

    config  of `transformers`. Weights are counted without memory, so that no file is read
    """
    from transformers import AutoModelForCausalLM

    with own_draws(), torch.device("meta"):
        network = AutoModelForCausalLM.from_config(
            copy.deepcopy(config), dtype=dtype, attn_implementation="eager")
    n = sum(weight.numel() for weight in network.parameters())
    for device in devices:
        free, needed = available_memory(device), n * dtype.itemsize
        if free is not None and needed > free:
            fits = dtype.itemsize > 2 and 2 * n <= free
            way = f"dtype='bfloat16' ({readable(2 * n)}), " if fits else ""
            other = "another device" if device.type == "cuda" else "a machine with more memory"
            raise ConfigError(
                f"the {n:,} weights of model {name!r} take {readable(needed)} in "
                f"{str(dtype).removeprefix('torch.')}, and {device} has {readable(free)} left; "
                f"expected {way}a smaller model, or {other}")


def one_device(
    device: str | torch.device | None, device_map: str | int | Mapping[str, Any] | None
) -> torch.device:
    """Return the device on which all of a model is put.

    device_map  as `from_pretrained` takes it: `auto`, the GPU with the most memory left, or the CPU
                where there is none; a device; or names of modules -> device, one for all

    `ConfigError` for both, for a device that is none here, and for several devices or the disk.
    """
    if device_map is None:
        return resolve_device(str(device or "cpu"))
    check(device is None, f"device is {device!r} and device_map is {device_map!r}; expected one of "
          "them")
    wanted = [*device_map.values()] if isinstance(device_map, Mapping) else [device_map]
    kinds = {f"cuda:{where}" if isinstance(where, int) else str(where) for where in wanted}
    check(len(kinds) == 1 and not str(*kinds).startswith(("disk", "balanced", "sequential")),
          f"device_map is {device_map!r}, which spreads a model over devices or the disk; its "
          "codes are read and written in one place: expected 'auto', or one device, such as "
          "'cuda:0', for all of it")
    if kinds == {"auto"}:
        gpus = [torch.device("cuda", i) for i in range(torch.cuda.device_count())]
        return max(gpus, key=lambda gpu: available_memory(gpu) or 0, default=torch.device("cpu"))
    return resolve_device(*kinds)


def untrained(model: Any, seed: int = 0) -> HookedTransformer | TransformerBridge:
    """Return a model of the same configuration with fresh weights, drawn from a seed.

    model  a `HookedTransformer` or a `TransformerBridge`; it stays as it is
    seed   of a `HookedTransformer`, as in its constructor: with `run.config.training.seed` these
           are the initial weights of a run; of a bridge, as in `load_pretrained(untrained=True)`

    Device and type of the weights are those of the model, evaluation mode is on, and no generator
    of torch is moved on. `ConfigError` for an ensemble, and for a bridge in TransformerLens'
    compatibility mode, whose weights were folded.
    """
    from latentcode.models.transformer import HookedTransformer

    seed = checked_seed(seed)
    weight = next(model.parameters())
    if isinstance(model, HookedTransformer):
        model.check_alone("untrained weights")
        return HookedTransformer(model.config, seed).to(weight.device, weight.dtype).eval()
    check(not getattr(model, "compatibility_mode", False), f"model {model.cfg.model_name!r} is a "
          "bridge in compatibility mode, whose weights were folded; expected one as "
          "boot_transformers or lc.load_pretrained returns it")
    network = fresh_network(model.original_model.config, weight.dtype, seed)
    return bridge_of(
        str(model.cfg.model_name), network.to(weight.device).eval(), tokenizer_of(model))
