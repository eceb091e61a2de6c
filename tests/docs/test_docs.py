"""Do the pages say what the docstrings say?"""

from __future__ import annotations

import ast
import inspect
import operator
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import pytest
from places import EXAMPLE, ROOT

import latentcode

PAGES = [*(ROOT / name for name in (
    "README.md", "CONTRIBUTING.md", "experiments/notebooks/README.md",
    "experiments/benchmarks/README.md", "models/zoo/README.md")), *(ROOT / "docs").glob("*.md")]
CODE = re.compile(r"^```(?P<language>\w*)\n(?P<block>.*?)^```$|`(?P<inline>[^`]+)`", re.M | re.S)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_name_what_there_is(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    targets = re.findall(r"\]\((?!https?:)([^)#]+)", text)
    assert [t for t in targets if not (page.parent / t).exists()] == []
    names = set(re.findall(r"\blc\.([A-Za-z]\w*)", text))
    assert names - set(latentcode.__all__) == set()
    modules = set(re.findall(r"\blatentcode(?:\.[a-z]\w*)+", text))
    assert [name for name in modules if find_spec(name) is None] == []
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    asked = set(re.findall(r"(?:^|`)make ([a-z-]+)", text, re.MULTILINE))
    assert {name for name in asked if f"\n{name}:" not in makefile} == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_on_pages_have_these_options(
    page: Path, script: Callable[[str], ModuleType]
) -> None:
    taken = script("surface").options()
    for command in commands(page.read_text(encoding="utf-8")):
        name, *rest = command.split()[1:]
        if name in ("train", "sweep") or name.startswith("-"):
            continue  # whose options are the fields of a configuration
        words = name if name in taken else " ".join([name, *rest[:1]])
        if words not in taken and "--import" in rest:
            continue  # a probe of one's own, whose page is run
        asked = {word for word in rest if word.startswith("--")}
        assert asked - {*taken[words]} <= {"--import"}, command  # an option of every command


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_calls_on_pages_have_these_arguments(page: Path) -> None:
    for language, block, _ in CODE.findall(page.read_text(encoding="utf-8")):
        for call in ast.walk(ast.parse(block if language == "python" else "")):
            if isinstance(call, ast.Call) and re.fullmatch(
                    r"lc(\.\w+)+", name := ast.unparse(call.func)):
                called = operator.attrgetter(name.removeprefix("lc."))(latentcode)
                keywords = {keyword.arg: None for keyword in call.keywords if keyword.arg}
                inspect.signature(called).bind(*call.args, **keywords)


def test_the_page_on_own_tasks_has_the_whole_example() -> None:
    page = (ROOT / "docs" / "own_task.md").read_text(encoding="utf-8")
    blocks = [block for language, block, _ in CODE.findall(page) if language == "python"]
    assert blocks[0] == EXAMPLE.read_text(encoding="utf-8")


def test_the_map_is_the_order_that_the_linter_holds() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    layers = project["tool"]["importlinter"]["contracts"][0]["layers"]
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`\w+/[^|]*) \|", text, re.MULTILINE)
    mapped = [[Path(name).stem for name in re.findall(r"`([^`]+)`", row)] for row in rows]
    assert mapped == [layer.split(" : ") for layer in layers]


@pytest.mark.slow
def test_the_first_result_of_the_readme(tmp_path: Path) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    first = next(block for language, block, _ in CODE.findall(text) if language == "python")
    done = subprocess.run([sys.executable, "-c", first], capture_output=True, text=True,
                          check=False, cwd=tmp_path, env=with_checkout())
    assert done.returncode == 0, done.stderr
    assert "DecodingResult" in done.stdout
    assert (tmp_path / "codes.png").stat().st_size > 10_000


def commands(text: str) -> Iterator[str]:
    """Yield the commands `latentcode ...` of a page, continued lines joined."""
    for _, block, inline in CODE.findall(text):
        lines = [inline.replace("\n", " ")] if inline else re.sub(r"\\\n", "", block).split("\n")
        yield from (line.split(" #")[0] for line in lines if line.startswith("latentcode "))


def with_checkout() -> dict[str, str]:
    """Return this environment, with the checkout first where Python looks for packages."""
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": paths}
