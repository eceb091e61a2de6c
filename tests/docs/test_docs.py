"""Do the pages say what the docstrings say?"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import operator
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from html import unescape
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest
from places import EXAMPLE, ROOT

import latentcode
from latentcode.cli import COMMANDS

BUILD = ROOT / "docs" / "build.py"
PAGES = [*(ROOT / name for name in (
    "README.md", "CONTRIBUTING.md", "experiments/QUESTIONS.md", "experiments/notebooks/README.md",
    "experiments/benchmarks/README.md", "experiments/results/relations/README.md",
    "models/zoo/README.md")), *(ROOT / "docs").glob("*.md")]
CODE = re.compile(r"^```(?P<language>\w*)\n(?P<block>.*?)^```$|`(?P<inline>[^`]+)`", re.M | re.S)


@pytest.fixture(scope="module")
def build() -> ModuleType:
    spec = spec_from_file_location("docs_build", BUILD)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_prose_keeps_its_mathematics(build: ModuleType) -> None:
    html = build.pdoc.render.env.filters["to_html"](build.to_markdown(
        "sum_k a_hqk * v_kh * w, a[:, q, k] (see x), a < b & c; `a_b*c*d` is [code].\n"
        "m ~ Bernoulli(1 - p)"))
    assert unescape(html).strip() == (
        "<p>sum_k a_hqk * v_kh * w, a[:, q, k] (see x), a < b & c; <code>a_b*c*d</code> is "
        "[code].\n"
        "m ~ Bernoulli(1 - p)</p>")


def test_columns_and_code_stay_as_they_are(build: ModuleType) -> None:
    columns = "layers, pairs  which to probe\nseed      of all\n          the rest"
    assert build.to_markdown(columns) == f"```text\n{columns}\n```"
    assert build.to_markdown("Title\n\n    python x.py  # y\n    more") == (
        "Title\n\n```text\npython x.py  # y\nmore\n```")
    assert build.to_markdown("- one_a\n- two") == "- one\\_a\n- two"


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
def test_commands_on_pages_have_these_options(page: Path) -> None:
    for command in commands(page.read_text(encoding="utf-8")):
        name, *rest = command.split()[1:]
        if name in ("train", "sweep") or name.startswith("-"):
            continue  # whose options are the fields of a configuration
        options = {field.name for field in dataclasses.fields(COMMANDS[name])}
        asked = {word[2:].replace("-", "_") for word in rest if word.startswith("--")}
        assert asked - options == {"import"} & asked, command  # an option of every command


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


@pytest.mark.slow
def test_every_room_has_pages_with_its_names(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, BUILD, tmp_path / "api"], capture_output=True,
                          text=True, check=False, env=with_checkout())
    assert done.returncode == 0, done.stderr
    pages = tmp_path / "api"
    index = (pages / "index.html").read_text(encoding="utf-8")
    for module, names in {
            "latentcode": ("LatentCodes", "decode", "intervene", "load_pretrained", "Run"),
            "latentcode.models": ("HookedTransformer", "value_network"),
            "latentcode.models.attention": ("attention_scores", "apply_value_network"),
            "latentcode.probes.decoding": ("decode", "decode_codes", "DecodingResult"),
            "latentcode.probes.interventions": ("Intervention", "intervene_model"),
            "latentcode.tasks.logic.task": ("FuzzyLogic",),
            "latentcode.experiments.studies.relations.world": ("make_sentences",)}.items():
        file = f"{module.replace('.', '/')}.html"
        assert f'href="{file}"' in index
        page = (pages / file).read_text(encoding="utf-8")
        for name in names:
            assert f'id="{name}"' in page, (module, name)
    attention = (pages / "latentcode/models/attention.html").read_text(encoding="utf-8")
    shown = unescape(re.sub("<[^>]*>", "", attention))
    assert "S_hqk = q_qh . k_kh / sqrt(d) + bias_hqk" in shown
    assert "hyla         z_qh = sum_k a_hqk phi(t_qk),  t_qk = sum_h a_hqk v_kh" in shown
    assert not (pages / "latentcode/app").exists()


def test_no_foreign_folder_is_replaced(build: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").touch()
    with pytest.raises(SystemExit, match="is not one of ours"):
        build.main(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]
