"""Contestants take turns, and ratios are taken within rounds."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from latentcode.errors import RunError
from latentcode.experiments.benchmarks.harness import (
    CPU,
    Benchmark,
    Contestant,
    peak_memory,
    record,
    reset_peak_memory,
    sit,
    spread,
)


def scripted(
    name: str, diary: list[tuple[str, int]], unit_seconds: float, multiple: int = 1
) -> Contestant:
    """Return a contestant whose units take as long as it is told to."""

    def seconds(n: int) -> float:
        diary.append((name, n))
        return n * unit_seconds

    return Contestant(name, seconds, multiple)


def test_contestants_take_turns() -> None:
    diary: list[tuple[str, int]] = []
    contestants = [scripted("a", diary, 1.0), scripted("b", diary, 0.25),
                   scripted("c", diary, 0.25, multiple=7)]
    done: list[tuple[int, int]] = []
    times = sit(contestants, rounds=3, turn_seconds=2.0, warmup=4,
                progress=lambda *turn: done.append(turn))
    assert times["units_per_turn"] == {"a": 2, "b": 8, "c": 14}
    warm_up, calibration, turns = diary[:3], diary[3:6], diary[6:]
    assert warm_up == [("a", 4), ("b", 4), ("c", 4)]
    assert calibration == [("a", 1), ("b", 1), ("c", 1)]
    assert turns == 3 * [("a", 1), ("a", 2), ("b", 1), ("b", 8), ("c", 1), ("c", 14)]
    assert done == [(i, 9) for i in range(1, 10)]
    assert times["raw_seconds_per_unit"] == {"a": [1.0] * 3, "b": [0.25] * 3, "c": [0.25] * 3}


def test_a_contestant_alone_works_only_where_it_counts() -> None:
    diary: list[tuple[str, int]] = []
    sit([scripted("a", diary, 1.0)], rounds=2, units=5, warmup=0)
    assert diary == [("a", 5), ("a", 5)]


def test_the_ratio_is_taken_within_rounds() -> None:
    """A machine that is twice as slow in some rounds moves both sides, and no ratio."""
    times = record({"old": [4.0, 8.0, 40.0], "new": [2.0, 4.0, 10.0]}, {"old": 1, "new": 1})
    assert times["baseline"] == "old"
    assert times["speedup"] == {"new": {"median": 2.0, "least": 2.0, "lower": 2.0, "upper": 3.0,
                                        "most": 4.0, "n": 3}}
    assert times["milliseconds"]["new"]["median"] == 4_000.0
    assert times["raw_seconds_per_unit"]["new"] == [2.0, 4.0, 10.0]


@given(st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=30))
def test_a_spread_is_ordered(values: list[float]) -> None:
    measured = spread(values)
    ordered = [measured[name] for name in ("least", "lower", "median", "upper", "most")]
    assert ordered == sorted(ordered)
    assert measured["median"] == pytest.approx(np.median(values))


def test_peak_memory_sees_an_array_that_is_gone() -> None:
    if not os.access("/proc/self/clear_refs", os.W_OK):
        pytest.skip("the peak cannot be reset here")
    reset_peak_memory(CPU)
    # From the system itself: an allocator may serve an array from memory that the process already
    # holds, which changes nothing of what is resident.
    with mmap.mmap(-1, 64 * 2**20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        np.frombuffer(memory, dtype=np.uint8)[:] = 1
    peak = peak_memory(CPU)
    # Compared with what is resident afterwards: where memory is short, the system takes pages
    # away from the process meanwhile, never in a way that makes this difference smaller.
    reset_peak_memory(CPU)
    assert peak - peak_memory(CPU) > 48


def test_a_place_that_cannot_be_written_to_is_said_before_a_measurement(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("nowhere")
    with pytest.raises(RunError, match="is a link to nowhere"):
        Benchmark(out=tmp_path / "link").run()
