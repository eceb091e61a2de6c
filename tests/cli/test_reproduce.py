"""`latentcode reproduce` where there are no experiments, as in an installed wheel."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from latentcode.cli import reproduce


def test_a_wheel_says_where_the_experiments_are(
    monkeypatch: pytest.MonkeyPatch, refused: Callable[..., str]
) -> None:
    monkeypatch.setattr(reproduce, "find_spec", lambda name: None)
    said = refused("reproduce", "fig2c")
    assert said.startswith("error: latentcode reproduce needs the folder experiments/, which an")
    assert f"git clone --depth 1 {reproduce.REPOSITORY} && cd latentcode && make env" in said
