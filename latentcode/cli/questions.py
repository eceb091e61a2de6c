"""The questions that commands ask, each with an example, and what words can say beside arguments.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from latentcode.cli.asking import Own, Verb
from latentcode.cli.intervene import Writes
from latentcode.cli.options import default_is
from latentcode.errors import ConfigError, ProbeError, check

if TYPE_CHECKING:
    from latentcode.subjects import Subject


@dataclass(frozen=True, kw_only=True)
class Inputs(Own):
    """If interrupted, the same command continues where it stopped."""

    inputs: Annotated[Literal["uniform", "fixed_context", "fixed_query"] | None,
                      default_is("as in training")] = None
    """fuzzy logic: what the problems have in common"""

    def of(
        self, models: tuple[str, ...], prompts: Path | None, given: dict[str, Any]
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
    """Several folders are codes: those that are fitted to, then others."""

    SEVERAL: ClassVar[bool] = True

    def of(
        self, models: tuple[str, ...], prompts: Path | None, given: dict[str, Any]
    ) -> list[Subject]:
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


VERBS: dict[str, Verb] = {
    "extract": Verb("latentcode.subjects.extract",
                    "extract runs/hyla --out codes/hyla --n 10000 --pairs all", Inputs),
    "decode": Verb("latentcode.probes.decoding.decode",
                   "decode runs/hyla --out results/decoding", Codes),
    "project": Verb("latentcode.probes.projection.project",
                    "project runs/hyla --labels term_1 --out results/projection", Codes),
    "knn-purity": Verb("latentcode.probes.knn_purity.knn_purity",
                       "knn-purity runs/hyla --out results/knn_purity"),
    "similarity": Verb("latentcode.probes.similarity.similarity",
                       "similarity runs/hyla --label terms --out results/similarity"),
    "topography": Verb("latentcode.probes.topography.topography",
                       "topography runs/hyla-* --out results/topography"),
    "align": Verb("latentcode.probes.alignment.align",
                  "align runs/hyla-0 runs/hyla-1 --out results/alignment"),
    "value-networks": Verb("latentcode.probes.value_networks.value_networks",
                           "value-networks runs/hyla --labels term_1 --out results/networks"),
    "intervene": Verb("latentcode.probes.interventions.intervene", "intervene runs/sraven --out "
                      "results/patched --patch interchange --scope row", Writes),
    "attribute": Verb("latentcode.probes.attribution.attribute",
                      "attribute runs/sraven --out results/attribution"),
    "das": Verb("latentcode.probes.das.das",
                "das runs/sraven --out results/das --layer 3 --rank 4 16")}
"""Every question by the name of its command."""
