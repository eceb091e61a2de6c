"""What tests of codes share."""

from __future__ import annotations

from collections.abc import Iterator

import jaxtyping
import pytest


@pytest.fixture(scope="module")
def unchecked_signatures() -> Iterator[None]:
    """Codes come from the disk and from notebooks, where no type checker guards them: the
    errors must be our own, not those that the tests' checks of signatures would raise first."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)
