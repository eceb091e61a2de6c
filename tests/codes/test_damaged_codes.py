"""Is a damaged folder of codes refused by an error that names it, whatever the damage?"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from disk import flip
from small_codes import assert_same, make_codes

from latentcode.codes import LatentCodes
from latentcode.errors import ArtifactError
from latentcode.files.storage import checksum, read_tensors, write_tensors

pytestmark = pytest.mark.usefixtures("unchecked_signatures")


Edit = Callable[[Path], None]


def edit_meta(*without: str, **changes: Any) -> Edit:
    def edit(folder: Path) -> None:
        path = folder / "meta.json"
        meta = {**json.loads(path.read_text()), **changes}
        path.write_text(json.dumps({key: meta[key] for key in meta if key not in without}))
    return edit


def sealed(name: str, write: Edit) -> Edit:
    """Write another file, with its right checksum."""
    def edit(folder: Path) -> None:
        write(folder / name)
        known = json.loads((folder / "meta.json").read_text())["sha256"]
        edit_meta(sha256={**known, name: checksum(folder / name)})(folder)
    return edit


def edit_tensors(change: Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]) -> Edit:
    return sealed("codes.safetensors", lambda path: write_tensors(path, change(read_tensors(path))))


def edit_bytes(name: str, change: Callable[[bytes], bytes]) -> Edit:
    return lambda folder: (folder / name).write_bytes(change((folder / name).read_bytes())) and None


def halve(content: bytes) -> bytes:
    return content[:len(content) // 2]


PAIR = {"name": "a", "description": "b", "token": None}
FILES = {"meta.json": "is not readable JSON", "codes.safetensors": "was damaged",
         "labels.parquet": "was damaged"}
DAMAGE: dict[str, tuple[Edit, str]] = {
    **{f"no {name}": (lambda folder, name=name: (folder / name).unlink(), f"{name} is missing")
       for name in FILES},
    **{f"half of {name}": (edit_bytes(name, halve), f"{name} {said}")
       for name, said in FILES.items()},
    **{f"a bit of {name}": (lambda folder, name=name: flip(folder / name),
                               f"{name} was damaged or changed")
       for name in FILES if name != "meta.json"},
    "no checksum": (edit_meta(sha256={}), r"has sha256 {}; expected those of codes\.saf"),
    "checksum a number": (edit_meta(sha256=5), r"has sha256 5; expected those of"),
    "meta is a list": (edit_bytes("meta.json", lambda _: b"[1]"), "is of format None"),
    "another version": (edit_meta(format_version=4), r"latentcode\.codes, version 4 .*; convert"),
    "another format": (edit_meta(format="other"), r"of format 'other'; expected latentcode\.codes"),
    "unknown key": (edit_meta(extra=1), r"has keys \[.*'extra'.*\]; expected"),
    "missing key": (edit_meta("layers"), r"has keys .*; expected \[.*'layers'"),
    "meta of meta": (edit_meta(meta=[1]), r"has meta \[1\]; expected a mapping"),
    "fewer layers": (edit_meta(layers=[0]), "damaged: scores have shape"),
    "layers a number": (edit_meta(layers=5), "damaged"),
    "fewer pairs": (edit_meta(pairs=[PAIR]), "damaged: scores have shape"),
    "pair without name": (edit_meta(pairs=[{"token": 1}] * 3), "damaged: .*name"),
    "pair with more": (edit_meta(pairs=[{**PAIR, "colour": 1}] * 3), "damaged: .*colour"),
    "pairs are text": (edit_meta(pairs=["a", "b", "c"]), "damaged"),
    "pair named by a number": (edit_meta(pairs=[{**PAIR, "name": 1}] * 3),
                               r"damaged: pairs\[0\]\.name is 1"),
    "layers are text": (edit_meta(layers=["0", "2"]), "damaged: layers.*'0'"),
    "query out of range": (edit_meta(query_of_pair=[0, 1, 7]), "damaged: residuals"),
    "query is text": (edit_meta(query_of_pair=["a", "b", "c"]), "damaged"),
    "fewer instances": (edit_tensors(lambda t: {k: v[:, :, 1:] for k, v in t.items()}),
                        r"damaged: labels\.parquet holds 12 rows; expected 11, one per"),
    "fewer residuals": (edit_tensors(lambda t: {**t, "residuals": t["residuals"][:, :, 1:]}),
                        "damaged: residuals have shape"),
    "unknown tensor": (edit_tensors(lambda t: {**t, "more": t["scores"]}),
                       r"holds \['more', 'residuals', 'scores'\]; expected scores"),
    "no scores": (edit_tensors(lambda t: {"residuals": t["residuals"]}),
                  r"holds \['residuals'\]; expected scores"),
    "another type": (edit_tensors(lambda t: {k: v.astype(np.float64) for k, v in t.items()}),
                     "as F64; expected F32"),
    "axes a number": (edit_meta(axes={"scores": 5, "residuals": 5}), "damaged"),
    "axes missing": (edit_meta(axes={}), "damaged: 'scores'"),
    "other axes": (edit_meta(axes={"scores": ["a", "b", "c", "d"]}), "damaged: .*not in list"),
    "axes in another order": (edit_meta(axes={
        "scores": ["instance", "layer", "pair", "head"],
        "residuals": ["instance", "layer", "query", "d_model"]}), "damaged: labels"),
    "more labels": (sealed("labels.parquet", lambda path: pd.DataFrame({
        "a": np.zeros(2_000_000)}).to_parquet(path)),
                    r"labels\.parquet holds 2,000,000 rows; expected 12"),
}


@pytest.mark.parametrize(("damage", "message"), [
    pytest.param(*case, id=name) for name, case in DAMAGE.items()])
def test_a_damaged_folder_is_an_artifact_error(
    tmp_path: Path, damage: Edit, message: str
) -> None:
    folder = make_codes().save(tmp_path / "codes")
    damage(folder)
    with pytest.raises(ArtifactError, match=message) as raised:
        LatentCodes.load(folder)
    assert str(folder) in str(raised.value)


@pytest.mark.parametrize("name", ["codes.safetensors", "labels.parquet"])
def test_checksums_can_be_left_out(tmp_path: Path, name: str) -> None:
    """What fits its format loads then, whatever it says; what does not is refused all the same."""
    folder = make_codes().save(tmp_path / "codes")
    known = json.loads((folder / "meta.json").read_text())["sha256"]
    edit_meta(sha256={**known, name: "0"})(folder)
    assert_same(LatentCodes.load(folder, verify=False), make_codes())
    with pytest.raises(ArtifactError, match=f"{name} was damaged or changed"):
        LatentCodes.load(folder)
    edit_bytes(name, halve)(folder)
    with pytest.raises(ArtifactError, match=r"damaged|not a readable safetensors"):
        LatentCodes.load(folder, verify=False)


def test_a_missing_folder_is_an_artifact_error(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"codes folder .*none does not exist"):
        LatentCodes.load(tmp_path / "none")
    (tmp_path / "file").write_text("")
    with pytest.raises(ArtifactError, match=r"codes folder .*file does not exist"):
        LatentCodes.load(tmp_path / "file")
