"""Each thing that can be wrong is one clear error, and leaves nothing half-written."""

from __future__ import annotations

import json
import pickle
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from hub_server import Hub
from huggingface_hub import HfApi

import latentcode as lc
from latentcode.errors import HubError, LatentCodeError
from latentcode.hub import Address, check_names, origin

pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=<...>':DeprecationWarning")


class Trap:
    """A pickle that writes a file where it is opened."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return Path.touch, (self.path,)  # type: ignore[return-value]


def refused(address: str = "hf://user/tiny", **options: str) -> str:
    """Return the one sentence that says why a run is not loaded."""
    with pytest.raises(LatentCodeError) as raised:
        lc.load_run(address, **options)
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 350
    return f"{type(raised.value).__name__}: {raised.value}"


def downloaded(cache: Path) -> list[str]:
    """Names of the files in the cache that belong to a run."""
    return sorted(path.name for path in cache.rglob("*") if path.is_file()
                  and "snapshots" in path.parts)


def test_a_damaged_file_is_named_and_not_kept(pushed: dict[str, bytes], cache: Path) -> None:
    for name in ("config.yaml", "metrics.jsonl", "provenance.json",
                 "checkpoints/step_0000004/model.safetensors"):
        whole = pushed[name]
        pushed[name] = whole[:-1] + bytes([whole[-1] ^ 1])
        said = refused()
        assert said.startswith(f"ArtifactError: {name} of hf://user/tiny was damaged or changed")
        assert not list(cache.rglob("*.incomplete"))
        pushed[name] = whole
        assert lc.load_run("hf://user/tiny").checkpoints() == [4]


def test_a_file_damaged_on_its_way_is_not_kept(
    pushed: dict[str, bytes], hub: Hub, cache: Path
) -> None:
    for name, said in (("metrics.jsonl", "metrics.jsonl of hf://user/tiny was damaged"),
                       ("manifest.json", "manifest.json is not readable JSON")):
        hub.damaged.add(name)
        assert said in refused()
        assert not {name, "manifest.json"} & set(downloaded(cache))
        hub.damaged.clear()
        assert lc.load_run("hf://user/tiny").checkpoints() == [4]
        shutil.rmtree(cache)


def test_a_pickle_is_neither_downloaded_nor_opened(
    pushed: dict[str, bytes], cache: Path, tmp_path: Path
) -> None:
    pushed["results/codes-ood/labels.pkl"] = pickle.dumps(Trap(tmp_path / "sprung"))
    assert refused() == ("HubError: hf://user/tiny holds 'results/codes-ood/labels.pkl', which is "
                         "no file of a shared run; expected nothing else")
    assert downloaded(cache) == []
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize("where", ["repository", "manifest"])
def test_other_names_are_refused(pushed: dict[str, bytes], cache: Path, where: str) -> None:
    whole = pushed["manifest.json"]
    for name in ("../evil.json", "results/../../evil.json", "/etc/evil.json", "modeling.py",
                 "results/.hidden/evil.json", "results\\..\\evil.json", "config.yaml\n",
                 "checkpoints/step_0000004/rng.bin", "results/a/évil.json"):
        if where == "repository":
            pushed[name] = b"{}"
        else:
            manifest = json.loads(whole)
            manifest["sha256"][name] = "0" * 64
            pushed["manifest.json"] = json.dumps(manifest).encode()
        assert f"{name!r}, which is no file of a shared run" in refused()
        pushed.pop(name, None)
    assert set(downloaded(cache)) <= ({*(Path(name).name for name in pushed)}
                                      if where == "manifest" else set())
    assert not list(cache.parent.rglob("*evil*"))


def test_files_are_those_of_the_manifest(pushed: dict[str, bytes]) -> None:
    removed = pushed.pop("metrics.jsonl")
    assert "holds other files than its manifest says: metrics.jsonl" in refused()
    pushed.update({"metrics.jsonl": removed, "results/more.json": b"{}"})
    assert "no file of a shared run" in refused()  # results lie in a folder of their own
    pushed["results/other/more.json"] = pushed.pop("results/more.json")
    assert "other files than its manifest says: results/other/more.json" in refused()


def test_sizes_are_bounded(
    pushed: dict[str, bytes], cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("latentcode.hub.MOST_BYTES", {False: 100, True: 2**36})
        assert re.search(r"hf://user/tiny holds \S+\.json of \d+ bytes; expected at most 100",
                         refused())
        assert downloaded(cache) == []
    check_names("run", {"metrics.jsonl": 2**28, "results/a/codes.safetensors": 2**30}, "it")
    for name, size in (("metrics.jsonl", 2**28 + 1), ("metrics.jsonl", -1),
                       ("results/a/codes.safetensors", 2**36 + 1)):
        with pytest.raises(HubError, match=f"it holds {name} of {size} bytes; expected at most"):
            check_names("run", {name: size}, "it")
    with pytest.raises(HubError, match="2,001 files; expected at most 2,000"):
        check_names("run", {f"results/a/{i}.csv": 1 for i in range(2_001)}, "it")


def test_what_is_not_there(pushed: dict[str, bytes], hub: Hub, cache: Path) -> None:
    assert f"hf://user/none does not exist on {hub.url}, or" in refused("hf://user/none")
    assert "user/tiny has no revision 'v9'" in refused("hf://user/tiny@v9")
    assert "user/tiny has no revision" in refused(revision="0" * 40)
    del pushed["manifest.json"]
    assert "hf://user/tiny holds no manifest.json; expected a run or codes" in refused()
    assert downloaded(cache) == []


def test_a_hub_that_is_out_of_order(pushed: dict[str, bytes], hub: Hub, cache: Path) -> None:
    hub.broken["info"] = 500
    assert refused() == "HubError: hf://user/tiny: the hub answered 500: out of order"
    hub.broken["file"] = 404
    refused()
    assert not list(cache.rglob("*.incomplete"))
    assert lc.load_run("hf://user/tiny").is_complete


@pytest.mark.parametrize(("address", "revision", "named"), [
    *((address, None, "is not an address on the hub") for address in (
        "hf://", "hf://tiny", "hf://user/tiny/config.yaml", "hf://user/../tiny",
        "hf://user/tiny@", "hf://spaces/user/tiny", "hf://us er/tiny")),
    ("hf://user/a--b", None, "hf://user/a--b: Cannot have --"),
    *(("hf://user/tiny", revision, "as revision; expected") for revision in (
        "../../../etc", "/etc", "a b", "a..b", "")),
])
def test_what_is_no_address(
    address: str, revision: str | None, named: str, hub: Hub, cache: Path
) -> None:
    assert named in refused(address, **({} if revision is None else {"revision": revision}))
    assert hub.asked == []
    assert not cache.exists()


def test_addresses_are_read_as_they_are_written() -> None:
    for text in ("hf://user/a.b-c", "hf://user/name@refs/pr/1", "hf://datasets/user/name@v1"):
        assert str(Address.parse(text)) == text
    with pytest.raises(HubError, match=r"names revision v1; expected no other, but .* 'v2'"):
        Address.parse("hf://user/name@v1", "v2")
    commit = "0123456789" * 4
    assert str(origin(Path(f"/x/models--user--name/snapshots/{commit}"))) == (
        f"hf://user/name@{commit}")
    for path in ("runs/hyla", f"/x/models--user/snapshots/{commit}", "/", f"/snapshots/{commit}",
                 "/x/models--user--name/snapshots/main"):
        assert origin(Path(path)) is None


def test_a_push_is_one_commit_or_none(
    run: lc.Run, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    run.push_to_hub("user/tiny", step=2)
    before = dict(hub.files("user/tiny"))
    for place, status, said in (("commit", 500, "the hub answered 500"), ("lfs", 403, "no right")):
        hub.broken[place] = status
        with pytest.raises(HubError, match=said):
            run.push_to_hub("user/tiny")
    with monkeypatch.context() as patch:
        upload = HfApi.preupload_lfs_files
        patch.setattr(HfApi, "preupload_lfs_files", lambda *a, **k: interrupt(upload(*a, **k)))
        with pytest.raises(KeyboardInterrupt):
            run.push_to_hub("user/tiny")
    assert len(hub.uploads) == 4  # the large files lie there, in no commit
    assert hub.files("user/tiny") == before
    assert len(hub.repos["models", "user/tiny"].commits) == 2
    run.push_to_hub("user/tiny")
    assert len(hub.repos["models", "user/tiny"].commits) == 3


def test_what_others_push_meanwhile_stays(
    run: lc.Run, pushed: dict[str, bytes], hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo, upload = hub.repos["models", "user/tiny"], HfApi.preupload_lfs_files

    def meanwhile(*arguments: Any, **options: Any) -> None:
        repo.commits.append({**pushed, "LICENSE": b"mine"})
        upload(*arguments, **options)

    monkeypatch.setattr(HfApi, "preupload_lfs_files", meanwhile)
    with pytest.raises(HubError, match="hf://user/tiny changed while it was pushed to"):
        run.push_to_hub("user/tiny")
    assert hub.files("user/tiny")["LICENSE"] == b"mine"


def interrupt(_: object) -> None:
    raise KeyboardInterrupt


def test_what_is_not_shared_is_not_pushed(run: lc.Run, hub: Hub, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(run.path, copy)
    (copy / "results/codes-ood/labels.pkl").write_bytes(pickle.dumps(Trap(tmp_path / "sprung")))
    with pytest.raises(HubError, match=r"holds 'results/codes-ood/labels\.pkl', which is no file"):
        lc.load_run(copy).push_to_hub("user/tiny")
    assert hub.asked == []
    with pytest.raises(HubError, match="the repository is 'tiny'; expected user/name"):
        run.push_to_hub("tiny")


def test_a_repository_of_others_stays_as_it_is(
    run: lc.Run, pushed: dict[str, bytes], hub: Hub
) -> None:
    pushed["pytorch_model.bin"] = b"weights"
    before = dict(pushed)
    with pytest.raises(HubError, match=r"'pytorch_model\.bin'.*; push to a repository of its own"):
        run.push_to_hub("user/tiny")
    assert hub.files("user/tiny") == before
