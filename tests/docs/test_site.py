"""Is the site whole: every page, every picture, every link, and nothing from a network?"""

from __future__ import annotations

import re
import subprocess
import sys
from html import unescape
from pathlib import Path

import pytest
from places import ROOT, environment

from latentcode.experiments.benchmarks.browser import browser_path, chromium


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The whole site, of which building checks every link of a page."""
    folder = tmp_path_factory.mktemp("docs") / "site"
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "-f", "docs/mkdocs.yml",
         "-d", folder], capture_output=True, text=True, check=False, cwd=ROOT,
        env=environment(NO_MKDOCS_2_WARNING="1"))
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.slow
def test_the_search_works_from_the_disk(site: Path) -> None:
    pytest.importorskip("playwright", reason="the tests in a browser need playwright")
    if browser_path() is None:
        pytest.skip("no browser is installed")
    asked: list[str] = []
    with chromium() as browser:
        page = browser.new_page()
        page.on("request", lambda request: asked.append(request.url))
        page.goto((site / "concepts.html").as_uri())
        page.keyboard.press("/")
        page.keyboard.type("sparsemax")
        page.locator(".md-search-result__link", has_text="Attention of your own").first.click()
        page.wait_for_url("**/own_attention.html*")
        assert "Sparsemax" in page.inner_text("article")
    assert len(asked) > 5
    assert [url for url in asked if not url.startswith(("file:", "data:", "about:"))] == []


@pytest.mark.slow
def test_pages_are_there_and_need_no_network(site: Path) -> None:
    every = {page: page.read_text(encoding="utf-8") for page in site.rglob("*.html")}
    loaded = re.compile(r'<(?:script|img|iframe)[^>]*src="(?:https?:)?//|<link rel="(?!canonical)'
                        r'[^>]*href="(?:https?:)?//')
    assert [page.name for page, html in every.items() if loaded.search(html)] == []
    # What Python-Markdown reads in another way than GitHub is left over as text.
    text = {page: re.sub(r"<(pre|code).*?</\1>", "", html, flags=re.DOTALL)
            for page, html in every.items() if "api" not in page.parts}
    for left_over in (r"<p>[^<]*\n- ", r"\|---", r"\]\([^)\s]+\)", r"\*\*\w"):
        assert [page.name for page, html in text.items() if re.search(left_over, html)] == []
    assert all((site / page.with_suffix(".html").name).exists()
               for page in (ROOT / "docs").glob("*.md") if page.stem != "README")
    home = every[site / "index.html"]
    assert 'src="concepts/value_network.svg"' in home
    assert all(f'href="{address}.html"' in home for address in ("app", "jupyter", "script"))
    assert '<img alt="' in every[site / "experiments/notebooks/decode_rules.html"]
    assert "/blob/main/experiments/examples/modadd.py" in every[site / "own_task.html"]


@pytest.mark.slow
@pytest.mark.parametrize(("module", "names"), [
    ("latentcode/index", ("LatentCodes", "decode", "intervene", "load_pretrained", "Run")),
    ("latentcode/models/attention", ("attention_scores", "apply_value_network")),
    ("latentcode/probes/decoding", ("decode", "DecodingResult")),
    ("latentcode/tasks/logic/task", ("FuzzyLogic",))])
def test_the_api_has_every_module(site: Path, module: str, names: tuple[str, ...]) -> None:
    page = (site / "api" / f"{module}.html").read_text(encoding="utf-8")
    for name in names:
        path = f"{module.removesuffix('/index').replace('/', '.')}.{name}"
        assert f'id="{path}"' in page, path
    if module == "latentcode/models/attention":
        shown = unescape(re.sub("<[^>]*>", "", page))
        assert "S_hqk = q_qh . k_kh / sqrt(d) + bias_hqk" in shown
        assert "hyla         z_qh = sum_k a_hqk phi(t_qk),  t_qk = sum_h a_hqk v_kh" in shown
    assert not (site / "api/latentcode/app").exists()
