"""The explorer in a real browser: a server on a free port, Chromium, and a mouse that draws."""

from __future__ import annotations

import math
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from latentcode.errors import LatentCodeError

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
         "--disable-background-networking", "--disable-component-update", "--disable-sync")
WINDOW = (1440, 1250)
"""Width and height in pixels: the whole page without scrolling."""
PATIENCE = 120.0
"""Seconds to wait for something before giving up."""

DRAWN = """chart => {
    const map = document.querySelector(`${chart} .lc-map[data-drawn]`);
    if (map?.codeMap.showing) return false;
    const canvases = [...(map?.querySelectorAll('.lc-field canvas') ?? [])];
    return canvases.length > 0 && canvases.every(canvas => {
        const {data} = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
        for (let i = 4; i < data.length; i += 4)
            if (data[i] !== data[0] || data[i + 1] !== data[1] || data[i + 2] !== data[2])
                return true;
        return false;
    });
}"""
"""Whether points have been painted, and no other picture is on its way: some pixel of every picture
has not the ground's colour."""

LONELY = """chart => {
    const [panel] = document.querySelector(`${chart} .lc-map`).codeMap.panels;
    const frame = panel.field.getBoundingClientRect(), points = [];
    for (let i = 0; i < panel.points.length / 2; i++) {
        const [x, y] = panel.position(i);
        points.push({instance: i, x, y});
    }
    let lonely = null, farthest = -1;
    const inside = (at, length) => at > 0.1 * length && at < 0.9 * length;
    for (const point of points.filter(p => inside(p.x, frame.width) && inside(p.y, frame.height))) {
        let nearest = Infinity;
        for (const other of points) if (other !== point)
            nearest = Math.min(nearest, (point.x - other.x) ** 2 + (point.y - other.y) ** 2);
        if (nearest > farthest) [lonely, farthest] = [point, nearest];
    }
    return {instance: lonely.instance, x: frame.left + lonely.x, y: frame.top + lonely.y};
}"""
"""The point whose nearest neighbour in the (first) plane is farthest away, not at the edge."""

SETTLED = """() => {
    const app = document.querySelector('[data-testid=stApp]');
    const busy = ['stStatusWidget', 'stSkeleton', 'stSpinner'].map(id => `[data-testid=${id}]`);
    return app?.dataset.testScriptState === 'notRunning'
        && !!document.querySelector('[data-testid=stMainBlockContainer]')
        && !document.querySelector([...busy, '[data-stale=true]'].join());
}"""
"""Whether the page has nothing left to update."""

PAINTED = "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
"""Returns when what has been drawn until now is on the screen."""

HEADLINE = """() => {
    const heading = [...document.querySelectorAll('h5')].find(h => /selection/i.test(h.innerText));
    return heading ? heading.innerText : '';
}"""
"""What the page says of the selection."""


class BrowserError(LatentCodeError):
    """There is no browser, or the explorer does not answer it."""


def browser_path() -> str | None:
    """Return the Chromium of this machine, or None."""
    return next(filter(None, map(shutil.which, BROWSERS)), None)


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start Chromium without a window; `BrowserError` where there is none."""
    path = browser_path()
    if path is None:
        raise BrowserError(f"no browser was found; expected one of {', '.join(BROWSERS)}, such as "
                           "Debian's package chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        try:
            yield browser
        finally:
            browser.close()


@dataclass(frozen=True)
class Server:
    """A running explorer."""

    port: int

    def url(
        self, page: str = "", query: Mapping[str, str | tuple[str, ...]] | None = None
    ) -> str:
        """Return the address of a page (the part of its URL, "" for the first) of the explorer."""
        return f"http://localhost:{self.port}/{page}" + (
            f"?{urlencode(query, doseq=True)}" if query else "")


@contextmanager
def serving(
    folders: Sequence[Path], cache: Path, log: Path, options: Sequence[str] = ()
) -> Iterator[Server]:
    """Run `latentcode explore` on a free port, as from a terminal, until the block ends.

    Args:
        folders: What it shows.
        cache: Where it keeps what it computes.
        log: File of what it prints.
        options: Further words of the command.

    Raises:
        BrowserError: It does not answer when the block begins; with the end of the log.
    """
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port: int = probe.getsockname()[1]
    command = [sys.executable, "-m", "latentcode", "explore", *map(str, folders),
               "--port", str(port), "--no-browser", *options]
    with log.open("w", encoding="utf-8") as file:
        process = subprocess.Popen(command, env={**os.environ, "LATENTCODE_CACHE": str(cache)},
                                   stdout=file, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            until = time.monotonic() + PATIENCE
            while True:
                try:
                    socket.create_connection(("localhost", port), timeout=1.0).close()
                    break
                except OSError:
                    time.sleep(0.02)
                if time.monotonic() > until or process.poll() is not None:
                    raise BrowserError(f"the explorer does not answer on port {port}: "
                                       f"{log.read_text(encoding='utf-8')[-2_000:]}")
            yield Server(port)
        finally:
            # As Ctrl-C does: everything that the terminal has started.
            for how in (signal.SIGINT, signal.SIGKILL):
                with suppress(ProcessLookupError, subprocess.TimeoutExpired):
                    os.killpg(process.pid, how)
                    process.wait(timeout=20.0)
                if process.poll() is not None:
                    break


def wait_for_picture(page: Page, chart: str = ".st-key-map") -> None:
    """Return when the points of the picture have been painted; chart: where it is, in CSS."""
    page.wait_for_function(DRAWN, arg=chart, timeout=1e3 * PATIENCE)


def settle(page: Page) -> None:
    """Return when nothing on the page waits for an update."""
    page.wait_for_function(SETTLED, timeout=1e3 * PATIENCE)
    page.evaluate(PAINTED)


def lasso(page: Page, radius: float, *, x: float = 0.4, y: float = 0.5) -> float:
    """Draw a circle around points with the mouse.

    Args:
        page: The page of the picture.
        radius: In pixels.
        x: Its centre, as a share of the picture's width.
        y: The same, as a share of its height.

    Returns:
        Seconds from letting go to when every panel shows the new selection.
    """
    area = page.locator(".lc-field canvas").first.bounding_box()
    if area is None:
        raise BrowserError("there is no picture to draw in")
    before = page.evaluate(HEADLINE)
    middle = (area["x"] + x * area["width"], area["y"] + y * area["height"])
    corners = [(middle[0] + radius * math.cos(turn / 12 * math.pi),
                middle[1] + radius * math.sin(turn / 12 * math.pi)) for turn in range(25)]
    page.mouse.move(*corners[0])
    page.mouse.down()
    for corner in corners[1:]:
        page.mouse.move(*corner)
        page.evaluate(PAINTED)  # a busy browser makes one movement of all between two frames
    page.wait_for_timeout(150)  # the outline follows the mouse with a delay
    page.mouse.up()
    begin = time.perf_counter()
    page.wait_for_function(f"before => ({HEADLINE})() !== before", arg=before,
                           timeout=1e3 * PATIENCE)
    settle(page)
    return time.perf_counter() - begin
