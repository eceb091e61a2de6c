"""Files that would fill the memory are refused by their headers; honest ones are read."""

from __future__ import annotations

import io
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest
from places import OFFICIAL

from latentcode.errors import ArtifactError
from latentcode.files.npz import MOST_RATIO, PickleError, read_arrays


def write_member(path: Path, content: bytes, name: str = "a.npy") -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr(name, content)
    return path


def npy(array: np.ndarray) -> bytes:
    content = io.BytesIO()
    np.save(content, array, allow_pickle=False)
    return content.getvalue()


def header(shape: tuple[int, ...], dtype: str = "<f4") -> bytes:
    content = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        content, {"descr": dtype, "fortran_order": False, "shape": shape})
    return content.getvalue()


@pytest.mark.parametrize("source", [*sorted(OFFICIAL.glob("*.npz"))[:2]], ids=lambda p: p.stem)
def test_files_of_numpy_are_read(source: Path, tmp_path: Path) -> None:
    arrays = read_arrays(source)
    with np.load(source) as data:
        assert list(arrays) == data.files
        for name in data.files:
            np.testing.assert_array_equal(arrays[name], data[name])
    odd = {"empty": np.zeros((0, 3)), "scalar": np.array(3), "text": np.array("ü"),
           "fortran": np.asfortranarray(np.ones((2, 3))), "folder/name": np.arange(3)}
    np.savez_compressed(tmp_path / "odd.npz", **odd)  # type: ignore[arg-type]
    for name, array in read_arrays(tmp_path / "odd.npz").items():
        np.testing.assert_array_equal(array, odd[name])
    np.savez(tmp_path / "none.npz")
    assert read_arrays(tmp_path / "none.npz") == {}


@pytest.mark.parametrize(("content", "message"), [
    (npy(np.zeros(4, np.float32)) + b"\0" * 2**24, r"a\.npy, which unpacks to 16,777,360 bytes; "
     r"expected 144 for float32 of shape \(4,\)"),
    (header((2**40,)) + b"\0" * 8, r"unpacks to 136 bytes; expected 4,398,046,511,232 for float32"),
    (b"\0" * 2**24, r"a\.npy, which is no array: the magic string is not correct"),
    (header((2**34,)) + b"\0" * 8, "expected 68,719,476,864"),
    (b"\x93NUMPY\x07\x00" + b"\0" * 99, "which is no array"),
    (header((-4,)), "a.npy, which"),
])
def test_a_bomb_is_refused_by_its_header(content: bytes, message: str, tmp_path: Path) -> None:
    path = write_member(tmp_path / "bomb.npz", content)
    del content
    tracemalloc.start()
    with pytest.raises(ArtifactError, match=message):
        read_arrays(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**20


def test_arrays_may_not_be_far_larger_than_their_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each array is what its header says, and all together are a thousand times the file."""
    path = tmp_path / "zeros.npz"
    np.savez_compressed(path, **{f"a{i}": np.zeros(2**18, np.float32)  # type: ignore[arg-type]
                                 for i in range(4)})
    assert len(read_arrays(path)) == 4  # four megabytes harm nobody
    monkeypatch.setattr("latentcode.files.npz.SMALL", 2**21)
    size = path.stat().st_size
    with pytest.raises(ArtifactError, match=rf"unpacks to 4,194,\d+ bytes, from {size:,}; expected "
                                            rf"at most {max(2**21, MOST_RATIO * size):,}"):
        read_arrays(path)
    np.savez_compressed(path, np.random.default_rng(0).normal(size=2**19))
    assert len(read_arrays(path)) == 1


def test_objects_and_other_files_are_no_arrays(tmp_path: Path) -> None:
    np.savez(tmp_path / "objects.npz", a=np.array([{}], dtype=object))
    with pytest.raises(PickleError, match=r"objects\.npz holds pickled content, in a\.npy"):
        read_arrays(tmp_path / "objects.npz")
    np.save(tmp_path / "single.npy", np.ones(3))
    (tmp_path / "text.npz").write_text("hello")
    with pytest.raises(ArtifactError, match=r"single\.npy is a single array; expected an \.npz"):
        read_arrays(tmp_path / "single.npy")
    with pytest.raises(ArtifactError, match=r"text\.npz is damaged or not an \.npz"):
        read_arrays(tmp_path / "text.npz")
    write_member(tmp_path / "notes.npz", b"notes", "notes.txt")
    with pytest.raises(ArtifactError, match=r"notes\.txt, which is no array"):
        read_arrays(tmp_path / "notes.npz")
