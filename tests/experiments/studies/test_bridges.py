"""The page on architectures says what was found, and what was found is found again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from places import ROOT

from latentcode.experiments.studies.bridges.checking import check_architecture
from latentcode.experiments.studies.bridges.page import tables, write_page
from latentcode.experiments.studies.bridges.small_models import NotBuiltError, make, names
from latentcode.figures.markdown import MARKS, with_results
from latentcode.files.provenance import package_version
from latentcode.files.storage import read_json

RESULTS: Any = read_json(ROOT / "experiments" / "results" / "bridges" / "bridges.json")
FOUND = RESULTS["architectures"]
same_versions = pytest.mark.skipif(
    any(package_version(name) != RESULTS[name.replace("-", "_")]
        for name in ("transformer-lens", "transformers")),
    reason="the results are of other versions of TransformerLens or transformers")


def test_the_page_has_the_tables_of_the_results(tmp_path: Path) -> None:
    page = ROOT / "docs" / "architectures.md"
    text = page.read_text(encoding="utf-8")
    assert with_results(text, tables(RESULTS)) == text
    empty = tmp_path / "page.md"
    empty.write_text(f"before\n{MARKS[0]}\nold\n{MARKS[1]}\nafter\n")
    write_page(empty, ROOT / "experiments" / "results" / "bridges" / "bridges.json")
    written = empty.read_text()
    assert written.startswith("before\n")
    assert written.endswith("after\n")
    assert "old" not in written
    for name in FOUND:
        assert f"`{name}`" in written
    assert str(ROOT) not in written


def test_what_is_not_tried_has_a_reason(tmp_path: Path) -> None:
    for name, message in (("T5ForConditionalGeneration", "a text alone"),
                          ("BaichuanForCausalLM", "no class of this name"),
                          ("Gemma3ForConditionalGeneration", "images or sound")):
        with pytest.raises(NotBuiltError, match=message):
            make(name, tmp_path / name)
        assert check_architecture(name) == FOUND[name]


@same_versions
def test_no_architecture_is_left_out() -> None:
    assert set(FOUND) == set(names())


@same_versions
@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, of in FOUND.items()
                                  if of["outcome"] != "not built"])
def test_an_architecture_is_as_the_results_say(name: str) -> None:
    now, then = check_architecture(name), FOUND[name]
    assert (now["outcome"], now.get("reason")) == (then["outcome"], then.get("reason"))
    for dtype in ("float32", "float64") if "float32" in then else ():
        for key in ("failed", "trusted", "reason"):
            assert now[dtype].get(key) == then[dtype].get(key), (dtype, key)
