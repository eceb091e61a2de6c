"""Does every example on the pages run, in the order in which it stands there?

Examples run at a reduced size, and as they are written otherwise. Those of any_model.md,
concepts.md and transformer_lens.md, and those on attention, patches and probes of one's own, have
tests of their own, which hold what they give, that of official.md needs the official code, which
no test has, and those of share.md need a hub (tests/hub).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import pytest
from places import EXAMPLE, ROOT

import latentcode as lc

BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ELSEWHERE = {"any_model.md", "concepts.md", "language_model.md", "official.md",
             "own_attention.md", "own_patch.md", "own_probe.md", "share.md", "transformer_lens.md"}
GUIDES = sorted(page for page in (ROOT / "docs").glob("*.md")
                if page.name not in ELSEWHERE and BLOCK.search(page.read_text(encoding="utf-8")))
CARDS = [ROOT / "models" / "zoo" / name / "README.md"
         for name in ("", "logic-hyla", "sraven-softmax", "text-linear")]
"""Of models one of each task: the examples of all cards differ in the name alone."""
SMALLER: dict[str, dict[str, Any]] = {
    "attribute": {"n": 48, "n_patched": 8},
    "decode": {"n_train": 300, "n_heldout": 300, "n_shuffles": 2, "n_bootstrap": 100},
    "das": {"n_train": 64, "n": 32, "steps": 20},
    "intervene": {"n": 16},
}
"""Function -> arguments that take the place of those on a page, or of their defaults."""


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Let functions do less, and what they write lie in a folder of the test."""
    def smaller(function: Callable[..., Any], arguments: dict[str, Any]) -> Callable[..., Any]:
        def less(*args: Any, **kwargs: Any) -> Any:
            # What a page has trained, it has trained too little here to answer anything.
            own = (function.__name__ == "intervene" and len(args) == 1
                   and "interventions" not in kwargs and isinstance(args[0], lc.Run))
            return function(*("logic-hyla",) if own else args, **kwargs | arguments)

        return wraps(function)(less)

    for name, arguments in SMALLER.items():
        monkeypatch.setattr(lc, name, smaller(getattr(lc, name), arguments), raising=False)
    preset = lc.preset
    monkeypatch.setattr(lc, "preset", lambda name, *args, **kwargs: preset(
        {"small": "smoke"}.get(name, name), *args, **kwargs))
    monkeypatch.chdir(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("page", [ROOT / "README.md", *GUIDES, *CARDS],
                         ids=lambda page: str(page.relative_to(ROOT)))
def test_examples_run(
    small: None, own_names: Callable[[], None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
    page: Path,
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    # What a page imports from here is gone afterwards: other tests have a file of that name.
    monkeypatch.setitem(sys.modules, "modadd", None)
    del sys.modules["modadd"]
    (tmp_path / "modadd.py").write_text(EXAMPLE.read_text(encoding="utf-8"), encoding="utf-8")
    blocks = BLOCK.findall(page.read_text(encoding="utf-8"))
    assert blocks
    names: dict[str, Any] = {"__name__": "example"}
    for block in blocks:
        if "@lc.register_task" not in block:  # the file itself, which the next block imports
            exec(block, names)
