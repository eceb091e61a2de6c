"""Kills training runs at every moment, resumes them and compares them with an unkilled one.

Usage, with tests/helpers on PYTHONPATH: kill_and_resume.py FOLDER. A moment is the number of a
call that writes to disk (flush, rename, delete): the process kills itself right before it, and
where it was about to flush a file, the end of that file is lost as well. What is resumed is killed
again, half as many calls later, and resumed once more. Prints one JSON object. The imports are paid
once: every run is a fork of this process.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from disk import trained

from latentcode.config import LogicConfig, RunConfig, TrainingConfig
from latentcode.models.config import ModelConfig
from latentcode.runs import Run
from latentcode.training import train

CONFIG = RunConfig(
    LogicConfig(n_variables=2, n_terms=1, n_examples=4, ood_fraction=0.0, unknown_fraction=0.0),
    ModelConfig(d_input=3, n_layers=1, d_model=4, n_heads=2, d_head=2, d_head_v=2, d_mlp=4,
                n_buckets=4, max_distance=4, attention_dropout=0.2),
    TrainingConfig(steps=4, batch_size=4, warmup_steps=1, eval_every=2, eval_instances=4,
                   log_every=3, checkpoint_every=2, keep_checkpoints=1))


def fork(work: Callable[[], object]) -> int:
    """Run `work` in a child process and return the status of its end."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work()
            status = 0
        finally:
            sys.stderr.flush()
            os._exit(status)
    return os.waitpid(child, 0)[1]


def watch_writes(on_write: Callable[[str, Any], None]) -> None:
    """Call `on_write` before everything in this process that makes a write final."""
    def watch(module: Any, name: str) -> None:
        real = getattr(module, name)

        def watched(*args: Any, **options: Any) -> Any:
            # Deleting a temporary file that was renamed long ago changes nothing.
            if name != "unlink" or "dir_fd" in options:
                on_write(name, args[0])
            return real(*args, **options)

        setattr(module, name, watched)

    for name in ("fsync", "rename", "replace", "unlink"):
        watch(os, name)


def tear(descriptor: int) -> None:
    """Lose the last bytes of a file that was not flushed yet."""
    status = os.fstat(descriptor)
    if stat.S_ISREG(status.st_mode):
        os.truncate(f"/proc/self/fd/{descriptor}", max(0, status.st_size - 10))


def killed_at(moment: int, work: Callable[[], object]) -> None:
    """Kill this process right before a write of some work; return where it makes fewer."""
    left = moment

    def on_write(name: str, target: Any) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            if name == "fsync":
                tear(target)
            os.kill(os.getpid(), signal.SIGKILL)

    watch_writes(on_write)
    work()


def count_writes(out: Path, report: Path) -> None:
    calls: list[str] = []
    watch_writes(lambda name, target: calls.append(name))
    train(CONFIG, out, progress=False)
    report.write_text(str(len(calls)))


def go_on(out: Path) -> None:
    """What a user does after a crash: resume the run, or start it if there is none."""
    if out.exists():
        run = Run.open(out)
        for step in run.checkpoints():
            run.load_model(step)
        train(CONFIG, out, resume=True, progress=False)
    else:
        train(CONFIG, out, progress=False)


def main(folder: Path) -> None:
    train(CONFIG, folder / "warm", progress=False)  # whatever is imported late is paid here
    assert fork(lambda: count_writes(folder / "whole", folder / "calls")) == 0
    calls, expected = int((folder / "calls").read_text()), trained(folder / "whole")
    failures: list[str] = []
    for moment in range(1, calls + 1):
        place = folder / f"killed{moment}"
        place.mkdir()
        out = place / "run"
        again = partial(go_on, out)
        if fork(partial(killed_at, moment, again)) != signal.SIGKILL:
            failures.append(f"{moment}: not killed")
        elif fork(partial(killed_at, moment // 2 + 1, again)) not in (0, signal.SIGKILL):
            failures.append(f"{moment}: cannot go on")
        elif fork(again) != 0:
            failures.append(f"{moment}: cannot go on twice")
        elif trained(out) != expected:
            failures.append(f"{moment}: another result")
        elif list(place.rglob(".tmp-*")):
            failures.append(f"{moment}: leaves {list(place.rglob('.tmp-*'))}")
        shutil.rmtree(place)
    print(json.dumps({"calls": calls, "failures": failures}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
