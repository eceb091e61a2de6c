"""A page of a few lines in a real server, for what is shown on no page of the explorer alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

from latentcode.app.charts.theme import STREAMLIT_THEME
from latentcode.app.data.catalog import ROOTS
from latentcode.experiments.benchmarks.browser import PATIENCE, Server, free_port


@contextmanager
def serving_page(source: str, root: Path, folders: Path) -> Iterator[Server]:
    """Serve a page with the explorer's look and a folder of runs and codes until the block ends."""
    page, log, port = root / "page.py", root / "page.log", free_port()
    page.write_text(source, encoding="utf-8")
    options = {"server.port": port, "server.headless": "true", "server.address": "localhost",
               "server.fileWatcherType": "none", "browser.gatherUsageStats": "false",
               **STREAMLIT_THEME}
    command = [sys.executable, "-m", "streamlit", "run", str(page),
               *(word for name, value in options.items() for word in (f"--{name}", str(value)))]
    environment = {**os.environ, "LATENTCODE_CACHE": str(root / "cache"),
                   ROOTS: json.dumps([str(folders)])}
    with log.open("w", encoding="utf-8") as file, subprocess.Popen(
            command, env=environment, stdout=file, stderr=subprocess.STDOUT) as process:
        try:
            _wait_for(f"http://localhost:{port}/_stcore/health", log)
            yield Server(port, log)
        finally:
            process.terminate()


def _wait_for(address: str, log: Path) -> None:
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        try:
            urlopen(address, timeout=1.0).close()
            return
        except OSError:
            time.sleep(0.1)
    raise AssertionError(f"the page does not answer: {log.read_text(encoding='utf-8')[-2_000:]}")
