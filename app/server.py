"""Starts the explorer: a Streamlit server that only this machine can reach."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from latentcode.app import assets
from latentcode.app.data.catalog import GIVEN, ROOTS, runs_and_codes
from latentcode.app.language.given import VARIABLE as LANGUAGE
from latentcode.app.language.given import Given
from latentcode.app.settings import HOSTS, STREAMLIT_THEME
from latentcode.errors import ConfigError, check
from latentcode.registry import in_environment

ADDRESS = "localhost"
FIRST_PORT = 8501
PORTS = 100
"""How many ports are tried if none was asked for."""

OPTIONS: dict[str, str] = {
    "server.address": ADDRESS,
    "server.fileWatcherType": "none",
    "server.runOnSave": "false",
    "browser.gatherUsageStats": "false",
    # Otherwise the value of every bare expression in main.py is shown on the page.
    "runner.magicEnabled": "false",
    # Otherwise every click ends with a search of all memory for garbage, before which the page is
    # not told that it is ready: 0.2 seconds with torch loaded. Python searches when it needs to.
    "runner.postScriptGC": "false",
    # Otherwise tracebacks go to the standard output, which nobody sees.
    "logger.enableRich": "false",
    # Widgets have a default, for the URL, and a value in the session, from another page.
    "global.disableWidgetStateDuplicationWarning": "true",
    "client.showErrorDetails": "none",
    "client.toolbarMode": "viewer",
    "client.showSidebarNavigation": "false",
    # On a machine that never ran Streamlit the server would wait for an address to be typed.
    "server.showEmailPrompt": "false",
}


def command(port: int, *, browser: bool) -> list[str]:
    """Return the command that runs the server."""
    options = {**OPTIONS, **STREAMLIT_THEME, "server.port": str(port),
               "server.headless": "false" if browser else "true"}
    application = Path(__file__).with_name("application.py")
    return [sys.executable, "-m", "streamlit", "run", str(application),
            *(f"--{name}={value}" for name, value in options.items()),
            *(f"--server.allowedHosts={host}" for host in HOSTS)]


def environment(
    folders: Sequence[str | Path], language: Given | None = None, *, given: bool = True
) -> dict[str, str]:
    """Return the environment of the server: the folders that it may read, what it imports, and the
    language models.

    given  whether somebody has named the folders
    """
    known = {name: value for name, value in os.environ.items() if name != LANGUAGE}
    # Else threads spin while they wait for each other, on cores that others need.
    return {"OMP_WAIT_POLICY": "PASSIVE", **known, **in_environment(),
            GIVEN: "yes" if given else "",
            ROOTS: json.dumps([str(Path(folder).resolve()) for folder in folders]),
            **({} if language is None else {LANGUAGE: language.to_json()})}


def serve(
    folders: Sequence[str | Path] = (), *, port: int | None = None, browser: bool = True,
    language: Given | None = None,
) -> int:
    """Run the explorer until it is interrupted, and return its exit status.

    folders  what it may read beside the zoo: runs, codes, or folders that hold some; default: the
             folder it is started in
    port     default: the first free one from 8501
    language  language models and texts, which have pages of their own, before the others

    `ConfigError` for a folder that does not exist or is a file, a port that is taken, and if
    Streamlit or Plotly is not installed.
    """
    for package in ("streamlit", "plotly"):
        check(find_spec(package) is not None, f"the explorer needs {package}, which is not "
              "installed; expected latentcode[app] (pip install 'latentcode[app]')", ConfigError)
    assets.script()
    given = bool(folders)
    folders = tuple(folders) or (() if language is not None else (Path.cwd(),))
    for folder in map(Path, folders):
        check(folder.is_dir(), f"{folder} is a file; expected the folder of a run or of codes, or "
              "one that contains some" if folder.exists() else f"folder {folder} does not exist; "
              "of a language model expected --texts with a file, too", ConfigError)
        check(not (folder / "config.json").is_file(), f"{folder} is a language model; expected "
              "--texts with a file, too: latentcode explore MODEL --texts texts.txt", ConfigError)
        check(not given or any(runs_and_codes(folder)), f"{folder} holds neither runs nor codes; "
              "expected what `latentcode train` or `latentcode extract` has written, or a folder "
              "that contains some", ConfigError)
    chosen = free_port() if port is None else port
    check(0 < chosen < 65_536, f"port is {port}; expected 1 to 65535", ConfigError)
    check(_is_free(chosen), f"port {chosen} is taken; expected a free one, or none, which finds "
          "one", ConfigError)
    print(f"explorer: http://{ADDRESS}:{chosen} (Ctrl-C stops it)", flush=True)
    server = subprocess.Popen(command(chosen, browser=browser), stdout=subprocess.DEVNULL,
                              env=environment(folders, language, given=given))
    in_charge = threading.current_thread() is threading.main_thread()
    if in_charge:
        # Whoever ends the launcher wants the server to end.
        before = signal.signal(signal.SIGTERM, lambda *_: server.terminate())
    try:
        return server.wait()
    except KeyboardInterrupt:
        # The terminal interrupts the server, too, and it closes its sessions.
        return server.wait()
    finally:
        server.terminate()
        if in_charge:
            signal.signal(signal.SIGTERM, before)


def free_port() -> int:
    """Return the first port from 8501 that nothing listens on."""
    for port in range(FIRST_PORT, FIRST_PORT + PORTS):
        if _is_free(port):
            return port
    raise ConfigError(f"no port from {FIRST_PORT} to {FIRST_PORT + PORTS - 1} is free; expected "
                      "--port with another")


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
