"""Codes go to the hub and come back as they were."""

from __future__ import annotations

from pathlib import Path

import pytest
from disk import contents
from hub_server import Hub
from small_codes import assert_same, make_codes

import latentcode as lc

pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=<...>':DeprecationWarning")


def test_codes_come_back_as_they_were(hub: Hub, cache: Path, tmp_path: Path) -> None:
    codes = make_codes()
    address = codes.push_to_hub("user/codes")
    assert address.startswith("hf://datasets/user/codes@")
    back = lc.LatentCodes.load("hf://datasets/user/codes")
    assert back.meta["loaded_from"] == address
    saved = lc.LatentCodes.load(codes.save(tmp_path / "codes"))
    assert back.meta == {**saved.meta, "loaded_from": address}
    assert_same(lc.LatentCodes(back.scores, back.labels, back.pairs, back.layers, saved.meta,
                               back.residuals, back.query_of_pair), saved)
    [folder] = (cache / "datasets--user--codes/snapshots").iterdir()
    files = contents(folder)
    files.pop("manifest.json")
    assert files == contents(tmp_path / "codes")
