"""Models and problems in whatever form people have them in hand; and the codes of the two."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import torch

from latentcode.codes import LatentCodes
from latentcode.devices import checked_seed
from latentcode.errors import ConfigError, ProbeError, UnknownNameError, as_tuple, check, listed
from latentcode.hub import Address, is_address
from latentcode.models.pretrained import GGUF
from latentcode.progress import Progress, watched
from latentcode.prompts import LanguageModel, Prompts, as_prompts, load_language_model
from latentcode.prompts.language_models import check_bridged
from latentcode.runs import Run
from latentcode.runs.run import folder_of as run_folder
from latentcode.runs.run import load_run, zoo_folders
from latentcode.subjects.base import CodesSubject, Subject, check_nothing
from latentcode.subjects.prompts import PromptSubject, TextSubject
from latentcode.subjects.tasks import ModelSubject, RunSubject, placed
from latentcode.tasks import Task, make_task
from latentcode.tasks.base import SPLITS
from latentcode.tasks.text.task import Text

if TYPE_CHECKING:
    from latentcode.subjects.arguments import Model, Problems, Split

TENSORS, PRETRAINED, RUN = "codes.safetensors", "config.json", "config.yaml"
"""What makes a folder one of codes, of a pretrained language model, and of a run."""


def subject(
    model: Model,
    problems: Problems = None,
    *,
    step: int | None = None,
    revision: str | None = None,
    device: str | None = None,
    device_map: str | Mapping[str, Any] | None = None,
    dtype: str | torch.dtype | None = None,
    prepend_bos: bool | None = None,
    batch_size: int | None = None,
    untrained: LatentCodes | Sequence[LatentCodes] = (),
) -> Subject:
    """Return a model on problems, which every question takes in place of the two.

    A subject is itself. `UnknownNameError` for a name that stands for nothing, `ConfigError` for
    problems that the model cannot be asked about, `ProbeError` for options that it does not have.

    Args:
        model: A run, its folder, a name of the zoo, an address `hf://user/name`; a language model's
            folder or its name on the hub; a `TransformerBridge` or a `HookedTransformer` in hand;
            or codes that were read before, or their folder.
        problems: A task or its configuration; prompts (`Prompts`, a DataFrame, a JSONL file);
            texts, in which pairs are found by pattern, a list or a DataFrame with a column `text`,
            whose other columns are labels of whole texts (`prompts.text_prompts`); default: what
            a run was trained on. Of codes, those of held-out combinations.
        step: The checkpoint of a run; default: the newest.
        revision: Branch, tag or commit of a pretrained model on the hub; default: the newest
            commit.
        device: `cpu` or `cuda`, for what is loaded here; default: cpu.
        device_map: In place of the device of a pretrained model: `auto`, the GPU with the most
            memory left or else the CPU, or one device for all modules; default: as device says.
        dtype: Type of a pretrained model's weights, such as `bfloat16`; default: float32.
        prepend_bos: Whether prompts begin with the BOS token; default: as its tokenizer does
            says.
        batch_size: Problems of one forward pass; default: 512, of prompts 32.
        untrained: Beside codes as the model: as many codes of an untrained one.
    """
    options = {"step": step, "revision": revision, "device": device, "device_map": device_map,
               "dtype": dtype, "prepend_bos": prepend_bos, "batch_size": batch_size}
    if isinstance(model, Subject):
        check_nothing("the model is a subject, which has them already", problems=problems,
                      untrained=untrained or None, **options)
        return model
    if isinstance(model, str | Path):
        model = opened_model(model, pretrained=problems is not None)
    if isinstance(model, LatentCodes):
        check_nothing("the model is codes that were read before", **options)
        heldout = () if problems is None else (
            codes if isinstance(codes, LatentCodes) else LatentCodes.load(codes)
            for codes in as_tuple(problems))
        initial = (untrained,) if isinstance(untrained, LatentCodes) else tuple(untrained)
        return CodesSubject((model, *heldout), initial)
    check(not isinstance(problems, LatentCodes) and len(untrained) == 0, "codes are given as "
          "problems or as untrained, and the model is none; expected codes for all", ProbeError)
    check_bridged(model)
    check(isinstance(model, Run | LanguageModel | str | Path) or hasattr(model, "run_with_hooks"),
          f"model is {model!r}; expected a run, the name of a model, or a model in hand")
    opened = as_problems(problems)
    in_hand = not isinstance(model, Run | str | Path)
    name = f"a {type(model).__name__}" if in_hand else repr(str(model))
    if isinstance(opened, Prompts | pd.DataFrame):
        if isinstance(model, Run) and model.config.task.name != Text.name:
            what = "prompts" if isinstance(opened, Prompts) else (
                f"texts ({', '.join(map(repr, opened['text']))[:60]})")
            raise ConfigError(
                f"problems are {what}, and run {model.name} (task {model.config.task.name}) reads "
                "no text; expected a language model, or a task; what is asked about goes by "
                "labels=")
        if in_hand:
            check_nothing("the model is in hand", revision=revision, device=device,
                          device_map=device_map, dtype=dtype)
        in_text: Any = model
        language = load_language_model(
            in_text, step=step, revision=revision, device_map=device_map, dtype=dtype,
            device=None if device is None else placed(device))
        if isinstance(opened, Prompts):
            return PromptSubject(language, opened, prepend_bos=prepend_bos, batch_size=batch_size)
        return TextSubject(language, opened, prepend_bos=prepend_bos, batch_size=batch_size)
    check_nothing("the problems are no prompts", dtype=dtype, prepend_bos=prepend_bos,
                  revision=revision, device_map=device_map)
    if isinstance(model, Run):
        return RunSubject(model, opened, step=step, device=placed(device), batch_size=batch_size)
    if opened is None:
        raise ConfigError(f"problems are missing: {name} does not say what it is asked; expected "
                          "prompts (a DataFrame or a JSONL file), texts, or a task")
    check(not isinstance(model, str | Path | LanguageModel), f"problems are a task, and {name} is "
          "a language model; expected prompts or texts")
    check_nothing("the model is in hand", step=step, device=device)
    return ModelSubject(model, opened, batch_size=batch_size)


def as_problems(problems: Any) -> Task | Prompts | pd.DataFrame | None:
    """Return a task, prompts, or texts with their labels, that are given in one of their ways; None
    for None."""
    if problems is None or isinstance(problems, Task | Prompts):
        return problems
    if isinstance(problems, pd.DataFrame):
        is_texts = "text" in problems and not {"prompt", "messages"} & {*problems}
        return problems if is_texts else as_prompts(problems)
    if isinstance(problems, str | Path):
        check(problems not in SPLITS, f"problems is {problems!r}, which is a split; expected "
              f"split={problems!r}")
        check(os.path.isfile(problems), f"problems is {str(problems)[:60]!r}, which is no file; "
              "expected prompts, one JSON object a line, a task, such as run.config.task or "
              "dataclasses.replace(run.config.task, ...), or a text in a list; what is asked about "
              "goes by a name, such as labels=")
        return as_prompts(problems)
    if isinstance(problems, Sequence):
        check(len(problems) > 0 and all(isinstance(text, str) for text in problems),
              f"problems are {listed(problems)}; expected texts, or prompts as a DataFrame")
        return pd.DataFrame({"text": list(problems)})
    check(hasattr(problems, "name"), f"problems is {problems!r}; expected a task or its "
          "configuration, prompts, or texts; what is asked about goes by labels=")
    return make_task(problems)


def opened_model(model: str | Path, *, pretrained: bool) -> Run | LatentCodes | str | Path:
    """Return the run or the codes that text or a path stands for; a pretrained model's name or
    folder, or a file in the format GGUF, as it is.

    pretrained  whether text that stands for nothing here is a name on the hub
    """
    if isinstance(model, str) and is_address(model):
        return (LatentCodes.load(model) if Address.parse(model).kind == "codes"
                else load_run(model))
    path = Path(model)
    if not path.exists() and not str(model).startswith("zoo:") and str(model) not in zoo_folders():
        if pretrained:
            return model
        try:
            load_run(model)
        except UnknownNameError as error:
            raise UnknownNameError("model", str(model), error.valid, ". A language model's name "
                                   "also needs problems: prompts or texts") from None
    if path.suffix == GGUF or (
            path.is_dir() and (path / PRETRAINED).is_file() and not (path / RUN).is_file()):
        return model
    folder = run_folder(model)
    return LatentCodes.load(folder) if (folder / TENSORS).is_file() else Run.open(folder)


@watched("reading codes")
def extract(
    model: Model,
    problems: Problems = None,
    *,
    split: Split = "ood",
    n: int | None = None,
    pairs: Sequence[str] | str | None = None,
    layers: Sequence[int] | int | None = None,
    residuals: bool = False,
    untrained: bool = False,
    step: int | None = None,
    seed: int = 0,
    device: str | None = None,
    batch_size: int | None = None,
    out: str | Path | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> LatentCodes:
    """Run a model over problems, and keep the codes a[:, q, k] of named pairs.

    Beside the labels of a task, its measures of each problem (such as `loss` and `accuracy`) are
    labels, so that codes can be coloured by correctness; beside the columns of prompts, position
    and text of the query's and the key's token, and `next_token`, what the model says comes next.
    Hooks of a model in hand stay active: a code that one of them writes is the code that is read.

    Memory grows with n x layers x pairs x heads, not with the attention matrices; with `out` with
    the labels alone, about 0.2 kB per problem.

    Args:
        model: See `subject`.
        problems: See `subject`; such as `replace(run.config.task, inputs="fixed_context")`.
        split: `train`, `test`, `ood` or `unknown`.
        n: Number of problems; fewer are the first of more; default: 4,096, of prompts all.
        pairs: Names of pairs, or `all`; default: the paper's, the first of the task's; of prompts
            all.
        layers: Layer numbers, or a single one; default: all.
        residuals: Also keep `hook_resid_pre` at the pairs' queries, a control for every probe.
        untrained: Use the initial weights instead, another control.
        step: The checkpoint; default: the newest.
        seed: Seed of the problems; the same problems for every model of a task.
        device: `cpu` or `cuda`; default: cpu.
        batch_size: Problems of one forward pass; the result depends on it by rounding only;
            default: 512, of prompts 32.
        out: A folder to write the codes to while they are read, as `LatentCodes.save` would; the
            result is that folder, opened. Interrupted (Ctrl-C, kill, full disk), the same call goes
            on where it was, out of the folder `out.partial`.
        overwrite: Replace codes that `out` already holds, and unfinished ones of other settings.
        progress: Called with (problems done, n) after every batch.

    Raises:
        LatentCodeError: What `subject` raises, `UnknownNameError` for a pair, layer or split,
            `SplitError` for a split that the task does not offer, `ConfigError` for prompts whose
            tokens or positions cannot be used and for a causal model whose codes look ahead; with
            `out` what `partial_codes` raises.
    """
    seed = checked_seed(seed)
    read = subject(model, problems, step=step, device=device, batch_size=batch_size)
    reader = read.reader(
        split, n=read.n_of("n", n, 4_096, split), pairs=pairs, layers=layers, residuals=residuals,
        untrained=untrained, seed=seed)
    return reader.read(out, overwrite=overwrite, progress=progress)
