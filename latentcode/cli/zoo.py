"""`latentcode zoo list | check | text`: models and texts to work with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import tyro

from latentcode.cli.parsing import default_is
from latentcode.errors import LatentCodeError


@dataclass(frozen=True)
class List:
    """Print a table of the models: task, kind, size and metrics on every split.

    Example: latentcode zoo list
    """

    def run(self) -> None:
        from latentcode import zoo
        from latentcode.runs.run import ZOO

        models = zoo.list_models()
        if len(models) == 0:
            raise LatentCodeError("this installation of latentcode has no models in its zoo")
        table = models.drop(columns="summary").dropna(axis="columns", how="all")
        formats = {"parameters": "{:,}".format, "megabytes": "{:.1f}".format}
        print(table.rename_axis(None).to_string(
            formatters=formats, float_format="{:.3f}".format, na_rep=""))
        print(f"a page about each: {ZOO}/NAME/README.md")


@dataclass(frozen=True, kw_only=True)
class CheckModel:
    """See if a language model can be trusted.

    Its TransformerLens bridge has to compute what transformers computes, to show the codes that
    attention used, and to take those that are written. The exit status is 0 if everything holds
    (SUPPORTED), 1 if something fails or its codes cannot be compared, 2 if the model cannot be
    opened.

    Example: latentcode zoo check gpt2
    """

    model: tyro.conf.Positional[str]
    """Folder that save_pretrained wrote, or a name on the Hugging Face hub, also with @revision."""
    dtype: Literal["float32", "float64"] = "float32"
    """Type of the weights; in float64 rounding hides no mistake."""
    lengths: Annotated[tuple[int, ...] | None, default_is("4 9 32")] = None
    """Tokens of the random prompts."""
    seed: int = 0
    """Seed of everything random."""
    device: str = "cpu"
    """cpu or cuda."""
    out: Annotated[Path | None, default_is("none")] = None
    """Folder to save the result in."""
    overwrite: bool = False
    """Replace an earlier result in that folder."""

    def run(self) -> None:
        from latentcode.devices import resolve_device
        from latentcode.files.storage import check_free
        from latentcode.probes.model_checks import ModelCheckResult, check_model
        from latentcode.progress import Bar

        if self.out is not None:
            check_free(self.out, overwrite=self.overwrite, marker=ModelCheckResult.marker())
        with Bar("comparing") as progress:
            result = check_model(
                self.model, lengths=self.lengths, dtype=self.dtype, seed=self.seed,
                device=resolve_device(self.device), progress=progress)
        print(result)
        if self.out is not None:
            print(f"wrote result {result.save(self.out, overwrite=self.overwrite)}")
        if not result.supported:
            raise SystemExit(1)


@dataclass(frozen=True)
class Text:
    """Write a text to train language models on, without a network.

    Example: latentcode zoo text spans text

    `spans` are 8,000 documents whose few spans of random words come again and again, so that small
    models learn to copy. `packages` is the text of the grid `fig6_small`: tens of megabytes of
    docstrings, documents and sources of the installed Python packages, the same for the same
    versions. `latentcode train language --task.text text --out runs/language` trains on either.
    """

    what: tyro.conf.Positional[Literal["packages", "spans"]]
    """Which text."""
    out: tyro.conf.Positional[Path]
    """Folder for the text."""
    overwrite: bool = False
    """Replace a text that was written so before."""

    def run(self) -> None:
        from latentcode.sweep import texts

        if self.what == "spans":
            texts.write_spans(self.out, overwrite=self.overwrite)
            print(f"wrote {texts.N_DOCUMENTS:,} documents to {self.out}")
        else:
            packages = texts.write_packages(self.out, overwrite=self.overwrite)
            n, size = (sum(package[key] for package in packages) for key in ("documents", "bytes"))
            print(f"wrote {n:,} documents of {len(packages)} packages, {size / 1e6:.1f} MB, to "
                  f"{self.out}; their versions are in about.json")


@dataclass(frozen=True)
class Zoo:
    """List the models of the library, check a language model, write texts.

    Example: latentcode zoo list
    """

    SUBCOMMANDS: ClassVar[dict[str, type]] = {
        "list": List, "check": CheckModel, "text": Text}
    command: (Annotated[List, tyro.conf.subcommand("list")]
              | Annotated[CheckModel, tyro.conf.subcommand("check")]
              | Annotated[Text, tyro.conf.subcommand("text")])

    def run(self) -> None:
        self.command.run()
