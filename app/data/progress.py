"""How much of the work is done, as a bar on the page."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import streamlit as st

from latentcode.progress import Progress


@contextmanager
def progress_bar(text: str) -> Iterator[Progress]:
    """Show a bar with the remaining time, which is gone when the work is done."""
    bar = st.progress(0.0, text=text)
    begun = time.monotonic()

    def report(done: int, total: int) -> None:
        share = min(done / max(total, 1), 1.0)
        left = (time.monotonic() - begun) * (1.0 - share) / share if share > 0.02 else None
        remaining = "" if left is None else f" {left:.0f} s left"
        bar.progress(share, text=f"{text}{remaining}")

    try:
        yield report
    finally:
        bar.empty()


__all__ = ["progress_bar"]
