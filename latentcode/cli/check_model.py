"""`latentcode zoo check`: can the codes of a pretrained model be trusted?"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from latentcode.cli.options import default_is


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
    lengths: Annotated[tuple[int, ...], default_is("4 9 32")] = ()
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
                self.model, lengths=self.lengths or None, dtype=self.dtype, seed=self.seed,
                device=resolve_device(self.device), progress=progress)
        print(result)
        if self.out is not None:
            print(f"wrote result {result.save(self.out, overwrite=self.overwrite)}")
        if not result.supported:
            raise SystemExit(1)
