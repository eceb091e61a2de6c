"""`latentcode decode`: what can be read out of codes?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from latentcode.cli.options import OfRun, Verb, default_is


@dataclass(frozen=True, kw_only=True)
class Decode(OfRun):
    """What can be read out of codes?

    Example: latentcode decode runs/hyla --out results/decoding

    Decodes labels, beside three controls. Probes are fitted on training combinations and scored on
    held-out ones. The same is done with the residual stream at the query, an untrained model's
    codes and shuffled labels. Other features than codes, such as whole rows, are read with
    --features, and asked for operation, operands and answer.
    """

    labels: Annotated[tuple[str, ...], default_is(
        "every constituent; of other features operation, operands and answer")] = ()
    """What to decode, such as rule, or term_1 and terms."""
    features: tuple[str, ...] = ("code",)
    """What to decode from: code, row, codes, values, residual, tokens, row.last_row, ..."""
    widths: Annotated[tuple[int, ...], default_is("all dimensions")] = ()
    """Numbers of dimensions that all features are brought to, such as 16 and 128."""
    beyond_answer: bool = False
    """Also ask how much of the operation features tell beyond the answer."""
    n_train: int = 4_096
    """Number of instances of training combinations to fit probes on."""
    n_heldout: int = 4_096
    """Number of instances of held-out combinations to score them on."""

    def verb(self) -> Verb:
        from latentcode.probes.decoding import DecodingResult, decode

        return decode, DecodingResult
