"""`latentcode generate`: text that a model continues, with its codes, and without some heads."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from latentcode.cli.parsing import default_is
from latentcode.errors import ConfigError, check

if TYPE_CHECKING:
    from latentcode.probes.generation import Generation
    from latentcode.probes.interventions import Patch

HEAD = re.compile(r"L?(\d+)(?:[.H](\d+))?")


@dataclass(frozen=True, kw_only=True)
class Generate:
    """Generate text with a model, and without some of its heads.

    Example: latentcode generate gpt2 "The capital of France is" --without 5.3 5.7

    With --out the codes of all new tokens with all tokens of the prompt are saved, which every
    question about codes takes.
    """

    model: tyro.conf.Positional[str]
    """A language model's folder or its name on the hub, also with @revision, or a text model that
    was trained here."""
    prompt: tyro.conf.Positional[str]
    """The text to continue."""
    max_new_tokens: int = 20
    """Tokens to generate, fewer where the model ends the text."""
    without: Annotated[tuple[str, ...], default_is("none")] = ()
    """Heads whose codes become zero, LAYER.HEAD such as 5.3 (or L5H3), or all heads of a LAYER."""
    at: Literal["everywhere", "prompt", "generated"] = "everywhere"
    """Of which queries --without is: all tokens, those of the prompt, or those that are generated.
    """
    temperature: float = 0.0
    """0: the most probable token; else p^(1 / temperature), drawn from the seed."""
    top_k: Annotated[int | None, default_is("all")] = None
    """Draw from the most probable tokens alone."""
    seed: int = 0
    """Seed of drawn tokens."""
    revision: Annotated[str | None, default_is("the newest commit")] = None
    """Branch, tag or commit of a model on the hub."""
    device: Annotated[str | None, default_is("cpu")] = None
    """cpu or cuda."""
    dtype: Annotated[str | None, default_is("float32")] = None
    """Type of the weights, such as bfloat16."""
    prepend_bos: Annotated[Literal["yes", "no"] | None, default_is("as the tokenizer does")] = None
    """Whether the prompt begins with the BOS token."""
    out: Annotated[Path | None, default_is("none")] = None
    """Folder to save the codes in: with --without those of the patched model."""
    overwrite: bool = False
    """Replace codes in that folder."""

    def run(self) -> None:
        from latentcode.devices import resolve_device
        from latentcode.files.storage import check_free
        from latentcode.progress import Bar
        from latentcode.prompts import load_language_model

        patches = self._patches()
        if self.out is not None:
            check_free(self.out, overwrite=self.overwrite, marker="meta.json")
        model = load_language_model(
            self.model, revision=self.revision, dtype=self.dtype,
            device=None if self.device is None else resolve_device(self.device))
        patched = None
        if patches:  # first, as heads that the model does not have are refused here
            with Bar("generating without") as progress:
                patched = self._generated(model, patches, progress)
        with Bar("generating") as progress:
            found = self._generated(model, (), progress)
        print(found.prompt)
        print(f"the model: {found.text!r}")
        if patched is not None:
            print(f"without {' '.join(self.without)}: {patched.text!r}")
            found = patched
        print(found.table.to_string(index=False, float_format="{:.3f}".format))
        if self.out is not None:
            found.codes().save(self.out, overwrite=self.overwrite)
            print(f"wrote codes {self.out}")

    def _generated(self, model: Any, patches: tuple[Patch, ...], progress: Any) -> Generation:
        from latentcode.probes.generation import generate

        return generate(
            model, self.prompt, max_new_tokens=self.max_new_tokens, patches=patches,
            temperature=self.temperature, top_k=self.top_k, seed=self.seed,
            layers=None if self.out is not None else (), progress=progress,
            prepend_bos=None if self.prepend_bos is None else self.prepend_bos == "yes")

    def _patches(self) -> tuple[Patch, ...]:
        """Return the patches that --without asks for."""
        from latentcode.probes.interventions import Patch

        found = []
        for head in self.without:
            match = HEAD.fullmatch(head)
            check(match is not None, f"without is {head!r}; expected LAYER.HEAD, such as 5.3, or a "
                  "LAYER", ConfigError)
            assert match is not None
            found.append(Patch(
                "zero_ablation", layers=(int(match[1]),),
                heads=None if match[2] is None else (int(match[2]),),
                queries=None if self.at == "everywhere" else self.at))
        return tuple(found)
