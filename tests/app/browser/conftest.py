"""One server, and one browser; all tests are slow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from explorer import Explorer, make_folders
from playwright.sync_api import Browser

from latentcode.experiments.benchmarks.browser import Server, browser_path, chromium, serving


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def installed_browser() -> None:
    if browser_path() is None:
        pytest.skip("no browser is installed; the tests of the app in a real one need Debian's "
                    "package chromium, which .ci/run installs")


# Of this folder, not of the session: as long as Playwright runs, it has an event loop in this
# process, beside which nobody can start another.
@pytest.fixture(scope="package")
def browser(installed_browser: None) -> Iterator[Browser]:
    with chromium() as started:
        yield started


@pytest.fixture(scope="session")
def server(
    installed_browser: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    root = tmp_path_factory.mktemp("explorer")
    with serving([make_folders(root / "runs")], root / "cache", root / "server.log") as started:
        yield started


@pytest.fixture(scope="package")
def windows(browser: Browser) -> Iterator[list[Explorer]]:
    """The one that tests share: to a new one all scripts of the page are new, which takes seconds.

    Nothing moves in it; in those that a test opens for itself pictures glide as they do for most.
    """
    shared: list[Explorer] = []
    yield shared
    for window in shared:
        window.close()


@pytest.fixture
def explorer(browser: Browser, server: Server, windows: list[Explorer]) -> Explorer:
    if not windows:
        windows.append(Explorer.opened(browser, server, still=True))
    return windows[0].cleared(server)


@pytest.fixture
def opened(browser: Browser, server: Server) -> Iterator[Callable[[], Explorer]]:
    """Return what opens a browser of its own; all are closed after the test."""
    explorers: list[Explorer] = []

    def opening() -> Explorer:
        explorers.append(Explorer.opened(browser, server))
        return explorers[-1]

    yield opening
    for explorer in explorers:
        explorer.close()
