"""What another version wrote is refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from latentcode.errors import ArtifactError, RunError
from latentcode.files.provenance import check_format, header


def test_what_is_written_now_passes() -> None:
    data = {**header("latentcode.run"), "id": "a"}
    assert check_format(data, "latentcode.run", Path("runs/a")) == data
    assert data["format_version"] == "2.0"


@pytest.mark.parametrize(("data", "message"), [
    ({"format": "latentcode.run", "format_version": 4},
     r"runs/a is of format latentcode\.run, version 4 \(latentcode 1\.0 or older\); convert it "
     r"with `python experiments/convert_1_0\.py runs`"),
    ({"format": "latentcode.run", "format_version": 2}, r"version 2 \(latentcode 1\.0 or older\)"),
    ({"format": "latentcode.run", "format_version": "3.0"}, r"version '3\.0'; expected '2\.0'"),
    ({"format": "latentcode.run", "format_version": 2.0}, r"version 2\.0; expected '2\.0'"),
    ({"format": "latentcode.run", "format_version": True}, r"version True; expected '2\.0'"),
    ({"format": "latentcode.run"}, r"version None; expected '2\.0'"),
    ({"format": "latentcode.codes", "format_version": "2.0"},
     r"runs/a is of format 'latentcode\.codes'; expected latentcode\.run"),
    ({}, "is of format None"), ([1], "is of format None"), (None, "is of format None"),
    ("latentcode.run", "is of format None")])
def test_another_version_or_format_is_named(data: Any, message: str) -> None:
    for error in (ArtifactError, RunError):
        with pytest.raises(error, match=message):
            check_format(data, "latentcode.run", Path("runs/a"), error)
