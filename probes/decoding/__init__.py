"""What can be read out of the codes? Logistic probes beside their controls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from latentcode.lazy import lazy_module

if TYPE_CHECKING:
    from latentcode.probes.decoding.decoding import decode as decode
    from latentcode.probes.decoding.decoding import decode_codes as decode_codes
    from latentcode.probes.decoding.result import DecodingResult as DecodingResult

__getattr__, __dir__, __all__ = lazy_module(__name__)
