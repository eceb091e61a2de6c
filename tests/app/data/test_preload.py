"""Is what other pages need loaded once, quietly, and without standing in anybody's way?"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from threading import Event, Lock

import pytest

from latentcode.app.data import preload
from latentcode.app.data.catalog import Entry

NOTHING = Entry("a", Path("a"), "codes")


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that has loaded nothing yet."""
    monkeypatch.setattr(preload, "_once", Lock())
    monkeypatch.setattr(preload, "_working", Event())
    monkeypatch.setattr(preload, "_ready", Event())
    monkeypatch.setattr(preload, "_loaded", Event())


def test_all_of_it_is_loaded_once(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(preload, "import_module", asked.append)
    thread = preload.in_background(NOTHING, "ood")
    assert thread is not None
    assert thread.daemon
    thread.join()
    assert asked == [*preload.MODULES]
    assert preload.in_background(NOTHING, "ood") is None


def test_what_cannot_be_loaded_is_left_to_the_page_that_needs_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(preload, "import_module", missing)
    thread = preload.in_background(NOTHING, "ood")
    assert thread is not None
    thread.join()
    assert capsys.readouterr() == ("", "")


@pytest.mark.slow
def test_it_loads_what_the_bench_needs() -> None:
    """In a process of its own, which has nothing yet: the modules exist, and the task is made.

    Neither torch's compiler nor the models of transformers, which take seconds, are among them.
    """
    code = ("import sys\n"
            "from latentcode.app.data import preload\n"
            "from latentcode.app.data.catalog import find_entry\n"
            "assert 'torch' not in sys.modules\n"
            "preload.in_background(find_entry('sraven-hyla', []), 'ood').join()\n"
            "assert not set(preload.MODULES) - set(sys.modules)\n"
            "assert any(name.startswith('latentcode.tasks.sraven') for name in sys.modules)\n"
            "from latentcode.prompts.language_models import check_bridged\n"
            "check_bridged(None)\n"
            "assert not {'torch._dynamo', 'transformers.modeling_utils'} & {*sys.modules}\n")
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_a_module_that_the_thread_is_importing_is_waited_for(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    half = ImportError("cannot import name 'a' from partially initialized module 'b'")
    assert not preload.was_half_loaded(half)
    asked: list[str] = []

    def slowly(name: str) -> None:
        Event().wait(0.05)
        asked.append(name)

    monkeypatch.setattr(preload, "import_module", slowly)
    preload.in_background(NOTHING, "ood")
    assert preload.was_half_loaded(half)
    assert asked == [*preload.MODULES]
    assert not preload.was_half_loaded(ImportError("no module"))
