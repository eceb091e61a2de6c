"""`latentcode extract-prompts | probe-prompts`: the codes of pretrained language models."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import tyro

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
        from latentcode.models.pretrained import load_pretrained
        from latentcode.progress import bar
        from latentcode.prompt_codes import PromptReader
        from latentcode.prompts import Prompts
        from latentcode.storage import check_free

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
class ProbePrompts:
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
        from latentcode.probes import probe_prompts
        from latentcode.progress import bar
        from latentcode.storage import check_free

        check_free(self.out, overwrite=self.overwrite, marker="decoding.json")
        result = probe_prompts(
            self.model, self.prompts, labels=self.labels, layers=self.layers or None,
            heldout=self.heldout, seed=self.seed, device=resolve_device(self.device),
            dtype=_dtype(self.dtype), batch_size=self.batch_size,
            progress=bar("probing"))
        result.save(self.out, overwrite=self.overwrite)
        print(result)
        print(f"wrote result {self.out}")


def _dtype(name: Dtype) -> torch.dtype:
    import torch

    types = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
    return types[name]


__all__ = ["ExtractPrompts", "ProbePrompts"]
