"""The text in which copying pays: words that one word alone follows, but at the ends of spans."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from latentcode.config import LanguageConfig
from latentcode.errors import RunError
from latentcode.experiments.texts import spans
from latentcode.tasks import make_task


def test_a_text_of_spans_can_be_copied(tmp_path: Path) -> None:
    words = spans.document(3).split()
    assert set(words) <= set(spans.WORDS)
    assert len(set(spans.WORDS)) == len(spans.WORDS)
    low, high = spans.LENGTH
    assert low * spans.N_COPIES <= len(words) <= high * spans.N_COPIES
    after: dict[str, set[str]] = {}
    for word, following in pairwise(words):
        after.setdefault(word, set()).add(following)
    ends = [word for word, following in after.items() if len(following) > 1]
    assert 1 <= len(ends) <= spans.N_SPANS
    spans.write_spans(tmp_path / "text", 20)
    assert (tmp_path / "text" / "documents.jsonl").read_text().count("\n") == 20
    with pytest.raises(RunError, match="exists already"):
        spans.write_spans(tmp_path / "text")
    assert spans.document(3) == spans.document(3) != spans.document(4)


def test_a_label_of_one_class_is_not_offered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LATENTCODE_CACHE", str(tmp_path / "cache"))
    spans.write_spans(tmp_path / "text", 200)
    task = make_task(LanguageConfig(n_vocabulary=360, n_tokens=64, text=str(tmp_path / "text")))
    assert task.probe_labels == ("copied",)
