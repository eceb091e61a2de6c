"""Is the text of installed packages English, each piece once, and the same when made again?"""

from __future__ import annotations

import json
from functools import partial
from importlib.metadata import version
from pathlib import Path

import pandas as pd
import pytest

from latentcode.cli import main
from latentcode.errors import ConfigError, RunError
from latentcode.experiments.texts import packages
from latentcode.experiments.texts.packages import (
    PACKAGES,
    PARQUET,
    docstrings_and_comments,
    is_prose_or_code,
    write_packages,
)
from latentcode.files.storage import checksum

SOURCE = '''\
"""A module."""
# Short.
# A comment that goes on for two lines, the second
#   of which is indented.
X = """
# Not a comment, but a string that looks very much like a comment of a whole sentence.
"""


class A:
    """A class.

        With an example.
    """

    def f(self):
        """A method."""
        def g():
            "Inner."
'''


def test_docstrings_and_comments_come_in_their_order() -> None:
    assert docstrings_and_comments(SOURCE) == (
        "A module.\n\nShort.\nA comment that goes on for two lines, the second\n"
        "  of which is indented.\n\nA\nA class.\n\nWith an example.\n\nA.f\nA method.\n\n"
        "A.f.g\nInner.")
    assert docstrings_and_comments("def (") == ""


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
    assert "BSD" in first["licence"]
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
    assert "latentcode" not in PACKAGES


def test_the_command_says_what_it_wrote(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    few = partial(write_packages, packages=["pyyaml"])
    monkeypatch.setattr(packages, "write_packages", few)
    main(["zoo", "text", "packages", str(tmp_path / "text")])
    assert f"documents of 1 packages, 0.0 MB, to {tmp_path / 'text'}" in capsys.readouterr().out
