"""A hub on this machine, an empty cache, and nothing else within reach."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from hub_server import WRITER, Hub, Repo, hub_server
from huggingface_hub import constants, hf_api
from small_runs import CONFIG

import latentcode as lc


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of `huggingface_hub`, and no token on this machine."""
    settings = {
        "HF_HUB_OFFLINE": False, "HF_HUB_DISABLE_XET": True, "HF_HUB_CACHE": str(tmp_path / "hub"),
        "HF_TOKEN_PATH": str(tmp_path / "token"), "HF_HUB_DISABLE_PROGRESS_BARS": True}
    for name, value in settings.items():
        monkeypatch.setattr(constants, name, value)
    monkeypatch.delenv("HF_TOKEN", raising=False)
    return tmp_path / "hub"


@pytest.fixture
def hub(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """The hub that `huggingface_hub` asks, with a token that may write."""
    connect = socket.create_connection

    def only_here(address: tuple[str, int], *arguments: Any, **options: Any) -> socket.socket:
        assert address[0] == "127.0.0.1", f"a test asked {address[0]}"
        return connect(address, *arguments, **options)

    monkeypatch.setattr(socket, "create_connection", only_here)
    with hub_server() as server:
        monkeypatch.setattr(constants, "ENDPOINT", server.url)
        monkeypatch.setattr(hf_api.api, "endpoint", server.url)
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE",
                            server.url + "/{repo_id}/resolve/{revision}/{filename}")
        monkeypatch.setenv("HF_TOKEN", WRITER)
        yield server


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> lc.Run:
    """A run with two checkpoints, codes and a result."""
    run = lc.train(CONFIG, tmp_path_factory.mktemp("runs") / "tiny", progress=False)
    lc.extract(run, split="ood", n=8, out=run.path / "results/codes-ood")
    (run.path / "results/codes-ood/figure.png").write_bytes(b"a picture")
    return run


@pytest.fixture(scope="session")
def kept() -> dict[str, Repo]:
    """What `pushed` pushed the first time."""
    return {}


@pytest.fixture
def pushed(run: lc.Run, hub: Hub, kept: dict[str, Repo]) -> dict[str, bytes]:
    """The files of the run at `user/tiny`, which a test may change on the hub."""
    if not kept:
        run.push_to_hub("user/tiny")
        kept["user/tiny"] = hub.repos["models", "user/tiny"]
    hub.repos["models", "user/tiny"] = deepcopy(kept["user/tiny"])
    return hub.files("user/tiny")
