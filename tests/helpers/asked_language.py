"""Language models of random weights and texts for them, as the explorer is started with."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import streamlit as st

from latentcode.app.language import work as working
from latentcode.app.language.given import VARIABLE, checked
from latentcode.app.language.work import Work

WORDS = ("The", "capital", "of", "France", "is", "Paris", "and", "the", "river", "of", "Peru",
         "was", "in", "Lima", "then", "we", "asked")


def texts_file(folder: Path, n: int = 24, length: int = 14) -> Path:
    """Write texts of some words in some order, the first of which come again."""
    lines = [" ".join(WORDS[(i * 5 + k * (1 + i % 3)) % len(WORDS)] for k in range(length))
             for i in range(n)]
    path = folder / "texts.txt"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@contextmanager
def begun(
    patch: pytest.MonkeyPatch, model: Path, texts: Path, *, longest: int = 12
) -> Iterator[Work]:
    """Begin what the server does, wait until it is done, and forget it afterwards."""
    asked = checked([str(model)], str(texts), longest=longest)
    patch.setenv(VARIABLE, asked.to_json())
    assert json.loads(asked.to_json())["longest"] == longest
    working.work.cache_clear()
    st.cache_data.clear()
    st.cache_resource.clear()
    st.session_state.clear()
    started = working.work()
    started.wait(60.0)
    try:
        yield started
    finally:
        working.work.cache_clear()
