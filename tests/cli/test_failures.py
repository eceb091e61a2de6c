"""What this machine does to a command: one line, whatever it was, and no traceback."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from latentcode.cli import commands, main
from latentcode.errors import RunError

CPU = ("[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: "
       "you tried to allocate 40000000000 bytes. Error code 12 (Cannot allocate memory)")
GPU = ("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB of "
       "which 1.10 GiB is free.")
NUMPY = "Unable to allocate 7.28 TiB for an array with shape (1000000, 1000000)"
ADVICE = "expected fewer instances, or a smaller model"


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
            ) -> Callable[[BaseException], tuple[object, str]]:
    """Run a command in which an error is raised; return its exit status and what it says."""
    def run_command(error: BaseException) -> tuple[object, str]:
        def show(folder: str) -> None:
            raise error

        monkeypatch.setattr(commands, "show", show)
        with pytest.raises(SystemExit) as stopped:
            main(["show", "runs/hyla"])
        return stopped.value.code, capsys.readouterr().err

    return run_command


def noted(error: BaseException, note: str) -> BaseException:
    error.add_note(note)
    return error


@pytest.mark.parametrize(("error", "said"), [
    (MemoryError(), f"error: this machine has not enough memory; {ADVICE}\n"),
    (MemoryError(NUMPY),
     f"error: this machine has not enough memory to allocate 7.28 TiB; {ADVICE}\n"),
    (RuntimeError(CPU),
     f"error: this machine has not enough memory to allocate 37.3 GiB; {ADVICE}\n"),
    (RuntimeError(GPU), f"error: the GPU has not enough memory to allocate 2.00 GiB; {ADVICE}\n"),
    (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "codes/x"),
     "error: cannot read or write codes/x: No space left on device\n"),
    (PermissionError(errno.EACCES, os.strerror(errno.EACCES), "/root/runs"),
     "error: cannot read or write /root/runs: Permission denied\n"),
    (OSError(errno.EMFILE, os.strerror(errno.EMFILE), "x"), "error: cannot read or write x: Too "
     "many open files (ulimit -n says how many may be)\n"),
    (noted(RunError("cannot write x:\n  the disk is full"), "the rest is kept"),
     "error: cannot write x: the disk is full; the rest is kept\n"),
    (KeyboardInterrupt(), "interrupted\n"),
    (noted(KeyboardInterrupt(), "the first 4,096 instances are kept in x.partial"),
     "interrupted; the first 4,096 instances are kept in x.partial\n"),
])
def test_what_ends_a_command_is_one_line(
    failing: Callable[[BaseException], tuple[object, str]], error: BaseException, said: str
) -> None:
    assert failing(error) == (130 if isinstance(error, KeyboardInterrupt) else 2, said)


def test_a_mistake_of_ours_keeps_its_traceback(
    failing: Callable[[BaseException], tuple[object, str]]
) -> None:
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        failing(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))


def test_a_reader_that_has_gone_and_a_closed_output_are_no_errors() -> None:
    command = [sys.executable, "-m", "latentcode", "--help"]
    reader, writer = os.pipe()
    os.close(reader)
    gone = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, timeout=60)
    os.close(writer)
    assert (gone.returncode, gone.stderr) == (141, b"")
    closed = subprocess.run(["sh", "-c", '"$@" >&-', "sh", *command], capture_output=True,
                            timeout=60)
    assert (closed.returncode, closed.stderr) == (0, b"")


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_what_an_encoding_lacks_is_escaped(encoding: str) -> None:
    code = r"from latentcode.cli import open_streams; open_streams(); print('\u2227 \ud800')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60, check=True,
                          env=os.environ | {"PYTHONIOENCODING": encoding})
    assert done.stdout.decode(encoding).replace("∧", r"\u2227") == "\\u2227 \\ud800\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_an_output_that_is_full_is_one_line() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, "-m", "latentcode", "--help"], stdout=full,
                              stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr == "error: cannot read or write: No space left on device\n"
