"""Do latent codes keep their labels, survive the disk, and refuse what does not fit?"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jaxtyping
import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow.parquet import ParquetFile

from latentcode.codes import LatentCodes
from latentcode.errors import ArtifactError, ConfigError, RunError, UnknownNameError
from latentcode.files.storage import checksum, read_tensors, write_tensors
from latentcode.tasks.pairs import Pair

property_test = settings(derandomize=True, deadline=None, max_examples=25,
                         suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module", autouse=True)
def unchecked_signatures() -> Iterator[None]:
    """Codes come from the disk and from notebooks, where no type checker guards them: the
    errors must be our own, not those that the tests' checks of signatures would raise first."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


def make_codes(
    n: int = 12, layers: tuple[int, ...] = (0, 2), heads: int = 3, residuals: bool = True,
    seed: int = 0
) -> LatentCodes:
    rng = np.random.default_rng(seed)
    pairs = (Pair("response.0->panel.7", "one", 0), Pair("response.1->panel.7", "two", 1),
             Pair("query->query", "three"))
    labels = pd.DataFrame({
        "rule_0": rng.choice(["sum", "difference ¬"], n), "rule_1": rng.integers(0, 3, n),
        "target": rng.random(n, dtype=np.float32), "split": np.full(n, "ood", dtype=object),
        "combination": rng.choice(["0 ∨ 1", "2 ∨ 3"], n)})
    return LatentCodes(
        rng.normal(size=(n, len(layers), 3, heads)).astype(np.float32), labels, pairs, layers,
        {"run": "my-run", "split": "ood", "seed": 3, "nested": {"a": [1, None, 0.5]}},
        rng.normal(size=(n, len(layers), 2, 5)).astype(np.float32) if residuals else None,
        (0, 1, 1) if residuals else ())


def assert_same(a: LatentCodes, b: LatentCodes) -> None:
    np.testing.assert_array_equal(a.scores, b.scores)
    assert a.scores.dtype == b.scores.dtype
    pd.testing.assert_frame_equal(a.labels, b.labels)
    assert (a.pairs, a.layers, dict(a.meta), a.query_of_pair) == (
        b.pairs, b.layers, dict(b.meta), b.query_of_pair)
    assert (a.residuals is None) == (b.residuals is None)
    if a.residuals is not None and b.residuals is not None:
        np.testing.assert_array_equal(a.residuals, b.residuals)


# --- Reading --------------------------------------------------------------------------------------


def test_select_picks_layer_and_pair_by_name() -> None:
    codes = make_codes()
    assert (len(codes), codes.n_heads) == (12, 3)
    for i, layer in enumerate(codes.layers):
        for j, pair in enumerate(codes.pairs):
            selected = codes.select(layer=layer, pair=pair.name)
            np.testing.assert_array_equal(selected, codes.scores[:, i, j])
            assert codes.residuals is not None
            np.testing.assert_array_equal(
                codes.select_residual(layer=layer, pair=pair.name),
                codes.residuals[:, i, (0, 1, 1)[j]])
    assert codes.pair("query->query") is codes.pairs[2]


def test_what_is_not_there_is_named_with_what_is() -> None:
    codes = make_codes()
    with pytest.raises(UnknownNameError, match="unknown layer 1; expected one of: 0, 2"):
        codes.select(layer=1, pair="query->query")
    for ask in (lambda: codes.select(layer=0, pair="q"), lambda: codes.pair("q"),
                lambda: codes.label("rule", pair="q"),
                lambda: codes.select_residual(layer=0, pair="q")):
        with pytest.raises(UnknownNameError, match=r"unknown pair 'q'.*query->query"):
            ask()
    with pytest.raises(UnknownNameError, match=r"unknown label 'colour'.*rule_0, rule_1, target"):
        codes.label("colour")
    with pytest.raises(ConfigError, match="no residual streams; extract them with residuals=True"):
        make_codes(residuals=False).select_residual(layer=0, pair="query->query")


def test_a_label_is_that_of_the_pairs_response() -> None:
    codes = make_codes()
    for token in (0, 1):
        found = codes.label("rule", pair=f"response.{token}->panel.7")
        pd.testing.assert_series_equal(found, codes.labels[f"rule_{token}"])
    pd.testing.assert_series_equal(
        codes.label("target", pair="response.1->panel.7"), codes.labels["target"])
    pd.testing.assert_series_equal(
        codes.label("rule_0", pair="response.1->panel.7"), codes.labels["rule_0"])
    for pair in (None, "query->query"):
        with pytest.raises(UnknownNameError, match="label 'rule'"):
            codes.label("rule", pair=pair)


def test_mean_by_is_the_mean_code_of_each_value() -> None:
    codes = make_codes(n=40)
    pair = "response.1->panel.7"
    means = codes.mean_by("rule", layer=2, pair=pair)
    assert means.index.name == "rule"
    assert list(means.columns) == ["head_0", "head_1", "head_2"]
    assert list(means.index) == sorted(set(codes.labels.rule_1))
    for value in means.index:
        wanted = codes.scores[(codes.labels.rule_1 == value).to_numpy(), 1, 1].mean(axis=0)
        np.testing.assert_allclose(means.loc[value], wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("index", [
    np.array([5, 0, 0]), range(3), [-1, 2], [], torch.tensor([4, 1]), torch.arange(12) > 6,
    [2, 3], slice(1, 9, 2), np.arange(12) > 6, np.zeros(12, dtype=bool),
    [True, False] * 6, pd.Series([False, True] * 6)])
def test_subset_keeps_instances_together(index: Any) -> None:
    codes = make_codes()
    part = codes[index]
    assert_same(codes.subset(index), part)
    rows = index if isinstance(index, slice) else np.asarray(index, None if len(index) else int)
    kept = np.arange(12)[rows]
    assert len(part) == len(kept)
    np.testing.assert_array_equal(part.scores, codes.scores[kept])
    assert part.residuals is not None
    assert codes.residuals is not None
    np.testing.assert_array_equal(part.residuals, codes.residuals[kept])
    pd.testing.assert_frame_equal(part.labels, codes.labels.iloc[kept].reset_index(drop=True))
    assert (part.pairs, part.layers) == (codes.pairs, codes.layers)
    np.testing.assert_array_equal(part.instances(), kept)
    assert {**part.meta, "instances": None} == {**codes.meta, "instances": None}


def test_a_part_of_codes_knows_its_instances(tmp_path: Path) -> None:
    codes = make_codes()
    assert "instances" not in codes[:7].meta  # the first, as a shorter extraction has them
    np.testing.assert_array_equal(codes[2:][::3][1:].instances(), [5, 8, 11])
    again = LatentCodes.load(codes[2:][::3].save(tmp_path / "part"))
    np.testing.assert_array_equal(again.instances(), [2, 5, 8, 11])
    with pytest.raises(ConfigError, match="meta names 2 instances; expected 12, one per row"):
        replace(codes, meta={**codes.meta, "instances": [1, 2]})


def test_a_number_picks_codes_of_one_instance() -> None:
    codes = make_codes(n=5)
    for number in (0, 3, -1, np.int64(2)):
        assert_same(codes[number], codes[[number]])
    assert [one.labels["target"].item() for one in codes] == codes.labels["target"].tolist()
    for number in (5, -6, [0, 5]):
        with pytest.raises(IndexError, match="expected numbers from -5 to 4"):
            codes[number]


@pytest.mark.parametrize(("index", "message"), [
    ("rule", "codes are indexed with 'rule'; expected a slice, a boolean mask, or numbers"),
    ([0.5], r"codes are indexed with \[0.5\]"), (None, "codes are indexed with None"),
    (True, "codes are indexed with True"), ([[0, 1]], r"codes are indexed with \[\[0, 1\]\]"),
    ((0, 1, 2, ["a"]), "codes are indexed with"), (["a"], "codes are indexed with"),
    (np.ones(4, bool), "the mask has 4 values; expected 12, one per instance")])
def test_what_is_no_index_is_said(index: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_codes()[index]


def test_to_pandas_is_long() -> None:
    codes = make_codes(n=4)
    table = codes.to_pandas()
    assert list(table.columns) == [
        "instance", "layer", "pair", *codes.labels.columns, "head_0", "head_1", "head_2"]
    assert len(table) == 4 * 2 * 3
    assert not table.duplicated(["instance", "layer", "pair"]).any()
    for row in table.to_dict("records"):
        code = codes.select(layer=row["layer"], pair=row["pair"])[row["instance"]]
        assert [row["head_0"], row["head_1"], row["head_2"]] == code.tolist()
        assert row["target"] == codes.labels["target"].to_numpy()[row["instance"]]


def test_it_shows_what_it_holds() -> None:
    codes = make_codes()
    assert repr(codes) == ("LatentCodes(12 instances, layers [0, 2], 3 pairs, 3 heads, with "
                           "residual streams; run my-run, split ood)")
    codes = replace(codes, meta={"run": "<b>"}, labels=codes.labels.assign(**{"<i>": "<u>" * 40}))
    page = codes._repr_html_()
    for text in ("response.0-&gt;panel.7", "&lt;b&gt;", "&lt;i&gt;"):
        assert text in page
    assert not re.search("<(b|i|u)>(?!LatentCodes)", page)
    cells = re.findall("<td>(.*)</td>", page.partition("such as")[2])
    assert cells[0::3] == ["rule_0", "rule_1", "target", "split", "combination", "&lt;i&gt;"]
    assert cells[1::3] == ["2", "3", "measurement", "1", "2", "1"]
    assert [float(end) for end in cells[8].split(" to ")] == pytest.approx(
        [codes.labels["target"].min(), codes.labels["target"].max()], rel=1e-3)
    assert cells[11] == "ood"
    assert "measurement" in codes[:0]._repr_html_()


@pytest.mark.parametrize(("change", "message"), [
    ({"layers": (0,)}, r"scores have shape \(12, 2, 3, 3\); expected \(12, 1, 3, heads\)"),
    ({"pairs": ()}, r"expected \(12, 2, 0, heads\)"),
    ({"labels": pd.DataFrame({"a": [1]})}, r"expected \(1, 2, 3, heads\)"),
    ({"scores": np.zeros((12, 2, 3), dtype=np.float32)}, r"scores have shape \(12, 2, 3\)"),
    ({"residuals": np.zeros((11, 2, 2, 5))}, r"residuals have shape \(11, 2, 2, 5\)"),
    ({"query_of_pair": (0, 1)}, r"query_of_pair \(0, 1\); expected"),
    ({"query_of_pair": (0, 1, 2)}, r"query_of_pair \(0, 1, 2\); expected"),
    ({"query_of_pair": (0, 1, -1)}, r"query_of_pair \(0, 1, -1\); expected"),
])
def test_shapes_that_disagree_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        replace(make_codes(), **change)


# --- The disk -------------------------------------------------------------------------------------


@property_test
@given(st.integers(0, 20), st.integers(1, 3), st.integers(1, 5), st.booleans(),
       st.integers(0, 99))
def test_round_trip(
    tmp_path: Path, n: int, n_layers: int, heads: int, residuals: bool, seed: int
) -> None:
    codes = make_codes(n, tuple(range(n_layers)), heads, residuals, seed)
    folder = codes.save(tmp_path / "codes", overwrite=True)
    assert sorted(p.name for p in folder.iterdir()) == [
        "codes.safetensors", "labels.parquet", "meta.json"]
    assert_same(LatentCodes.load(folder), codes)


def test_views_round_trip(tmp_path: Path) -> None:
    codes = make_codes()
    transposed = np.ascontiguousarray(codes.scores.transpose(3, 2, 1, 0)).transpose(3, 2, 1, 0)
    assert not transposed.flags.c_contiguous
    replace(codes, scores=transposed).save(tmp_path / "codes")
    assert_same(LatentCodes.load(tmp_path / "codes"), codes)


def test_existing_codes_are_replaced_on_request_alone(tmp_path: Path) -> None:
    old, new = make_codes(seed=0), make_codes(seed=1)
    old.save(tmp_path / "codes")
    with pytest.raises(RunError, match="codes exists already"):
        new.save(tmp_path / "codes")
    assert_same(LatentCodes.load(tmp_path / "codes"), old)
    new.save(tmp_path / "codes", overwrite=True)
    assert_same(LatentCodes.load(str(tmp_path / "codes")), new)
    assert [p.name for p in tmp_path.iterdir()] == ["codes"]


def test_codes_that_cannot_be_written_leave_nothing_behind(tmp_path: Path) -> None:
    codes = replace(make_codes(), meta={"generator": object()})
    with pytest.raises(TypeError):
        codes.save(tmp_path / "codes")
    assert list(tmp_path.iterdir()) == []


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
    "pair named by a number": (edit_meta(pairs=[{**PAIR, "name": 1}] * 3), "damaged: .*text for"),
    "layers are text": (edit_meta(layers=["0", "2"]), "damaged: .*whole numbers"),
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


def test_a_file_is_opened_and_not_read(tmp_path: Path) -> None:
    """What `select` returns is the file itself, in one piece; writing to it stays in memory."""
    codes = make_codes()
    folder = codes.save(tmp_path / "codes")
    loaded = LatentCodes.load(folder)
    assert loaded.residuals is not None
    for array in (loaded.scores, loaded.residuals):
        base: Any = array
        while not isinstance(base, np.memmap):
            assert base.base is not None, "the array has memory of its own"
            base = base.base
    assert loaded.select(layer=2, pair="query->query").flags.c_contiguous
    assert loaded.select_residual(layer=2, pair="query->query").flags.c_contiguous
    loaded.scores[:] = 7.0
    assert_same(LatentCodes.load(folder), codes)


def test_loaded_codes_outlive_their_folder(tmp_path: Path) -> None:
    old = make_codes(seed=0)
    loaded = LatentCodes.load(old.save(tmp_path / "codes"))
    make_codes(seed=1).save(tmp_path / "codes", overwrite=True)
    assert_same(loaded, old)
    loaded.save(tmp_path / "codes", overwrite=True)
    assert_same(LatentCodes.load(tmp_path / "codes"), old)


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


def test_the_order_of_the_file_is_the_one_it_states(tmp_path: Path) -> None:
    """The file is plain safetensors: any reader finds scores [layer, pair, instance, head]."""
    codes = make_codes()
    folder = codes.save(tmp_path / "codes")
    tensors = read_tensors(folder / "codes.safetensors")
    np.testing.assert_array_equal(tensors["scores"].transpose(2, 0, 1, 3), codes.scores)
    assert json.loads((folder / "meta.json").read_text())["axes"]["scores"] == [
        "layer", "pair", "instance", "head"]


def test_an_index_of_the_labels_is_kept(tmp_path: Path) -> None:
    codes = make_codes()
    named = replace(codes, labels=codes.labels.set_index(pd.Index(range(5, 17), name="number")))
    assert_same(LatentCodes.load(named.save(tmp_path / "codes")), named)


def test_labels_of_several_row_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("latentcode.codes.latent_codes.SHARD", 5)
    folder = make_codes().save(tmp_path / "codes")
    assert ParquetFile(folder / "labels.parquet").num_row_groups == 3
    assert_same(LatentCodes.load(folder), make_codes())


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


def test_codes_are_opened_without_torch(tmp_path: Path) -> None:
    """The app reads them on machines that have none."""
    folder = make_codes().save(tmp_path / "codes")
    code = ("import sys; from latentcode.codes import LatentCodes; LatentCodes.load(sys.argv[1])"
            "; sys.exit('torch' in sys.modules)")
    assert subprocess.run([sys.executable, "-c", code, str(folder)], check=False).returncode == 0
