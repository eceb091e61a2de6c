"""Every call is made once, on whatever threads there are, and no error is lost."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from latentcode.models.kernels import fused
from latentcode.models.kernels.fused import on_threads


@pytest.fixture(params=["torch's threads", "Python's threads"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    if request.param == "Python's threads":
        monkeypatch.setattr(fused, "find_openmp", lambda: None)
    torch.set_num_threads(3)
    yield request.param
    torch.set_num_threads(1)


@pytest.mark.parametrize("n", [1, 2, 3, 7])
def test_every_call_is_made_once(kind: str, n: int) -> None:
    for _ in range(20):
        made: list[int] = []

        def call(first: int, last: int, thread: int, made: list[int] = made) -> None:
            made.extend(range(first, last))

        on_threads(call, n)
        assert sorted(made) == list(range(n))


@pytest.mark.parametrize("broken", [0, 2])
def test_an_error_is_raised_when_all_calls_have_ended(kind: str, broken: int) -> None:
    made: list[int] = []

    def call(first: int, last: int, thread: int) -> None:
        made.append(thread)
        if thread == broken:
            raise ValueError(f"call {thread}")

    with pytest.raises(ValueError, match=f"call {broken}"):
        on_threads(call, 3)
    assert sorted(made) == [0, 1, 2]


def test_torch_brings_the_runtime_that_its_threads_belong_to() -> None:
    if "libgomp" not in torch.__config__.parallel_info() and fused.find_openmp() is None:
        pytest.skip("torch was built with another OpenMP")
    torch.set_num_threads(2)
    try:
        torch.ones(10_000_000).add_(1.0)
        assert fused.find_openmp().omp_get_max_threads() == 2
    finally:
        torch.set_num_threads(1)
