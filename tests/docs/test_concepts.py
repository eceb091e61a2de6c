"""Does the page on concepts print what it says, and do its pictures show the same numbers?"""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from places import ROOT

PAGE = (ROOT / "docs" / "concepts.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```python\n(.*?)^```\n\n```text\n(.*?)^```$", PAGE, re.M | re.S)
NUMBER = re.compile(r"\d+\.\d+")


def test_every_example_prints_what_stands_below() -> None:
    assert len(EXAMPLES) == PAGE.count("```python\n")
    names: dict[str, Any] = {}
    for code, printed in EXAMPLES:
        with redirect_stdout(io.StringIO()) as output:
            exec(code, names)
        assert output.getvalue() == printed


def test_pictures_are_those_that_the_script_draws(
    script: Callable[[str], ModuleType], tmp_path: Path,
) -> None:
    drawings = script("drawings")
    drawings.main(tmp_path)
    files = {file.name for file in drawings.HERE.iterdir()}
    assert files == {file.name for file in tmp_path.iterdir()}
    assert files == {f"{name}.svg" for name in re.findall(r"\]\(concepts/(\w+)\.svg\)", PAGE)}
    for name in files:
        old, new = ((folder / name).read_text(encoding="utf-8")
                    for folder in (drawings.HERE, tmp_path))
        assert NUMBER.sub("", new) == NUMBER.sub("", old)
        # The last digit may differ on another machine.
        assert [float(number) for number in NUMBER.findall(new)] == pytest.approx(
            [float(number) for number in NUMBER.findall(old)], abs=0.11)
