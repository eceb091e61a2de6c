"""`decode` of codes in hand, as tests write it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import latentcode as lc
from latentcode.codes import LatentCodes
from latentcode.probes.decoding import DecodingResult


def decode_codes(
    train: LatentCodes, heldout: LatentCodes, labels: Any,
    *, untrained: Sequence[LatentCodes] = (), **options: Any,
) -> DecodingResult:
    """Decode labels from codes of training and of held-out combinations."""
    return lc.decode(lc.subject(train, heldout, untrained=untrained), labels=labels, **options)
