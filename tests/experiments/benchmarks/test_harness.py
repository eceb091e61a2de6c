"""Contestants take turns, and ratios are taken within rounds."""

from __future__ import annotations

import mmap
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from latentcode.errors import RunError
from latentcode.experiments.benchmarks.harness import (
    Report,
    Sitting,
    Spread,
    peak_memory,
    reset_peak_memory,
    sit,
)


@dataclass
class Scripted:
    """A contestant whose n-th unit takes as long as it was told to."""

    name: str
    diary: list[tuple[str, int]]
    unit_seconds: list[float]
    multiple: int = 1
    turns: int = field(default=0)

    def seconds(self, n: int) -> float:
        self.diary.append((self.name, n))
        self.turns += 1
        return n * self.unit_seconds[self.turns % len(self.unit_seconds)]


def test_contestants_take_turns() -> None:
    diary: list[tuple[str, int]] = []
    contestants = [Scripted("a", diary, [1.0]), Scripted("b", diary, [0.25]),
                   Scripted("c", diary, [0.25], multiple=7)]
    done: list[tuple[int, int]] = []
    sitting = sit(contestants, rounds=3, turn_seconds=2.0, warmup=4,
                  progress=lambda *turn: done.append(turn))
    assert sitting.units == {"a": 2, "b": 8, "c": 14}
    warm_up, calibration, turns = diary[:3], diary[3:6], diary[6:]
    assert warm_up == [("a", 4), ("b", 4), ("c", 4)]
    assert calibration == [("a", 1), ("b", 1), ("c", 1)]
    assert turns == 3 * [("a", 1), ("a", 2), ("b", 1), ("b", 8), ("c", 1), ("c", 14)]
    assert done == [(i, 9) for i in range(1, 10)]
    assert {name: len(s) for name, s in sitting.seconds.items()} == {"a": 3, "b": 3, "c": 3}


def test_a_contestant_alone_works_only_where_it_counts() -> None:
    diary: list[tuple[str, int]] = []
    sit([Scripted("a", diary, [1.0])], rounds=2, units=5, warmup=0)
    assert diary == [("a", 5), ("a", 5)]


def test_the_ratio_is_taken_within_rounds() -> None:
    """A machine that is twice as slow in some rounds moves both sides, and no ratio."""
    sitting = Sitting({"old": 1, "new": 1}, {"old": [4.0, 8.0, 40.0], "new": [2.0, 4.0, 10.0]})
    assert sitting.ratio("old", "new") == Spread(2.0, 2.0, 2.0, 3.0, 4.0, 3)
    record = sitting.record("old")
    assert record["speedup"] == {"new": {"median": 2.0, "least": 2.0, "lower": 2.0, "upper": 3.0,
                                         "most": 4.0, "n": 3}}
    assert record["milliseconds"]["new"]["median"] == 4_000.0
    assert record["raw_seconds_per_unit"]["new"] == [2.0, 4.0, 10.0]


@given(st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=30), st.floats(1e-3, 1e3))
def test_a_spread_is_ordered_and_scales(values: list[float], factor: float) -> None:
    spread = Spread.of(values)
    ordered = (spread.least, spread.lower, spread.median, spread.upper, spread.most)
    assert list(ordered) == sorted(ordered)
    assert spread.median == pytest.approx(np.median(values))
    assert spread.scaled(factor).upper == pytest.approx(factor * spread.upper)


def test_peak_memory_sees_an_array_that_is_gone() -> None:
    cpu = torch.device("cpu")
    if not reset_peak_memory(cpu):
        pytest.skip("the peak cannot be reset here")
    # From the system itself: an allocator may serve an array from memory that the process already
    # holds, which changes nothing of what is resident.
    with mmap.mmap(-1, 64 * 2**20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        np.frombuffer(memory, dtype=np.uint8)[:] = 1
    peak = peak_memory(cpu)
    # Compared with what is resident afterwards: where memory is short, the system takes pages
    # away from the process meanwhile, never in a way that makes this difference smaller.
    reset_peak_memory(cpu)
    assert peak - peak_memory(cpu) > 48


def test_a_place_that_cannot_be_written_to_is_said_before_a_measurement(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("nowhere")
    with pytest.raises(RunError, match="is a link to nowhere"):
        Report("question", torch.device("cpu"), {}, tmp_path / "link")
