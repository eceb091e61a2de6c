"""Is nothing opened that lies outside the folders given?"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from latentcode.app.data import catalog as module
from latentcode.app.data.catalog import ROOTS, allowed_folders, catalog, find_entry
from latentcode.errors import ArtifactError
from latentcode.runs.run import ZOO
from latentcode.zoo import Card


def a_run(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "provenance.json").write_text("{}", encoding="utf-8")
    return folder


def some_codes(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "codes.safetensors").write_bytes(b"")
    return folder


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    a_run(tmp_path / "runs" / "b")
    a_run(tmp_path / "runs" / "a" / "seed=0")
    some_codes(tmp_path / "runs" / "codes")
    a_run(tmp_path / "secret")
    monkeypatch.setattr(module, "zoo_folders", lambda: {"tiny-hyla": tmp_path / "zoo" / "tiny"})
    return tmp_path / "runs"


def found(root: Path) -> dict[str, str]:
    return {entry.key: entry.kind for entry in catalog([root])}


def test_the_zoo_comes_first_then_runs_then_codes_each_by_name(root: Path) -> None:
    some_codes(root / "a" / "codes")
    a_run(root / "z")
    assert list(found(root).items()) == [
        ("tiny-hyla", "zoo"), ("runs/a/seed=0", "run"), ("runs/b", "run"), ("runs/z", "run"),
        ("runs/a/codes", "codes"), ("runs/codes", "codes")]


def test_a_model_that_is_asked_for_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    folders = {name: ZOO / name for name in ("logic-hyla", "sraven-hyla", "text-softmax")}
    monkeypatch.setattr(module, "zoo_folders", lambda: folders)
    # Without such a model, one whose problems can be drawn.
    assert [entry.key for entry in catalog([])] == ["sraven-hyla", "logic-hyla", "text-softmax"]
    assert [entry.key for entry in catalog([folders["text-softmax"]])] == [
        "text-softmax", "sraven-hyla", "logic-hyla"]


def test_a_folder_that_is_a_run_is_one(root: Path) -> None:
    assert found(root / "b") == {"tiny-hyla": "zoo", "b": "run"}
    assert find_entry("b", [root / "b"]).path == root / "b"


def test_deep_hidden_and_linked_folders_and_those_of_a_run_are_left_alone(root: Path) -> None:
    a_run(root / "1" / "2" / "3" / "4" / "5")
    a_run(root / "1" / "2" / "3" / "4" / "x" / "6")
    a_run(root / ".hidden")
    some_codes(root / "b" / "results" / "codes-ood")
    (root / "link").symlink_to(root.parent / "secret")
    assert set(found(root)) == {"tiny-hyla", "runs/a/seed=0", "runs/b", "runs/codes",
                                "runs/1/2/3/4/5"}


def test_a_large_folder_is_not_searched_for_ever(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_FOLDERS", 2)
    assert list(found(root)) == ["tiny-hyla"]


def test_a_folder_that_may_not_be_read_offers_nothing(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Path.is_file

    def is_file(path: Path) -> bool:
        if path.parent == root / "b":
            raise PermissionError(13, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr(Path, "is_file", is_file)
    assert list(found(root)) == ["tiny-hyla", "runs/a/seed=0", "runs/codes"]


def test_each_model_is_listed_once(root: Path) -> None:
    a_run(root.parent / "zoo" / "tiny")
    again = [root.parent, root, root / "b", root.parent / "zoo"]
    paths = [entry.path.resolve() for entry in catalog(again)]
    assert sorted(paths) == sorted({
        root.parent / "zoo" / "tiny", root / "a" / "seed=0", root / "b", root / "codes",
        root.parent / "secret"})
    # A name of the zoo is the zoo.
    a_run(root / "tiny-hyla")
    assert find_entry("tiny-hyla", [root]).kind == "zoo"


@pytest.mark.parametrize("project", [True, False])
def test_what_belongs_to_a_project_is_left_out(root: Path, project: bool) -> None:
    for name in ("tests", "build", "dist"):
        a_run(root / name / "run")
    (root / "env").mkdir()
    (root / "env" / "pyvenv.cfg").touch()
    some_codes(root / "env" / "lib" / "codes")
    if project:
        (root / "pyproject.toml").touch()
    listed = {"runs/a/seed=0", "runs/b", "runs/codes"}
    # Elsewhere these are names like any other.
    mine = set() if project else {"runs/build/run", "runs/dist/run", "runs/tests/run"}
    assert set(found(root)) == {"tiny-hyla"} | listed | mine
    assert find_entry("runs/tests/run", [root]).path == root / "tests" / "run"


@pytest.mark.parametrize("key", ["runs/b", "b", "{root}/b", "runs/a/../b"])
def test_a_path_is_found_however_it_is_written(root: Path, key: str) -> None:
    entry = find_entry(key.format(root=root), [root])
    assert (entry.key, entry.path, entry.kind) == ("runs/b", root / "b", "run")


@pytest.mark.parametrize("key", [
    "{root}/../secret", "runs/../secret", "../secret", "{root}/link", "runs/link", "/", "/etc",
    "~", "{root}/b/../../secret", "", "runs/b\0", "/\0", "runs/" + "b" * 5_000,
    "~nobody-of-that-name", "{root}/circle", "runs/circle/b"])
def test_nothing_outside_is_opened(root: Path, key: str) -> None:
    (root / "link").symlink_to(root.parent / "secret")
    (root / "circle").symlink_to(root / "circle")
    with pytest.raises(ArtifactError) as refused:
        find_entry(key.format(root=root), [root])
    assert ("that leads outside the folders" in str(refused.value)) == ("link" in key)


@pytest.mark.parametrize("name", ["metrics.jsonl", "checkpoints", "results/codes-ood/meta.json"])
def test_a_run_with_a_link_to_the_outside_is_refused(root: Path, name: str) -> None:
    link = root / "b" / name
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(root.parent / "secret")
    with pytest.raises(ArtifactError, match=f"{link} is a link"):
        find_entry("runs/b", [root])
    assert find_entry("runs/b", [root, root.parent / "secret"]).path == root / "b"


def test_the_first_of_the_zoo_knows_every_rule() -> None:
    first = catalog([])[0]
    assert first.key == "sraven-hyla"
    known = Card.read(first.path).metrics["ood"]
    assert min(m.mean for name, m in known.items() if name.startswith("feature_accuracy[")) > 0.95


def test_folders_of_one_name_are_told_apart(root: Path) -> None:
    other = a_run(root.parent / "more" / "runs" / "b").parent
    keys = [entry.key for entry in catalog([root, other])]
    assert keys[1:] == ["runs/a/seed=0", "runs/b", str(other / "b"), "runs/codes"]
    for entry in catalog([root, other])[1:]:
        assert find_entry(entry.key, [root, other]) == entry


def test_the_folders_come_with_the_environment(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ROOTS, json.dumps([str(root)]))
    assert allowed_folders() == (root,)
    monkeypatch.delenv(ROOTS)
    assert allowed_folders() == ()
