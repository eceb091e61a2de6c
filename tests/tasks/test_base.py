"""Are splits disjoint and covered, and do the parts of a batch stay together?"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from latentcode.errors import SplitError
from latentcode.tasks.base import (
    Batch,
    Combination,
    explicit_split,
    fraction_of,
    random_cover,
    split_combinations,
)

property_test = settings(max_examples=60)


def all_combinations(n: int, size: int, distinct: bool) -> list[Combination]:
    choose: Callable[[range, int], Iterable[Combination]] = (
        itertools.combinations if distinct else itertools.combinations_with_replacement)
    return list(choose(range(n), size))


@st.composite
def families(draw: st.DrawFn) -> tuple[int, int, bool]:
    """Number of constituents, size of a combination, whether its constituents differ."""
    n, distinct = draw(st.integers(1, 9)), draw(st.booleans())
    return n, draw(st.integers(1, min(n, 4) if distinct else 4)), distinct


def assert_partition(
    train: list[Combination], ood: list[Combination], combinations: list[Combination], n: int
) -> None:
    assert not set(train) & set(ood)
    assert sorted(train + ood) == combinations
    assert train == sorted(train)
    assert ood == sorted(ood)
    assert {c for t in train for c in t} == set(range(n))


@property_test
@given(families(), st.integers(0, 100))
def test_a_cover_is_as_small_as_any(family: tuple[int, int, bool], seed: int) -> None:
    n, size, distinct = family
    cover = random_cover(n, size, distinct, np.random.default_rng(seed))
    assert set(cover) <= set(all_combinations(n, size, distinct))
    assert {c for combination in cover for c in combination} == set(range(n))
    assert len(set(cover)) == len(cover) == -(-n // size)


def test_a_cover_is_random() -> None:
    covers = {tuple(sorted(random_cover(8, 4, False, np.random.default_rng(s))))
              for s in range(300)}
    assert len(covers) == 35  # ways to part eight constituents into two groups of four


@property_test
@given(families(), st.integers(0, 100), st.data())
def test_every_possible_number_can_be_held_out(
    family: tuple[int, int, bool], seed: int, data: st.DataObject
) -> None:
    n, size, distinct = family
    combinations = all_combinations(n, size, distinct)
    n_ood = data.draw(st.integers(0, len(combinations) - -(-n // size)))
    train, ood = split_combinations(
        combinations, n, fraction_of(n_ood, len(combinations)), seed, distinct)
    assert len(ood) == n_ood
    assert_partition(train, ood, combinations, n)


@property_test
@given(families(), st.integers(0, 100), st.data())
def test_one_more_is_refused_and_the_named_fraction_works(
    family: tuple[int, int, bool], seed: int, data: st.DataObject
) -> None:
    n, size, distinct = family
    combinations = all_combinations(n, size, distinct)
    total, most = len(combinations), len(combinations) - -(-n // size)
    if most == total - 1:  # one combination covers: int(total * fraction) never reaches total
        return
    fraction = fraction_of(data.draw(st.integers(most + 1, total - 1)), total)
    with pytest.raises(SplitError) as raised:
        split_combinations(combinations, n, fraction, seed, distinct)
    message = str(raised.value)
    assert f"ood_fraction {fraction} holds out {int(total * fraction)} of {total}" in message
    match = re.search(r"largest possible fraction here is ([0-9.e-]+), which holds out (\d+)",
                      message)
    train, ood = split_combinations(combinations, n, float(match[1]), seed, distinct)
    assert len(ood) == most == int(match[2])
    assert_partition(train, ood, combinations, n)


@property_test
@given(st.integers(1, 5_000_000), st.data())
def test_fraction_of_inverts_the_count(total: int, data: st.DataObject) -> None:
    count = data.draw(st.integers(0, total - 1))
    fraction = fraction_of(count, total)
    assert 0.0 <= fraction < 1.0
    assert int(total * fraction) == count
    assert len(str(total)) >= len(f"{fraction:.15f}".rstrip("0").partition(".")[2])


def test_every_combination_is_held_out_by_some_seed() -> None:
    combinations = all_combinations(6, 2, distinct=True)
    held_out = {c for seed in range(40)
                for c in split_combinations(combinations, 6, 0.4, seed, distinct=True)[1]}
    assert held_out == set(combinations)


@property_test
@given(families(), st.data())
def test_an_explicit_split_holds_out_what_it_is_told(
    family: tuple[int, int, bool], data: st.DataObject
) -> None:
    n, size, distinct = family
    combinations = all_combinations(n, size, distinct)
    held_out = data.draw(st.lists(st.sampled_from(combinations), unique=True))
    rest = set(combinations) - set(held_out)
    given_as = [data.draw(st.permutations(c)) for c in held_out]
    lost = {c for h in held_out for c in h} - {c for r in rest for c in r}
    if lost:
        with pytest.raises(SplitError, match=re.escape(str(sorted(lost)))):
            explicit_split(combinations, given_as)
    else:
        train, ood = explicit_split(combinations, given_as)
        assert ood == sorted(held_out)
        assert_partition(train, ood, combinations, n)


@pytest.mark.parametrize("held_out", [(0, 4), (1, 1), (2,), (0, 1, 2), (-1, 2)])
def test_an_explicit_combination_must_exist(held_out: tuple[int, ...]) -> None:
    with pytest.raises(SplitError, match=re.escape(f"{held_out} does not exist")):
        explicit_split(all_combinations(4, 2, distinct=True), [(0, 1), held_out])


def batch_of(n: int, split: str = "ood") -> Batch:
    counter = torch.arange(n)
    return Batch(counter[:, None, None].float(), counter[:, None], counter,
                 {"terms": counter[:, None] * 10}, split)


def test_a_batch_is_indexed_in_all_its_parts() -> None:
    batch = batch_of(6)
    assert len(batch) == 6
    assert "6 instances of ood" in repr(batch)
    for index in (slice(1, 3), torch.tensor([1, 2]), torch.arange(6).remainder(5).clamp(max=2) > 0):
        part = batch[index]
        picked = torch.arange(6)[index]
        assert part.split == "ood"
        assert part.inputs.flatten().tolist() == picked.tolist()
        assert part.targets.flatten().tolist() == picked.tolist()
        assert part.combination.tolist() == picked.tolist()
        assert part.info["terms"].flatten().tolist() == (10 * picked).tolist()


def test_batches_of_one_split_can_be_joined() -> None:
    batch = batch_of(5)
    joined = Batch.cat([batch[:2], batch[2:]])
    assert joined.split == "ood"
    for mine, whole in ((joined.inputs, batch.inputs), (joined.targets, batch.targets),
                        (joined.combination, batch.combination),
                        (joined.info["terms"], batch.info["terms"])):
        torch.testing.assert_close(mine, whole)
    with pytest.raises(SplitError, match="ood, train"):
        Batch.cat([batch, batch_of(2, "train")])
