"""What a function takes, read from its source."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import pytest

import latentcode as lc
from latentcode.documented import REQUIRED, described, options_of

Size = Literal["small", "large"]
MANY = 16, 128


def question(
    model: Path | str, labels: Sequence[str] | Mapping[str, Callable[[int], int]] | None = None, *,
    sizes: Sequence[Size] | Size = "small", n: int | None = None, widths: Sequence[int] = MANY,
    begins: bool | None = None, rate: float = -0.5, progress: Callable[[], None] | None = None,
    n_train: int = 4_096, n_heldout: int = 1, untold: int = 3,
) -> dict[str, Any]:
    """What is it?

    A paragraph that begins as
    labels do, and is none.

    model     a folder,
              or a name
    labels    default: all, of `rule`
              and others; or functions of a batch, `{name: function}`
    n         how many; default: 4,096, of prompts all. More are better
    sizes     `small` or `large`
    n_train, n_heldout  instances for both
    progress  called with nothing

    Raises nothing.
    """
    return {}


def test_what_a_docstring_says_of_an_argument() -> None:
    found = options_of(question)
    said = {name: (option.said, option.said_default) for name, option in found.items()}
    assert said["model"] == ("a folder, or a name", "")
    assert said["labels"] == ("", "all, of rule and others")
    assert said["n"] == ("how many. More are better", "4,096, of prompts all")
    assert said["sizes"] == ("small or large", "")
    assert said["n_train"] == said["n_heldout"] == ("instances for both", "")
    assert said["progress"] == ("called with nothing", "")
    assert found["untold"].text == ""


def test_what_words_can_give() -> None:
    found = options_of(question)
    assert {name: option.words for name, option in found.items()} == {
        "model": Path, "labels": tuple[str, ...], "sizes": tuple[Size, ...], "n": int,
        "widths": tuple[int, ...], "begins": bool, "rate": float, "progress": None,
        "n_train": int, "n_heldout": int, "untold": int}
    assert [name for name, option in found.items() if option.optional] == [
        "labels", "n", "begins", "progress"]
    assert [name for name, option in found.items() if option.is_open] == ["begins"]
    assert found["model"].default is REQUIRED
    assert (found["rate"].default, found["widths"].default, found["sizes"].default) == (
        -0.5, MANY, "small")


def test_the_rest_of_a_docstring_stays() -> None:
    about = described(question)
    text, returns = about.text, about.returns
    assert text == ("What is it?\n\nA paragraph that begins as\nlabels do, and is none.\n\n"
                    "Raises nothing.")
    assert returns == "dict[str, Any]"
    assert described("latentcode.probes.decoding.decode").returns == "DecodingResult"


def test_a_function_and_its_address_are_one() -> None:
    address = "latentcode.probes.knn_purity.knn_purity"
    assert options_of(lc.knn_purity) == options_of(address)
    # What a function does not say of an argument that all questions take, they say.
    assert options_of(address)["layers"].said == "layer numbers"


def test_the_fields_of_a_dataclass_are_read_too() -> None:
    assert options_of(lc.Patch)["heads"].words == tuple[int, ...]
    assert options_of(lc.Patch)["site"].default == "code"


def test_what_has_no_source_is_an_error() -> None:
    with pytest.raises(LookupError, match=r"latentcode\.nothing is no function"):
        options_of("latentcode.nothing")


def test_nothing_is_imported() -> None:
    code = ("import sys\nfrom latentcode.documented import options_of\n"
            "assert options_of('latentcode.probes.decoding.decode')['labels'].said_default\n"
            "assert 'torch' not in sys.modules and 'latentcode.probes' not in sys.modules")
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
