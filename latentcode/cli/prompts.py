"""`latentcode extract-prompts | decode-prompts | intervene-prompts`: codes of pretrained models."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import tyro

from latentcode.cli.intervene import Writes

if TYPE_CHECKING:
    import torch

Dtype = Literal["float32", "bfloat16", "float16"]


@dataclass(frozen=True)
class ExtractPrompts:
    """Run a pretrained language model over prompts and save the codes of their pairs.

    A line of the prompts is {"prompt": ..., "query": -1, "key": "subject", "label": ...}: positions
    are indices of tokens or pieces of the prompt. Interrupted, the same command goes on where it
    was.
    """

    model: tyro.conf.Positional[str]
    """A folder that save_pretrained wrote, or a name on the Hugging Face hub."""
    prompts: tyro.conf.Positional[Path]
    """Prompts, one JSON object per line."""
    out: Path
    """Folder of the codes."""
    layers: tuple[int, ...] = ()
    """Layers; default: all."""
    residuals: bool = False
    """Also keep the residual stream at the queries."""
    untrained: bool = False
    """Use fresh weights instead."""
    seed: int = 0
    """Seed of the fresh weights."""
    device: str = "cpu"
    """cpu or cuda."""
    dtype: Dtype = "float32"
    """Type of the weights."""
    batch_size: int = 32
    """Prompts of one forward pass; fewer where they are long."""
    overwrite: bool = False
    """Replace codes that the folder already holds, or unfinished ones of other settings."""

    def run(self) -> None:
        from latentcode.devices import resolve_device
        from latentcode.files.storage import check_free
        from latentcode.models.pretrained import load_pretrained
        from latentcode.progress import bar
        from latentcode.prompts import Prompts
        from latentcode.prompts.codes import PromptReader

        check_free(self.out, overwrite=self.overwrite, marker="meta.json")
        prompts = Prompts.read(self.prompts)
        model = load_pretrained(self.model, device=resolve_device(self.device),
                                dtype=_dtype(self.dtype), untrained=self.untrained,
                                seed=self.seed)
        reader = PromptReader(model, prompts, layers=self.layers or None,
                              residuals=self.residuals, batch_size=self.batch_size,
                              meta={"untrained": self.untrained, "seed": self.seed})
        reader.to_folder(self.out, overwrite=self.overwrite, progress=bar("extracting"))
        print(f"{len(prompts):,} prompts, {len(reader.layers)} layers, {len(reader.pairs)} pairs")
        print(f"wrote codes {self.out}")


@dataclass(frozen=True)
class DecodePrompts:
    """Decode labels of prompts from a pretrained model's codes, beside three controls.

    Probes are fitted on some prompts and scored on held-out ones. Beside the codes stand those of
    the same model with fresh weights, shuffled labels and the residual stream at the query.
    """

    model: tyro.conf.Positional[str]
    """A folder that save_pretrained wrote, or a name on the Hugging Face hub."""
    prompts: tyro.conf.Positional[Path]
    """Prompts, one JSON object per line."""
    out: Path
    """Folder of the result: tables, figure, settings."""
    labels: tuple[str, ...] = ("label",)
    """What to decode: columns of the prompts."""
    layers: tuple[int, ...] = ()
    """Layers; default: all."""
    heldout: float = 0.3
    """Share of the combinations to hold out, where the prompts have no column `split`."""
    seed: int = 0
    """Seed of split, fresh weights, shuffling and bootstrap."""
    device: str = "cpu"
    """cpu or cuda, for the extraction."""
    dtype: Dtype = "float32"
    """Type of the weights."""
    batch_size: int = 32
    """Prompts of one forward pass; fewer where they are long."""
    overwrite: bool = False
    """Replace a result that the folder already holds."""

    def run(self) -> None:
        from latentcode.devices import resolve_device
        from latentcode.files.storage import check_free
        from latentcode.probes.prompts.decoding import decode_prompts
        from latentcode.progress import bar

        check_free(self.out, overwrite=self.overwrite, marker="decoding.json")
        result = decode_prompts(
            self.model, self.prompts, labels=self.labels, layers=self.layers or None,
            heldout=self.heldout, seed=self.seed, device=resolve_device(self.device),
            dtype=_dtype(self.dtype), batch_size=self.batch_size,
            progress=bar("probing"))
        result.save(self.out, overwrite=self.overwrite)
        print(result)
        print(f"wrote result {self.out}")


@dataclass(frozen=True, kw_only=True)
class IntervenePrompts(Writes):
    """Write a donor prompt's codes into a pretrained model, and see whether its answer follows.

    A line of the pairs is {"prompt": "The capital of France is", "answer": " Paris", "donor": "The
    language of France is", "donor_answer": " French", "query": -1, "key": "France"}: prompt and
    donor have as many tokens, the answers are one token each. A further column, same, holds the
    control's prompt, with the same answer. Without --write: the donor's codes and the controls',
    over layers and scopes.
    """

    model: tyro.conf.Positional[str]
    """A folder that save_pretrained wrote, or a name on the Hugging Face hub."""
    pairs: tyro.conf.Positional[Path]
    """Minimal pairs of prompts, one JSON object per line."""
    out: Path
    """Folder of the tables and the figure."""
    among: Literal["vocabulary", "answers"] = "vocabulary"
    """The model's answer: the likeliest token of all, or the likelier of the two answers."""
    seed: int = 0
    """Seed of noise, shuffling and bootstrap."""
    device: str = "cpu"
    """cpu or cuda."""
    dtype: Dtype = "float32"
    """Type of the weights."""
    batch_size: int = 32
    """Prompts of one forward pass."""
    overwrite: bool = False
    """Replace results that the folder already holds."""

    def run(self) -> None:
        from latentcode.devices import resolve_device
        from latentcode.files.storage import check_free
        from latentcode.models.pretrained import load_pretrained
        from latentcode.probes.interventions import InterventionResult
        from latentcode.probes.prompts.interventions import intervene_prompts
        from latentcode.progress import bar
        from latentcode.prompts import Prompts

        check_free(self.out, overwrite=self.overwrite, marker=InterventionResult.marker())
        prompts = Prompts.read(self.pairs)
        model = load_pretrained(self.model, device=resolve_device(self.device),
                                dtype=_dtype(self.dtype))
        result = intervene_prompts(
            model, prompts, self.interventions(model.cfg.n_layers), among=self.among,
            seed=self.seed, batch_size=self.batch_size, progress=bar("prompts"))
        print(result)
        print(f"wrote result {result.save(self.out, overwrite=self.overwrite)}")


def _dtype(name: Dtype) -> torch.dtype:
    import torch

    types = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
    return types[name]


__all__ = ["DecodePrompts", "ExtractPrompts", "IntervenePrompts"]
