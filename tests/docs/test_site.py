"""Is the site whole: every page, every picture, every link, and nothing from a network?"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from html import unescape
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from places import ROOT, environment

import latentcode
from latentcode.experiments.benchmarks.browser import browser_path, chromium

Script = Callable[[str], ModuleType]


def test_a_link_brings_along_what_it_leads_to(script: Script) -> None:
    pages = script("pages")
    found = pages.reachable(["docs/own_task.md"])
    assert {"docs/own_task.md", "experiments/examples/modadd.py"} <= set(found)
    found = pages.reachable(["experiments/FINDINGS.md"])
    assert "experiments/results/messages/messages.png" in found


def test_no_foreign_folder_is_replaced(script: Script, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").touch()
    with pytest.raises(SystemExit, match="is not one of ours"):
        script("build").main(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The whole site, of which building checks every link."""
    folder = tmp_path_factory.mktemp("docs") / "site"
    done = subprocess.run([sys.executable, ROOT / "docs" / "build.py", folder], capture_output=True,
                          text=True, check=False, env=environment())
    assert done.returncode == 0, done.stderr
    assert f"open {folder / 'index.html'}" in done.stdout
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


def test_a_link_that_leads_nowhere_ends_the_build(
    script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build(config: Mapping[str, Any]) -> None:
        (tmp_path / "site" / "api").mkdir(parents=True)
        (tmp_path / "site" / "api" / "index.html").write_text('<a href="missing.html">')

    module = script("build")
    monkeypatch.setattr(module, "build", build)
    with pytest.raises(latentcode.LatentCodeError,
                       match=r"1 links of the site.*\nleads nowhere: api/index.html: missing.html"):
        module.build_site(tmp_path / "site", tmp_path / "api")


@pytest.mark.slow
def test_the_site(script: Script, site: Path) -> None:
    outside = (site / "external_links.txt").read_text(encoding="utf-8").split()
    assert "https://openreview.net/forum?id=V4K9h1qNxE" in outside

    pages = script("pages")
    every = [path for path in site.rglob("*.html") if "api" not in path.parts]
    assert len(every) > 30
    text = {page: re.sub(r"<(pre|code).*?</\1>", "", page.read_text(encoding="utf-8"),
                         flags=re.DOTALL) for page in every}
    # What Python-Markdown reads in another way than GitHub is left over as text.
    for left_over in (r"<p>[^<]*\n- ", r"\|---", r"\]\([^)\s]+\)", r"\*\*\w"):
        assert [page.name for page, html in text.items() if re.search(left_over, html)] == []

    home = (site / "index.html").read_text(encoding="utf-8")
    config = script("build").load_config(str(ROOT / "docs" / "mkdocs.yml"))
    named = pages.sources(config.nav)
    assert {f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md")} <= set(named)
    for address in [*map(pages.address, named), "api/index.html"]:
        assert (site / address).exists()
    assert 'src="concepts/value_network.svg"' in home
    assert all(f'href="{address}.html"' in home for address in ("app", "jupyter", "script"))
    _check_api(site / "api")


def _check_api(pages: Path) -> None:
    index = (pages / "index.html").read_text(encoding="utf-8")
    assert 'href="../index.html"' in index
    for module, names in {
            "latentcode": ("LatentCodes", "decode", "intervene", "load_pretrained", "Run"),
            "latentcode.models": ("HookedTransformer", "value_network"),
            "latentcode.models.attention": ("attention_scores", "apply_value_network"),
            "latentcode.probes.decoding": ("decode", "DecodingResult"),
            "latentcode.probes.interventions": ("Patch", "intervene_model"),
            "latentcode.tasks.logic.task": ("FuzzyLogic",)}.items():
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
