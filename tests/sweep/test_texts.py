"""Texts written without a network: packages (prose, each piece once, the same again) and spans."""

from __future__ import annotations

import json
from functools import partial
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path

import pandas as pd
import pytest

from latentcode.cli import main
from latentcode.config import LanguageConfig
from latentcode.errors import ConfigError, RunError
from latentcode.files.storage import checksum
from latentcode.sweep import texts
from latentcode.sweep.texts import PARQUET, docstrings, is_prose_or_code, write_packages
from latentcode.tasks import make_task

SOURCE = '''\
"""A module."""


class A:
    """A class.

        With an example.
    """

    def f(self):
        """A method."""
        def g():
            "Inner."
'''


def test_docstrings_come_in_their_order() -> None:
    assert docstrings(SOURCE) == (
        "A module.\n\nA\nA class.\n\nWith an example.\n\nf\nA method.\n\ng\nInner.")
    assert docstrings("def (") == ""


@pytest.mark.parametrize(("text", "kept"), [
    ("word " * 100, False), ("word word\n" * 50, True), ("word " * 10, False),
    ("1.5 2.5 word\n" * 50, False), ("word\n" * 50_000, False)])
def test_tables_and_minified_files_are_left_out(text: str, kept: bool) -> None:
    assert is_prose_or_code(text) is kept


def test_the_text_of_packages_is_a_data_set_of_the_hub(tmp_path: Path) -> None:
    names = ("jinja2", "pyyaml", "no-such-package")
    [first, second] = write_packages(tmp_path / "a", packages=names)
    assert (first["name"], first["version"], second["name"]) == (
        "jinja2", version("jinja2"), "pyyaml")
    table = pd.read_parquet(tmp_path / "a" / PARQUET)
    assert list(table) == ["text", "name", "source", "kind"]
    assert table["text"].is_unique
    assert set(table["source"]) == {"jinja2", "pyyaml"}
    assert {"doc", "py"} <= set(table["kind"])
    assert first["bytes"] == table.loc[table["source"] == "jinja2", "text"].str.encode("utf-8").map(
        len).sum()
    about = json.loads((tmp_path / "a" / "about.json").read_text())
    assert about["packages"] == [first, second]
    write_packages(tmp_path / "b", packages=names)
    assert checksum(tmp_path / "a" / PARQUET) == checksum(tmp_path / "b" / PARQUET)
    with pytest.raises(RunError, match="exists already"):
        write_packages(tmp_path / "b", packages=names)


def test_no_package_dominates(tmp_path: Path) -> None:
    [package] = write_packages(tmp_path / "a", packages=["rich"], most_megabytes=0.05)
    assert 0 < package["bytes"] <= 50_000
    with pytest.raises(ConfigError, match="none of none is installed"):
        write_packages(tmp_path / "b", packages=["none"])
    assert not (tmp_path / "b").exists()


def test_the_command_says_what_it_wrote(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    few = partial(write_packages, packages=["pyyaml"])
    monkeypatch.setattr(texts, "write_packages", few)
    main(["zoo", "text", "packages", str(tmp_path / "text")])
    assert f"documents of 1 packages, 0.0 MB, to {tmp_path / 'text'}" in capsys.readouterr().out
    main(["zoo", "text", "spans", str(tmp_path / "spans")])
    assert f"wrote 8,000 documents to {tmp_path / 'spans'}" in capsys.readouterr().out


def test_a_text_of_spans_can_be_copied(tmp_path: Path) -> None:
    words = texts.span_document(3).split()
    assert set(words) <= set(texts.WORDS)
    low, high = texts.LENGTH
    assert low * texts.N_COPIES <= len(words) <= high * texts.N_COPIES
    after: dict[str, set[str]] = {}
    for word, following in pairwise(words):
        after.setdefault(word, set()).add(following)
    ends = [word for word, following in after.items() if len(following) > 1]
    assert 1 <= len(ends) <= texts.N_SPANS
    texts.write_spans(tmp_path / "text", 20)
    assert (tmp_path / "text" / "documents.jsonl").read_text().count("\n") == 20
    with pytest.raises(RunError, match="exists already"):
        texts.write_spans(tmp_path / "text")
    assert texts.span_document(3) == texts.span_document(3) != texts.span_document(4)


def test_a_label_of_one_class_is_not_offered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LATENTCODE_CACHE", str(tmp_path / "cache"))
    texts.write_spans(tmp_path / "text", 200)
    task = make_task(LanguageConfig(n_vocabulary=360, n_tokens=64, text=str(tmp_path / "text")))
    assert task.probe_labels == ("copied",)
