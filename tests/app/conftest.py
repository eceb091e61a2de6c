"""Nothing that the explorer does in a test stays behind."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.util import find_spec

import pytest

from latentcode.files.storage import VARIABLE


@pytest.fixture(scope="session", autouse=True)
def no_components_of_others() -> Iterator[None]:
    """Whenever AppTest opens a page, Streamlit reads about every installed package."""
    with pytest.MonkeyPatch.context() as patch:
        if find_spec("streamlit") is not None:
            patch.setattr(
                "streamlit.components.v2.manifest_scanner.scan_component_manifests", list)
        yield


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the explorer computes in a test is kept nowhere else."""
    monkeypatch.setenv(VARIABLE, str(tmp_path_factory.mktemp("cache")))


@pytest.fixture(autouse=True)
def main_module(monkeypatch: pytest.MonkeyPatch) -> None:
    """AppTest puts its script in the place of __main__, which later tests would try to spawn."""
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
