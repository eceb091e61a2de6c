"""What does a whole row say: operation, operands, or the answer? From pairs to all codes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from latentcode.lazy import lazy_module

if TYPE_CHECKING:
    from latentcode.probes.rows.of_run import decode_rows as decode_rows
    from latentcode.probes.rows.result import RowsResult as RowsResult

__getattr__, __dir__, __all__ = lazy_module(__name__)
