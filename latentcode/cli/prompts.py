"""`latentcode extract-prompts | decode-prompts | intervene-prompts`: codes of language models."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from latentcode.cli.intervene import Writes
from latentcode.cli.options import Saving, Seeded, default_is

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, kw_only=True)
class OfModel(Seeded, Saving):
    """Which pretrained model, and how it is run."""

    model: tyro.conf.Positional[str]
    """Folder that save_pretrained wrote, or a name on the Hugging Face hub."""
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """Type of the weights."""
    batch_size: int = 32
    """Prompts per forward pass; fewer where prompts are long."""

    prepend_bos: Literal["auto", "yes", "no"] = "auto"
    """Whether prompts begin with the token for a beginning; auto: as the model's tokenizer does."""

    def begins(self) -> bool | None:
        """Return `prepend_bos` as functions take it."""
        return None if self.prepend_bos == "auto" else self.prepend_bos == "yes"

    def placed(self) -> dict[str, Any]:
        """Return where and in which type the weights are."""
        from latentcode.devices import resolve_device

        return {"device": resolve_device(self.device), "dtype": self._dtype()}

    def _dtype(self) -> torch.dtype:
        import torch

        return {"float32": torch.float32, "bfloat16": torch.bfloat16,
                "float16": torch.float16}[self.dtype]


@dataclass(frozen=True, kw_only=True)
class ExtractPrompts(OfModel):
    """Which codes does a language model compute on prompts?

    Example: latentcode extract-prompts gpt2 prompts.jsonl --out codes/gpt2

    Each line of the prompts is a JSON object such as {"prompt": "The capital of France is",
    "query": -1, "key": "France", "label": "capital"}; positions are indices of tokens, or parts of
    the prompt. If interrupted, the same command continues where it stopped.
    """

    prompts: tyro.conf.Positional[Path]
    """Prompts, one JSON object per line."""
    layers: Annotated[tuple[int, ...], default_is("all")] = ()
    """Numbers of layers."""
    residuals: bool = False
    """Also save the residual stream at the queries."""
    untrained: bool = False
    """Use fresh random weights instead."""

    def run(self) -> None:
        from latentcode.models.pretrained import load_pretrained
        from latentcode.prompts import Prompts
        from latentcode.prompts.codes import PromptReader

        self.check_out("meta.json")
        prompts = Prompts.read(self.prompts)
        model = load_pretrained(self.model, untrained=self.untrained, seed=self.seed,
                                **self.placed())
        self.save_codes(PromptReader(
            model, prompts, layers=self.layers or None, residuals=self.residuals,
            batch_size=self.batch_size, prepend_bos=self.begins(),
            meta={"untrained": self.untrained, "seed": self.seed}), "prompts")


@dataclass(frozen=True, kw_only=True)
class DecodePrompts(OfModel):
    """What can be read out of the codes of a language model?

    Example: latentcode decode-prompts gpt2 prompts.jsonl --out results/gpt2

    Decodes labels of prompts, beside three controls. Probes are fitted on some prompts and scored
    on held-out ones. The same is done with the residual stream at the query, the codes of the model
    with fresh weights and shuffled labels.
    """

    prompts: tyro.conf.Positional[Path]
    """Prompts, one JSON object per line."""
    labels: tuple[str, ...] = ("label",)
    """What to decode: columns of the prompts."""
    layers: Annotated[tuple[int, ...], default_is("all")] = ()
    """Numbers of layers."""
    heldout: float = 0.3
    """Share of the combinations to hold out if the prompts have no column `split`."""

    def run(self) -> None:
        from latentcode.probes.decoding.of_run import decode
        from latentcode.probes.decoding.result import DecodingResult
        from latentcode.subjects import subject

        self.save_result(DecodingResult, "fitting probes", lambda progress: decode(
            subject(self.model, self.prompts, batch_size=self.batch_size,
                    prepend_bos=self.begins(), device=self.device, dtype=self.dtype),
            labels=self.labels, layers=self.layers or None, heldout=self.heldout, seed=self.seed,
            progress=progress))


@dataclass(frozen=True, kw_only=True)
class IntervenePrompts(Writes, OfModel):
    """Do a source prompt's codes change a language model's answer?

    Example: latentcode intervene-prompts gpt2 pairs.jsonl --out results/patched

    Writes them, and counts how often the answer follows. Each line of the pairs is a JSON object
    such as {"prompt": "The capital of France is", "answer": " Paris", "source": "The language of
    France is", "source_answer": " French", "query": -1, "key": "France"}. Prompt and source have
    the same number of tokens, and each answer is one token. An optional column `control` holds the
    control's prompt, which has the prompt's answer. Without --patch: the source's codes and the
    controls, over layers and scopes.
    """

    pairs: tyro.conf.Positional[Path]
    """Minimal pairs of prompts, one JSON object per line."""
    among: Literal["vocabulary", "answers"] = "vocabulary"
    """The model's answer: the most likely token of all, or the likelier of the two answers."""

    def run(self) -> None:
        from latentcode.models.pretrained import load_pretrained
        from latentcode.probes.interventions import InterventionResult
        from latentcode.probes.interventions.of_run import intervene
        from latentcode.prompts import Prompts
        from latentcode.subjects import subject

        self.check_out(InterventionResult.marker())
        prompts = Prompts.read(self.pairs)
        model = load_pretrained(self.model, **self.placed())
        chosen = self.interventions(model.cfg.n_layers)
        self.save_result(InterventionResult, "prompts", lambda progress: intervene(
            subject(model, prompts, batch_size=self.batch_size, prepend_bos=self.begins()),
            interventions=chosen, among=self.among, seed=self.seed, progress=progress))
