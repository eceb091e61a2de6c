"""The questions that commands ask, each with an example, and what words can say beside arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from latentcode.cli.asking import Own, Verb
from latentcode.cli.intervene import Writes
from latentcode.cli.options import default_is
from latentcode.errors import ConfigError, ProbeError, check
from latentcode.probes.questions import questions
from latentcode.probes.registered.registry import PROBES

if TYPE_CHECKING:
    import pandas as pd

    from latentcode.subjects import Subject


@dataclass(frozen=True, kw_only=True)
class Inputs(Own):
    """If interrupted (Ctrl-C), what was measured is saved in OUT.partial."""

    inputs: Annotated[Literal["uniform", "fixed_context", "fixed_query"] | None,
                      default_is("as in training")] = None
    """fuzzy logic: what the problems have in common"""

    def of(
        self, models: tuple[str, ...], prompts: Path | pd.DataFrame | None, given: dict[str, Any]
    ) -> list[Subject]:
        if self.inputs is None:
            return super().of(models, prompts, given)
        from latentcode.runs.named import load_run
        from latentcode.subjects import subject

        check(prompts is None, f"--inputs is {self.inputs!r}, but prompts are what they are; "
              "expected one or the other", ConfigError)
        run = load_run(models[0])
        check(run.config.task.name == "logic", f"--inputs is {self.inputs!r}, but task "
              f"{run.config.task.name!r} has no such choice", ConfigError)
        return [subject(run, replace(run.config.task, inputs=self.inputs), **given)]


@dataclass(frozen=True, kw_only=True)
class Codes(Own):
    """Several folders are codes: those that are fitted to, then others. With --texts, labels that
    are columns of the file are asked of whole texts, on held-out documents.
    """

    SEVERAL: ClassVar[bool] = True

    texts: Annotated[Path | None, default_is("the prompts, or what a run was trained on")] = None
    """texts to ask about: one per line (.txt), or one object with a text per line (.jsonl), perhaps
    with its document, its split and labels"""

    def of(
        self, models: tuple[str, ...], prompts: Path | pd.DataFrame | None, given: dict[str, Any]
    ) -> list[Subject]:
        if self.texts is not None:
            from latentcode.prompts.texts_file import read_texts

            check(prompts is None, f"--texts is {str(self.texts)!r} and --prompts "
                  f"{str(prompts)!r}; expected one or the other", ConfigError)
            check(len(models) == 1, f"{len(models)} models are given; expected one, which is asked "
                  "about the texts", ConfigError)
            return super().of(models, read_texts(self.texts), given)
        if len(models) == 1:
            return super().of(models, prompts, given)
        from latentcode.runs.named import folder_of
        from latentcode.subjects import subject

        first, *rest = map(folder_of, models)
        others: Any = rest
        check(all((folder / "codes.safetensors").is_file() for folder in (first, *rest)),
              f"{len(models)} folders are given that are not all codes; expected one model, or "
              "folders of codes", ProbeError)
        check(prompts is None, f"prompts are {prompts}, but codes were read before; expected no "
              "prompts", ProbeError)
        return [subject(first, others, **given)]


@dataclass(frozen=True, kw_only=True)
class OfTexts(Own):
    """If interrupted (Ctrl-C), what was measured is saved in OUT.partial."""

    texts: Annotated[Path | None, default_is("the prompts, or a run's own text")] = None
    """texts to ask about, which are streamed: one per line (.txt), or one object with a text per
    line (.jsonl)"""

    def of(
        self, models: tuple[str, ...], prompts: Path | pd.DataFrame | None, given: dict[str, Any]
    ) -> list[Any]:
        if self.texts is None:
            return super().of(models, prompts, given)
        from latentcode.probes.heads.texts import read_texts

        check(prompts is None, f"--texts is {str(self.texts)!r} and --prompts {str(prompts)!r}; "
              "expected one or the other", ConfigError)
        check(self.texts.is_file(), f"--texts is {str(self.texts)!r}, which is no file; expected "
              "texts, one per line (.txt), or one object with a text per line (.jsonl)",
              ConfigError)
        return [read_texts(models[0], self.texts, **given)]


EXAMPLES: dict[str, str] = {
    "extract": "runs/hyla --out codes/hyla --n 10000 --pairs all",
    "decode": "runs/hyla --out results/decoding",
    "project": "runs/hyla --labels term_1 --out results/projection",
    "knn_purity": "runs/hyla --out results/knn_purity",
    "similarity": "runs/hyla --label terms --out results/similarity",
    "topography": "runs/hyla-* --out results/topography",
    "align": "runs/hyla-0 runs/hyla-1 --out results/alignment",
    "value_networks": "runs/hyla --labels term_1 --out results/networks",
    "heads": "gpt2 --texts pages.txt --longest 256 --out results/heads",
    "intervene": "runs/sraven --out results/patched --patch interchange --scope row",
    "attribute": "runs/sraven --out results/attribution",
    "das": "runs/sraven --out results/das --layer 3 --rank 4 16"}
"""What makes an example of a question, in the order of `latentcode --help`; others come after these
and have the same words as `decode`."""
OWN: dict[str, type[Own]] = {
    "extract": Inputs, "decode": Codes, "project": Codes, "heads": OfTexts, "intervene": Writes}
"""What words can say beside arguments; questions without an example take folders of codes."""
ELSEWHERE = ("check_model",)
"""Questions that are a part of another command, `latentcode zoo check`."""


def _verb(name: str, function: Callable[..., Any] | str) -> Verb:
    command = name.replace("_", "-")
    words = EXAMPLES.get(name, f"runs/hyla --out results/{name}")
    return Verb(function, f"{command} {words}", OWN.get(name, Own if name in EXAMPLES else Codes))


def _verbs() -> dict[str, Verb]:
    known = {"extract": "latentcode.subjects.extract", **questions()}
    ordered = [*EXAMPLES, *(name for name in known if name not in (*EXAMPLES, *ELSEWHERE))]
    return {name.replace("_", "-"): _verb(name, known[name]) for name in ordered}


VERBS: dict[str, Verb] = _verbs()
"""Every question that comes with the library, by the name of its command."""


def own_verbs(taken: Collection[str]) -> dict[str, Verb]:
    """Return the questions that were registered here, by the names of their commands.

    taken  commands that there are

    `ConfigError` for a probe whose name is that of a command.
    """
    found = {}
    for name, registered in PROBES.items():
        command = name.replace("_", "-")
        if command in VERBS:  # of the library
            continue
        check(command not in taken, f"probe {name!r} of {PROBES.file(name)} has the name of a "
              "command of latentcode; expected another one", ConfigError)
        found[command] = _verb(name, registered.question)
    return found


__all__ = ["VERBS", "Codes", "Inputs", "OfTexts", "own_verbs"]
