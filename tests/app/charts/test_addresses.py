"""Does the browser get what an address stands for, and nobody else anything?"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.testclient import TestClient

from latentcode.app import assets
from latentcode.app.charts import addresses
from latentcode.app.index import HEADERS, Policy, content_policy
from latentcode.errors import ConfigError


@pytest.fixture
def client() -> Iterator[TestClient]:
    app = Starlette(routes=list(addresses.ROUTES), middleware=[Middleware(Policy)])
    with TestClient(app, base_url="http://localhost:8501") as client:
        yield client


def test_an_array_comes_back_as_it_was(client: TestClient) -> None:
    array = np.arange(6, dtype=np.float32).reshape(3, 2)
    answer = client.get(addresses.array_address(array.T))
    assert np.frombuffer(answer.content, "<f4").tolist() == [0, 2, 4, 1, 3, 5]
    assert "immutable" in answer.headers["cache-control"]
    assert addresses.array_address(array) == addresses.array_address(array.copy())
    assert addresses.array_address(array) != addresses.array_address(array.T)
    assert addresses.array_address(np.array([], dtype=np.uint32)).startswith(addresses.ARRAYS)
    assert client.get(f"{addresses.ARRAYS}/{'0' * 40}").status_code == 404


def test_cards_are_drawn_when_they_are_asked_for(client: TestClient) -> None:
    def draw(row: int) -> str:
        if row > 9:
            raise IndexError(row)
        return f"<b>{row}</b>"

    address = addresses.card_address(("these", "codes"), draw)
    assert client.get(f"{address}/7").text == "<b>7</b>"
    for nothing in (f"{address}/10", f"{address}/-1", f"{address}/x",
                    f"{addresses.CARDS}/{'0' * 40}/1"):
        assert client.get(nothing).status_code == 404


def test_what_was_used_longest_ago_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(addresses, "MOST_BYTES", 12)
    first, second, third = (addresses.array_address(np.full(4, i, np.uint8)).rpartition("/")[2]
                            for i in range(3))
    assert addresses.kept_array(first) == bytes(4)
    addresses.array_address(np.full(4, 3, np.uint8))
    assert addresses.kept_array(second) is None
    assert addresses.kept_array(first) is not None
    assert addresses.kept_array(third) is not None


def test_the_library_has_the_functions_that_the_map_calls(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = client.get(addresses.library_address())
    assert answer.headers["content-type"].startswith("text/javascript")
    assert answer.text.rstrip().endswith("export { createScatterplot, createRenderer };")
    monkeypatch.setattr(assets, "WANTED", ("createNothing",))
    assets.script.cache_clear()
    with pytest.raises(ConfigError, match="createNothing"):
        assets.script()
    monkeypatch.setattr(assets, "PACKAGE", "no-such-package")
    with pytest.raises(ConfigError, match="no-such-package"):
        assets.script()


def test_every_answer_has_the_policy(client: TestClient) -> None:
    for address in (addresses.library_address(), f"{addresses.ARRAYS}/x", "/nowhere"):
        headers = client.get(address).headers
        assert {name: headers[name] for name in HEADERS} == HEADERS
        assert headers["content-security-policy"] == content_policy()
        assert "access-control-allow-origin" not in headers


def test_the_policy_names_this_server_alone() -> None:
    parts = dict(part.split(" ", 1) for part in content_policy().split("; "))
    assert parts["frame-ancestors"] == parts["object-src"] == "'none'"
    assert "'unsafe-inline'" not in parts["script-src"]
    assert "'sha256-" in parts["script-src"]
    assert not any("http" in part or "*" in part for part in parts.values())
