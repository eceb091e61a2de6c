"""Which pretrained model is meant, and can it be opened here? Said before a weight is read."""

from __future__ import annotations

import copy
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import torch

from latentcode.errors import ArtifactError, ConfigError, check, check_choice
from latentcode.models.memory import available, readable
from latentcode.models.modes import own_draws

CONFIG = "config.json"
PICKLED = ("pytorch_model.bin", "pytorch_model.bin.index.json")
SAFE = ("model.safetensors", "model.safetensors.index.json")
TOKENIZERS = ("tokenizer*", "vocab*", "*.model")
ZOO = Path(__file__).parent / "zoo"
OURS = "config.yaml", "provenance.json"
"""Files of a run, which a model folder of transformers does not have."""
INSTEAD = ("expected a pretrained language model, which a bridge opens; one trained here needs no "
           "bridge: latentcode.prompts.load_language_model opens it for prompts, and lc.extract, "
           "lc.decode and lc.intervene ask it about its own text")
AT = "@"
"""What stands between the name of a model and its revision."""
REVISION = r"(?!.*\.\.)[A-Za-z0-9_][\w./+-]*"
PATIENCE = 10.0
"""Seconds that the hub has to answer."""
DTYPES = "float32", "bfloat16", "float16", "float64"
"""Names of the types of weights."""


@dataclass(frozen=True)
class Named:
    """A pretrained model by its folder, or by its name on the hub.

    name      its folder, or its name
    folder    where it lies; None for a name
    revision  a branch, a tag or a commit; None for a folder, and for the newest commit
    commit    what that is; None for a folder
    files     names of its files
    here      whether nothing is to be fetched: a folder, or a hub that cannot be reached
    """

    name: str
    folder: Path | None
    revision: str | None
    commit: str | None
    files: frozenset[str]
    here: bool

    @property
    def full(self) -> str:
        """What results call it: the name, with the revision where one is asked for."""
        return self.name if self.revision is None else f"{self.name}{AT}{self.revision}"

    @property
    def called(self) -> str:
        """What errors call it."""
        return f"model folder {self.name!r}" if self.folder is not None else f"model {self.full!r}"

    @property
    def asked(self) -> dict[str, Any]:
        """What `from_pretrained` is asked with. By the name of the revision, so that the cache
        finds it by that name, too."""
        return {"pretrained_model_name_or_path": self.name, "local_files_only": self.here,
                "trust_remote_code": False,
                **({} if self.folder is not None else {"revision": self.revision or "main"})}

    def tie(self, network: Any, tokenizer: Any) -> None:
        """Tell a model which commit it is of, and its tokenizer where its files are.

        TransformerLens reads a tokenizer again from where it says it is from, and of a name that
        would be the newest commit, whatever the revision.
        """
        from huggingface_hub import try_to_load_from_cache

        if self.folder is not None:
            return
        network.config._commit_hash = self.commit
        found = try_to_load_from_cache(self.name, CONFIG, revision=self.commit)
        if tokenizer is not None and isinstance(found, str):
            tokenizer.init_kwargs["name_or_path"] = str(Path(found).parent)

    def has(self, *patterns: str) -> bool:
        """Whether a file has one of some names."""
        return any(fnmatch(file, pattern) for file in self.files for pattern in patterns)

    def check_files(self, *, weights: bool) -> None:
        """Raise `ArtifactError` where files are missing."""
        check(CONFIG in self.files, f"{self._holder} no {CONFIG}; expected a model that "
              "save_pretrained wrote", ArtifactError)
        if not weights or self.has(*SAFE):
            return
        check(not (self.here and self.folder is None), f"{self.called} is in the cache without its "
              "weights, and the Hugging Face hub cannot be reached; expected a network",
              ArtifactError)
        pickled = [file for file in PICKLED if file in self.files]
        why = (f"only {pickled[0]}, a pickle, which runs whatever code it contains and is never "
               "loaded" if pickled else "no weights")
        way = "which save_pretrained writes" if self.folder is not None else (
            "which of many models a pull request has (revision='refs/pr/1', say)")
        raise ArtifactError(f"{self._holder} {why}; expected {SAFE[0]}, {way}")

    @property
    def _holder(self) -> str:
        return (f"folder {self.name!r} holds" if self.folder is not None and
                CONFIG not in self.files else f"{self.called} holds")


def named(name_or_folder: str | Path, revision: str | None = None) -> Named:
    """Return which model is meant; the hub is asked once, for the names of files.

    name_or_folder  a folder; a name on the hub, such as `gpt2`, also with its revision, such as
                    `EleutherAI/pythia-70m@step1000`

    Where the hub cannot be reached, the copy in its cache is meant. `ArtifactError` for a folder,
    a name or a revision that does not exist and for a hub that cannot be reached;
    `ConfigError` for a revision of a folder, two revisions, and a model that was trained here.
    """
    check(isinstance(name_or_folder, str | Path), f"model is {name_or_folder!r}; {INSTEAD}")
    text = str(name_or_folder)
    check(not text.startswith("hf://"), f"model is {text!r}, and such addresses are those of runs "
          f"and codes; expected the name alone, {text.removeprefix('hf://')!r}")
    if not Path(text).exists() and isinstance(name_or_folder, str) and AT in text:
        text, _, given = text.partition(AT)
        check(revision in (None, given), f"{name_or_folder!r} names revision {given!r}, and "
              f"revision is {revision!r}; expected one of them")
        revision = given
    # A name of the zoo would be looked for on the hub.
    check(not is_run(text), f"{text!r} is a model that was trained here; {INSTEAD}" + (
        "" if revision is None else "; of its checkpoints step= takes one, not a revision"))
    folder = Path(text)
    if folder.is_dir():
        check(revision is None, f"revision is {revision!r}, and {text!r} is a folder here, which "
              "has none; expected a name on the Hugging Face hub, or the folder of that revision")
        return Named(text, folder, None, None, frozenset(path.name for path in folder.iterdir()),
                     True)
    is_name = not folder.exists() and isinstance(name_or_folder, str) and (
        re.fullmatch(r"[\w-][\w.-]*(/[\w-][\w.-]*)?", text, re.ASCII) is not None)
    check(not folder.is_file(), f"model is {text!r}, a file; expected the folder of a model that "
          f"save_pretrained wrote, with {CONFIG}, {SAFE[0]} and a tokenizer (what is in other "
          "formats, such as .gguf or .bin, is not read)", ArtifactError)
    check(is_name, f"model folder {text!r} does not exist", ArtifactError)
    check(revision is None or re.fullmatch(REVISION, revision, re.ASCII) is not None,
          f"revision of model {text!r} is {revision!r}; expected a branch, a tag or a commit")
    return _on_hub(text, revision)


def _on_hub(name: str, revision: str | None) -> Named:
    from huggingface_hub import HfApi, errors

    lost: tuple[type[Exception], ...] = (*unreachable(), OSError)
    try:
        info = HfApi().model_info(name, revision=revision or "main", timeout=PATIENCE)
    except errors.HfHubHTTPError as error:
        if error.response.status_code < 500 and error.response.status_code != 429:
            raise ArtifactError(_refusal(name, revision, error)) from error
        return _in_cache(name, revision, error)
    except lost as error:
        return _in_cache(name, revision, error)
    except ValueError as error:  # no name of a repository
        raise ArtifactError(f"model folder {name!r} does not exist, and it is no name on the "
                            f"Hugging Face hub: {first_line(error)}") from error
    return Named(name, None, revision, info.sha,
                 frozenset(file.rfilename for file in info.siblings or ()), False)


def _in_cache(name: str, revision: str | None, why: Exception) -> Named:
    """Return the copy of an earlier download."""
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import OfflineModeIsEnabled

    found = try_to_load_from_cache(name, CONFIG, revision=revision or "main")
    reason = "HF_HUB_OFFLINE is set" if isinstance(why, OfflineModeIsEnabled) else first_line(why)
    full = name if revision is None else f"{name}{AT}{revision}"
    check(isinstance(found, str), f"model {full!r} is no folder here, and could not be fetched "
          f"from the Hugging Face hub ({reason}), nor is there a copy in its cache; expected a "
          "network, or a folder", ArtifactError)
    snapshot = Path(str(found)).parent
    return Named(name, None, revision, snapshot.name,
                 frozenset(path.name for path in snapshot.iterdir()), True)


def unreachable() -> tuple[type[Exception], ...]:
    """Return the errors after which a copy in the cache is as good as it gets."""
    from huggingface_hub import errors

    # httpx or httpx2, whichever this version of huggingface_hub uses
    network: Any = vars(errors)["HTTPError"]
    return network, errors.OfflineModeIsEnabled, errors.LocalEntryNotFoundError


def _refusal(name: str, revision: str | None, error: Exception) -> str:
    """Return in one sentence what the hub says no to."""
    from huggingface_hub import constants, errors

    page = f"{constants.ENDPOINT}/{name}"
    model = f"model {name!r}"
    if isinstance(error, errors.GatedRepoError):
        return (f"{model} is gated; expected the token of an account that was granted access on "
                f"{page} (`hf auth login`, or HF_TOKEN)")
    if isinstance(error, errors.RevisionNotFoundError):
        return (f"{model} has no revision {revision!r}; expected a branch, a tag or a commit of "
                f"{page}/tree/main{_others(name, revision or '')}")
    if isinstance(error, errors.RepositoryNotFoundError):
        from transformer_lens.supported_models import get_official_model_name

        meant = ""
        with suppress(ValueError):  # what TransformerLens calls it
            meant = f"; did you mean {get_official_model_name(name)}?"
        return (f"{model} is no folder here, and could not be fetched from the Hugging Face hub: "
                f"there is none of that name, or it is private (`hf auth login`){meant}")
    return (f"{model} could not be fetched from the Hugging Face hub: {first_line(error)}")


def _others(name: str, revision: str) -> str:
    """Return `; it has step0, step1 ...`, as far as the hub tells."""
    from huggingface_hub import HfApi

    try:
        refs = HfApi().list_repo_refs(name)
    except Exception:  # the error is about another thing
        return ""
    there = [ref.name for ref in (*refs.branches, *refs.tags)]
    near = get_close_matches(revision, there, n=3, cutoff=0.5) or there[:3]
    return f"; it has {len(there)}, such as {', '.join(near)}" if near else ""


def is_run(name_or_folder: str | Path) -> bool:
    """Whether a name or a folder is that of a model which was trained here."""
    folder = Path(name_or_folder)
    ours = folder if folder.is_dir() else ZOO / str(name_or_folder).removeprefix("zoo:")
    return all((ours / file).is_file() for file in OURS)


@contextmanager
def one_line(of: Named) -> Iterator[None]:
    """Turn what transformers, the hub and safetensors raise into one `ArtifactError`."""
    from safetensors import SafetensorError

    try:
        yield
    except (OSError, ValueError, KeyError, RuntimeError, ImportError, SafetensorError) as error:
        if isinstance(error, ArtifactError | ConfigError | torch.OutOfMemoryError):
            raise
        from huggingface_hub import errors

        cause: BaseException | None = error
        while cause is not None:  # transformers says less of it than the hub
            if isinstance(cause, errors.HfHubHTTPError):
                raise ArtifactError(_refusal(of.name, of.revision, cause)) from error
            cause = cause.__cause__ or cause.__context__
        raise ArtifactError(f"{of.called} cannot be opened: {first_line(error)}") from error


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
    found = torch.float32 if dtype is None else dtype
    check(isinstance(found, torch.dtype) and found.is_floating_point, f"dtype is {dtype!r}; "
          f"expected one of: {', '.join(DTYPES)}")
    return found


def check_eager(attn_implementation: str | None) -> None:
    """Raise `ConfigError` unless attention is computed openly."""
    check(attn_implementation in (None, "eager"), f"attn_implementation is "
          f"{attn_implementation!r}, which never forms the attention pattern: no code could be "
          "read or written; expected 'eager', as without it")


def check_not_quantized(name: str, config: Any) -> None:
    """Raise `ConfigError` for weights of 4 or 8 bits.

    config  of `transformers`. Their layers are of other classes, whose weights are packed: no value
            network could be read of them, and no bridge of them is checked.
    """
    for of in (config, config.get_text_config()):
        for field in ("quantization_config", "compression_config"):
            found = getattr(of, field, None)
            if not found:
                continue
            said = found if isinstance(found, Mapping) else found.to_dict()
            method = str(said.get("quant_method") or "quantised")
            method = method.rpartition(".")[2].lower()
            bits = said.get("bits") or (8 if said.get("load_in_8bit") else
                                        4 if said.get("load_in_4bit") else None)
            how = method if bits is None else f"{method}, {bits} bits"
            raise ConfigError(
                f"the weights of model {name!r} are quantised ({how}): packed numbers, of which no "
                "value network can be read; expected the model that it was made from, whose "
                "weights are not, with dtype='bfloat16' where memory is short")


def check_causal(name: str, config: Any) -> None:
    """Raise `ConfigError` for an encoder, as its configuration says; one without names passes."""
    from transformers.models.auto import modeling_auto

    kinds = [*(config.architectures or ())]
    check(not kinds or config.model_type not in modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES
          or not {*kinds}.isdisjoint(modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values()),
          f"model {name!r} is a {', '.join(kinds)}, whose tokens see later ones, too; expected a "
          "causal language model, which predicts the next token, such as GPT-2")


def check_memory(
    name: str, config: Any, dtype: torch.dtype, devices: Collection[torch.device]
) -> None:
    """Raise `ConfigError` where the weights alone are more than what a device has left.

    Counted on a model without memory, so that no file is read.
    """
    n = n_weights(config, dtype)
    for device in devices:
        free, needed = available(device), n * dtype.itemsize
        if free is None or needed <= free:
            continue
        fits = dtype.itemsize > 2 and 2 * n <= free
        way = f"dtype='bfloat16' ({readable(2 * n)}), " if fits else ""
        other = "another device" if device.type == "cuda" else "a machine with more memory"
        raise ConfigError(
            f"the {n:,} weights of model {name!r} take {readable(needed)} in "
            f"{str(dtype).removeprefix('torch.')}, and {device} has {readable(free)} left; "
            f"expected {way}a smaller model, or {other}")


def n_weights(config: Any, dtype: torch.dtype) -> int:
    """Return how many weights a model of `transformers` has."""
    from transformers import AutoModelForCausalLM

    with own_draws(), torch.device("meta"):
        network = AutoModelForCausalLM.from_config(
            copy.deepcopy(config), dtype=dtype, attn_implementation="eager")
    return sum(weight.numel() for weight in network.parameters())


def one_device(
    device: str | torch.device | None, device_map: str | int | Mapping[str, Any] | None
) -> torch.device:
    """Return the device on which all of a model is put.

    device_map  as `from_pretrained` takes it: `auto`, the GPU with the most memory left, or the CPU
                where there is none; a device; or names of modules -> device, one for all

    `ConfigError` for both, for a device that is none here, and for several devices or the disk.
    """
    if device_map is None:
        return _device("device", "cpu" if device is None else device)
    check(device is None, f"device is {device!r} and device_map is {device_map!r}; expected one of "
          "them")
    wanted = [*device_map.values()] if isinstance(device_map, Mapping) else [device_map]
    kinds = list(dict.fromkeys(f"cuda:{where}" if isinstance(where, int) else str(where)
                               for where in wanted))
    check(len(kinds) == 1 and not kinds[0].startswith(("disk", "balanced", "sequential")),
          f"device_map is {device_map!r}, which spreads a model over devices or the disk; its "
          "codes are read and written in one place: expected 'auto', or one device, such as "
          "'cuda:0', for all of it")
    if kinds == ["auto"]:
        gpus = [torch.device("cuda", i) for i in range(torch.cuda.device_count())]
        return max(gpus, key=lambda gpu: available(gpu) or 0, default=torch.device("cpu"))
    return _device("device_map", kinds[0])


def _device(name: str, given: str | torch.device) -> torch.device:
    try:
        device = torch.device(given)
    except RuntimeError:
        raise ConfigError(f"{name} is {given!r}; expected cpu, cuda or cuda:N") from None
    check(device.type != "cuda" or (device.index or 0) < torch.cuda.device_count(),
          f"{name} is {str(given)!r}, and torch {torch.__version__} finds "
          f"{torch.cuda.device_count()} CUDA devices here; expected cpu, or one of these")
    return device
