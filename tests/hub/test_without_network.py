"""What was downloaded once is there without a network, and the rest is one clear error."""

from __future__ import annotations

from pathlib import Path

import pytest
from hub_server import hub_server
from huggingface_hub import constants

import latentcode as lc
from latentcode.errors import ArtifactError, HubError

pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=<...>':DeprecationWarning")


@pytest.fixture
def once(pushed: object) -> str | None:
    """The address of a run that was downloaded once."""
    return lc.load_run("hf://user/tiny").loaded_from


@pytest.mark.parametrize(("setting", "message"), [
    ("HF_HUB_OFFLINE", "and this machine"), ("ENDPOINT", "and .*: .*refused")])
def test_a_run_in_the_cache_opens_without_the_hub(
    once: str, run: lc.Run, monkeypatch: pytest.MonkeyPatch, setting: str, message: str
) -> None:
    with hub_server() as gone:
        pass
    monkeypatch.setattr(constants, setting, gone.url if setting == "ENDPOINT" else True)
    for address in ("hf://user/tiny", once):
        assert lc.load_run(address).loaded_from == once
    with pytest.raises(HubError, match=f"hf://user/none cannot be reached, {message}"):
        lc.load_run("hf://user/none")
    with pytest.raises(HubError, match="user/tiny cannot be reached"):
        run.push_to_hub("user/tiny")


def test_half_a_copy_does_not_pass_for_a_run(
    once: str, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [config] = cache.rglob("config.yaml")
    config.unlink()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(ArtifactError, match=r"hf://user/tiny was downloaded without config\.yaml"):
        lc.load_run("hf://user/tiny")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    assert lc.load_run("hf://user/tiny").id
