"""One server, a browser for the tests of a module; and nothing of Streamlit stays behind."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from threading import Lock
from typing import TYPE_CHECKING

import pytest

from latentcode.experiments.benchmarks.browser import Server, browser_path, chromium, serving
from latentcode.probes.projection.cache import VARIABLE

if TYPE_CHECKING:
    from explorer import Explorer
    from playwright.sync_api import Browser


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the explorer computes in a test is kept nowhere else."""
    monkeypatch.setenv(VARIABLE, str(tmp_path_factory.mktemp("cache")))


@pytest.fixture(autouse=True)
def nothing_in_the_background(monkeypatch: pytest.MonkeyPatch) -> None:
    """What pages load in advance would be loaded beside the tests that follow."""
    begun = Lock()
    begun.acquire()
    monkeypatch.setattr("latentcode.app.data.preload._once", begun)


@pytest.fixture(autouse=True)
def main_module(monkeypatch: pytest.MonkeyPatch) -> None:
    """AppTest puts its script in the place of __main__, which later tests would try to spawn."""
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])


@pytest.fixture(scope="session")
def installed_browser() -> None:
    pytest.importorskip("playwright", reason="the tests in a browser need playwright")
    if browser_path() is None:
        pytest.skip("no browser is installed; the tests of the app in a real one need Debian's "
                    "package chromium, which .ci/run installs")


# Of a module, not of the session: as long as Playwright runs, it has an event loop in this process,
# beside which nobody can start another.
@pytest.fixture(scope="module")
def browser(installed_browser: None) -> Iterator[Browser]:
    with chromium() as started:
        yield started


@pytest.fixture(scope="session")
def server(
    installed_browser: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    from explorer import make_folders

    root = tmp_path_factory.mktemp("explorer")
    folder = make_folders(root / "runs")
    with serving([folder], root / "cache", root / "server.log") as started:
        yield started


@pytest.fixture
def opened(browser: Browser, server: Server) -> Iterator[Callable[[], Explorer]]:
    """Return what opens a browser of its own; all are closed after the test."""
    from explorer import Explorer

    explorers: list[Explorer] = []

    def opening() -> Explorer:
        explorers.append(Explorer.opened(browser, server))
        return explorers[-1]

    yield opening
    for explorer in explorers:
        explorer.close()


@pytest.fixture
def explorer(opened: Callable[[], Explorer]) -> Explorer:
    return opened()
