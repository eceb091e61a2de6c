"""Workers: an error stops nothing else, and a killed one is replaced."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest

import latentcode as lc
from latentcode.models.config import NORMALIZATIONS
from latentcode.sweep.executors import packed, unpacked
from latentcode.training import loop
from latentcode.training.loop import request_stop, stop_on_signals

PARENT = """
import json, os, signal, sys
from pathlib import Path
from latentcode.presets import preset
from latentcode.errors import TrainingError, UnknownNameError
from latentcode.sweep.executors import Workers

def work(job):
    [path] = job
    what = path.name.partition(" ")[2]
    with path.open("a") as file:
        file.write(f"{os.getpid()} {os.environ.get('SLOT')}\\n")
    begun = len(path.read_text().splitlines())
    if what == "killed once" and begun == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "stopped once" and begun == 1:
        raise SystemExit(143)
    if what == "killed always":
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "wrong":
        raise UnknownNameError("colour", "red", ["blue"])
    if what == "bug":
        {}["key"]

if __name__ == "__main__":
    out = Path(sys.argv[1])
    whats = ["good", "killed once", "wrong", "killed always", "bug", "stopped once", "good"]
    with Workers(work, [{"SLOT": "a"}, {"SLOT": "b"}]) as workers:
        for number, what in enumerate(whats):
            workers.submit({out / f"{number} {what}": preset("smoke")})
        outcomes = []
        while workers.n_pending:
            outcomes += workers.wait(5.0)
        workers.stop()
        workers.submit({out / "too late": preset("smoke")})
        assert workers.n_pending == 0
    print(json.dumps({next(iter(o.job)).name: [type(o.error).__name__, str(o.error)]
                      for o in outcomes}))
"""


@pytest.mark.slow
def test_what_becomes_of_jobs(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(PARENT)
    (tmp_path / "out").mkdir()
    done = subprocess.run([sys.executable, str(script), str(tmp_path / "out")],
                          capture_output=True, text=True, check=True, timeout=300)
    outcomes = json.loads(done.stdout)
    begun = {path.name: path.read_text().split("\n")[:-1]
             for path in (tmp_path / "out").iterdir()}
    assert set(outcomes) == set(begun)  # each job ends once, and nothing begins after `stop`
    for name in ("0 good", "1 killed once", "5 stopped once", "6 good"):
        assert outcomes[name] == ["NoneType", "None"]
    assert [len(begun[name]) for name in ("0 good", "1 killed once", "3 killed always",
                                          "5 stopped once")] == [1, 2, 4, 2]
    assert outcomes["2 wrong"] == [
        "UnknownNameError", "unknown colour 'red'; expected one of: blue"]
    error, message = outcomes["3 killed always"]
    assert error == "TrainingError"
    assert "ended 4 times before it was done, the last time with exit code -9" in message
    error, message = outcomes["4 bug"]
    assert error == "RuntimeError"
    assert "KeyError: 'key'" in message
    assert '{}["key"]' in message  # the traceback comes along
    assert {line.split()[1] for lines in begun.values() for line in lines} == {"a", "b"}


def test_a_worker_imports_what_registers_a_job_s_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_names: Callable[[], None]
) -> None:
    (tmp_path / "sharpened.py").write_text(
        "import latentcode as lc\n"
        "lc.register_normalization('sharp', lambda scores: (2 * scores).softmax(-1))\n")
    monkeypatch.syspath_prepend(tmp_path)
    import_module("sharpened")
    config = lc.preset("smoke")
    job = packed({tmp_path: replace(config, model=replace(config.model, normalization="sharp"))})
    assert job[0] == (("sharpened", str(tmp_path)),)
    own_names()
    del sys.modules["sharpened"]
    assert "sharp" not in NORMALIZATIONS
    unpacked(job)
    assert "sharp" in NORMALIZATIONS


def test_a_request_to_stop_never_breaks_off_an_update(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "_stop_all", threading.Event())
    with stop_on_signals() as stop:
        assert not stop.requested
        request_stop()
        request_stop()
        assert stop.requested
        # The terminal's Ctrl-C may come after the request for the same stop.
        signal.raise_signal(signal.SIGINT)
        assert isinstance(stop.exception(""), KeyboardInterrupt)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)  # a second one means at once
    with stop_on_signals() as stop:  # training that begins later stops as well
        assert stop.requested
        exception = stop.exception("")
        assert isinstance(exception, SystemExit)
        assert exception.code == 143
