"""Is a damaged folder of codes refused by an error that names it, whatever the damage?"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from small_codes import assert_same, make_codes

from latentcode.codes import LatentCodes
from latentcode.errors import ArtifactError
from latentcode.files.storage import checksum, read_tensors, write_tensors

pytestmark = pytest.mark.usefixtures("unchecked_signatures")


def edit_meta(**changes: Any) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        path = folder / "meta.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    return edit


def edit_tensors(change: Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]
                 ) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        path, meta = folder / "codes.safetensors", folder / "meta.json"
        write_tensors(path, change(read_tensors(path)))
        data = json.loads(meta.read_text())
        data["sha256"][path.name] = checksum(path)
        meta.write_text(json.dumps(data))
    return edit


def edit_labels(change: Callable[[pd.DataFrame], pd.DataFrame]) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        path, meta = folder / "labels.parquet", folder / "meta.json"
        change(pd.read_parquet(path)).to_parquet(path)
        data = json.loads(meta.read_text())
        data["sha256"][path.name] = checksum(path)
        meta.write_text(json.dumps(data))
    return edit


def flip(name: str) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        content = bytearray((folder / name).read_bytes())
        content[len(content) // 2] ^= 1
        (folder / name).write_bytes(content)
    return edit


def without(key: str) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        path = folder / "meta.json"
        data = json.loads(path.read_text())
        del data[key]
        path.write_text(json.dumps(data))
    return edit


def remove(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def halve(name: str) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(content[:len(content) // 2])
    return edit


def replace_meta(content: str) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        (folder / "meta.json").write_text(content)
    return edit


PAIR = {"name": "a", "description": "b", "token": None}
DAMAGE = {
    "no meta": (remove("meta.json"), r"meta\.json is missing"),
    "no tensors": (remove("codes.safetensors"), r"codes\.safetensors is missing"),
    "no labels": (remove("labels.parquet"), r"labels\.parquet is missing"),
    "half a meta": (halve("meta.json"), r"meta\.json is not readable JSON"),
    "half the tensors": (halve("codes.safetensors"), r"codes\.safetensors was damaged"),
    "half the labels": (halve("labels.parquet"), r"labels\.parquet was damaged"),
    "a bit of a tensor": (flip("codes.safetensors"), r"codes\.safetensors was damaged or changed"),
    "a bit of the labels": (flip("labels.parquet"), r"labels\.parquet was damaged or changed"),
    "no checksum": (edit_meta(sha256={}), r"has sha256 {}; expected those of codes\.saf"),
    "checksum a number": (edit_meta(sha256=5), r"has sha256 5; expected those of"),
    "meta is a list": (replace_meta("[1, \"a\"]"), r"is of format and version None; expected"),
    "meta is a number": (replace_meta("5"), "is of format and version None; expected"),
    "meta is null": (replace_meta("null"), "is of format and version None; expected"),
    "another version": (edit_meta(format_version=4), r"\('latentcode.codes', 4\); expected .* 3\)"),
    "another format": (edit_meta(format="other"), r"version \('other', 3\); expected"),
    "unknown key": (edit_meta(extra=1), r"has keys \[.*'extra'.*\]; expected"),
    "missing key": (without("layers"), r"has keys .*; expected \[.*'layers'"),
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
    "more labels": (edit_labels(lambda t: pd.DataFrame({"a": np.zeros(2_000_000)})),
                    r"labels\.parquet holds 2,000,000 rows; expected 12"),
}


@pytest.mark.parametrize(("damage", "message"), [
    pytest.param(*case, id=name) for name, case in DAMAGE.items()])
def test_a_damaged_folder_is_an_artifact_error(
    tmp_path: Path, damage: Callable[[Path], None], message: str
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
    meta = json.loads((folder / "meta.json").read_text())
    meta["sha256"][name] = "0"
    (folder / "meta.json").write_text(json.dumps(meta))
    assert_same(LatentCodes.load(folder, verify=False), make_codes())
    with pytest.raises(ArtifactError, match=f"{name} was damaged or changed"):
        LatentCodes.load(folder)
    halve(name)(folder)
    with pytest.raises(ArtifactError, match=r"damaged|not a readable safetensors"):
        LatentCodes.load(folder, verify=False)


@pytest.mark.parametrize("name", ["codes.safetensors", "labels.parquet", "meta.json"])
def test_random_damage_is_an_artifact_error_or_harmless(tmp_path: Path, name: str) -> None:
    folder = make_codes().save(tmp_path / "codes")
    whole = (folder / name).read_bytes()
    rng = np.random.default_rng(0)
    refused = 0
    for trial in range(120):
        content = bytearray(whole[:rng.integers(len(whole))] if trial % 3 == 0 else whole)
        if content:
            content[rng.integers(len(content))] ^= 1 << int(rng.integers(8))
        (folder / name).write_bytes(content)
        try:
            LatentCodes.load(folder)
        except ArtifactError:
            refused += 1
    # No truncated file is read, and no changed bit of the two with a checksum goes unnoticed.
    assert refused >= (40 if name == "meta.json" else 120)


def test_a_missing_folder_is_an_artifact_error(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"codes folder .*none does not exist"):
        LatentCodes.load(tmp_path / "none")
    (tmp_path / "file").write_text("")
    with pytest.raises(ArtifactError, match=r"codes folder .*file does not exist"):
        LatentCodes.load(tmp_path / "file")
