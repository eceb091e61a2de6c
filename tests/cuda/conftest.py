"""What tests on the device that computes nothing share."""

from __future__ import annotations

import pytest

from latentcode.training import ensemble


@pytest.fixture(autouse=True)
def short_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ensemble, "WARM_UP", 1)  # all are the same
