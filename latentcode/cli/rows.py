"""`latentcode decode-rows`: what do whole rows say?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from latentcode.cli.options import OfRun, Verb, default_is


@dataclass(frozen=True, kw_only=True)
class DecodeRows(OfRun):
    """Do rows say the operation, its operands, or the answer?

    Example: latentcode decode-rows runs/hyla --out results/rows

    Decodes all three from a pair, from the codes of its query over all keys, all codes of a layer,
    values, and residual streams. All are brought to the same number of dimensions and read from
    an untrained model, too. Also tells how much of the operation each holds beyond the answer.
    """

    labels: Annotated[tuple[str, ...], default_is("operation, operands and answer")] = ()
    """What to decode, such as rule or operand_1."""
    features: Annotated[tuple[str, ...], default_is("all")] = ()
    """What to decode from: pair, row, codes, values, residual, tokens, row.last_row, ..."""
    widths: tuple[int, ...] = (16, 128)
    """Numbers of dimensions that all features are reduced to."""
    n_train: int = 4_096
    """Number of instances of training combinations to fit probes on."""
    n_heldout: int = 4_096
    """Number of instances of held-out combinations to score them on."""

    def verb(self) -> Verb:
        from latentcode.probes.rows import RowsResult, decode_rows

        return decode_rows, RowsResult
