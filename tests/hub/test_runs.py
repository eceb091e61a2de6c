"""A run goes to the hub and comes back as it was."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import yaml
from disk import contents
from hub_server import READER, Hub
from huggingface_hub import ModelCard

import latentcode as lc
from latentcode.errors import HubError
from latentcode.files.storage import read_json

# huggingface_hub uploads in a way that its client finds old.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=<...>':DeprecationWarning")


def shared(run: lc.Run, folder: Path) -> dict[str, bytes]:
    """What is shared of a run: what `publish` copies, and its results without pictures."""
    files = contents(run.publish(folder).path)
    return files | {f"results/{name}": data for name, data in contents(run.path / "results").items()
                    if not name.endswith(".png")}


def test_a_run_comes_back_as_it_was(run: lc.Run, hub: Hub, tmp_path: Path) -> None:
    address = run.push_to_hub("user/tiny", license="mit", commit_message="the first")
    assert hub.repos["models", "user/tiny"].messages == ["initial commit", "the first"]
    back = lc.load_run("hf://user/tiny")
    files = contents(back.path)
    manifest = files.pop("manifest.json")
    assert files == shared(run, tmp_path / "published")
    assert b"optimizer" not in manifest
    assert (back.id, back.config, back.name) == (run.id, run.config, "user/tiny")
    np.testing.assert_array_equal(lc.extract(back, n=8).scores, lc.extract(run, n=8).scores)
    np.testing.assert_array_equal(lc.load_codes("hf://user/tiny").scores,
                                  lc.load_codes(run).scores)
    assert back.loaded_from == address == back.provenance["loaded_from"]
    assert lc.extract(back, n=8).meta["run_loaded_from"] == address
    assert address in repr(back)


def test_a_revision_is_a_commit_that_stays(run: lc.Run, hub: Hub, tmp_path: Path) -> None:
    first = run.push_to_hub("user/tiny", step=2)
    second = run.push_to_hub("user/tiny", step=4)
    assert first.startswith("hf://user/tiny@")
    assert "checkpoints/step_0000002/state.json" not in hub.files("user/tiny")
    assert lc.load_run(first).checkpoints() == [2]
    assert lc.load_run("hf://user/tiny", revision=first.split("@")[1]).checkpoints() == [2]
    assert lc.load_run("hf://user/tiny").loaded_from == second
    copy = lc.load_run(first).publish(tmp_path / "copy")
    assert read_json(copy.path / "provenance.json")["loaded_from"] == first == copy.loaded_from


def test_the_page_says_what_the_hub_reads(run: lc.Run, hub: Hub) -> None:
    run.push_to_hub("user/tiny", license="mit")
    _, front, body = hub.files("user/tiny")["README.md"].decode().split("---\n", 2)
    facts = yaml.safe_load(front)
    assert ModelCard(f"---\n{front}---\n").data.eval_results
    assert (facts["license"], facts["library_name"]) == ("mit", "latentcode")
    assert {"latentcode", "logic", "hyla"} <= set(facts["tags"])
    splits = {result["dataset"]["split"]: result["metrics"]
              for result in facts["model-index"][0]["results"]}
    r2 = next(metric["value"] for metric in splits["ood"] if metric["type"] == "r2")
    assert r2 == pytest.approx(run.newest("ood", "r2").mean)
    assert 'lc.load_run("hf://user/tiny")' in body


def test_a_model_of_the_zoo_takes_its_card_along(hub: Hub) -> None:
    run = lc.load_run("logic-hyla")
    run.push_to_hub("user/zoo")
    page = (run.path / "README.md").read_bytes()
    assert hub.files("user/zoo")["README.md"].endswith(page)
    assert hub.files("user/zoo")["card.json"] == (run.path / "card.json").read_bytes()


def test_private_repositories_are_for_those_with_a_token(
    run: lc.Run, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    run.push_to_hub("user/tiny", private=True)
    monkeypatch.delenv("HF_TOKEN")
    with pytest.raises(HubError, match="needs a token, and none was given"):
        lc.load_run("hf://user/tiny")
    assert lc.load_run("hf://user/tiny", token=READER).id == run.id
    with pytest.raises(HubError, match="no right"):
        run.push_to_hub("user/tiny", token=READER)
    hub.repos["models", "user/tiny"].private = False
    with pytest.raises(HubError, match="public already"):
        run.push_to_hub("user/tiny", private=True, token="hf_writer")
