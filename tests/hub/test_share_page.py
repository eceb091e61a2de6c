"""Do the examples of share.md run, on a hub of this machine?"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hub_server import Hub
from places import ROOT

import latentcode as lc

# huggingface_hub uploads in a way that its client finds old.
pytestmark = [pytest.mark.slow,
              pytest.mark.filterwarnings("ignore:Use 'content=<...>':DeprecationWarning")]


def test_examples_run(
    hub: Hub, smoke_run: Callable[[str, str], lc.Run], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    smoke_run("logic", "hyla").publish("runs/hyla")
    monkeypatch.setattr(lc, "decode", partial(lc.decode, n_train=400, n_heldout=400),
                        raising=False)
    page = (ROOT / "docs" / "share.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    for block in re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
        commit = f'revision="{names.get("address", "@").split("@")[1]}"'  # the hub here has no tags
        exec(block.replace('revision="v1"', commit).replace("10_000", "200"), names)
    assert names["run"].loaded_from == names["address"]
    assert len(names["codes"]) == 200
    assert {name for _, name in hub.repos} == {"user/hyla", "user/hyla-codes"}
