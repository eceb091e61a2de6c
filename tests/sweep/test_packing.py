"""Packing: who shares an ensemble, and how groups are cut."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

import latentcode as lc
from latentcode.config import RunConfig
from latentcode.sweep.grid import Grid, with_fields
from latentcode.sweep.run import pack
from latentcode.training.ensemble import ensemble_key

BASE = lc.preset("smoke", "logic", "softmax")


def configs(axes: dict[str, tuple[object, ...]], base: RunConfig = BASE) -> dict[Path, RunConfig]:
    return {Path(name): config for name, config in Grid(base, axes).members().items()}


def test_members_of_one_shape_share_whatever_their_seeds_splits_and_settings() -> None:
    members = configs({"kind": ("softmax", "hyla"), "training.seed": (0, 1),
                       "training.learning_rate": (0.001, 0.003), "training.weight_decay": (0, 0.1),
                       "training.warmup_steps": (2, 5), "task.split_seed": (0, 1)})
    assert [len(job) for job in pack(members, 1_000)] == [32, 32]
    for axis in ("training.batch_size", "training.steps", "model.n_layers", "task.n_examples"):
        other = {Path("other"): with_fields(BASE, {axis: 40})}
        assert len(pack({**members, **other}, 1_000)) == 3


@given(st.lists(st.sampled_from(["softmax", "hyla", "linear"]), min_size=1, max_size=12),
       st.integers(1, 5))
def test_every_member_is_in_one_group_that_can_share(kinds: list[str], most: int) -> None:
    members = {Path(str(i)): with_fields(BASE, {"kind": kind, "training.seed": i})
               for i, kind in enumerate(kinds)}
    jobs = pack(members, most)
    assert sorted(path for job in jobs for path in job) == sorted(members)
    for job in jobs:
        assert 1 <= len(job) <= most
        assert list(job) == [path for path in members if path in job]
        assert len({ensemble_key(config) for config in job.values()}) == 1
    assert len(jobs) == sum(-(-kinds.count(kind) // most) for kind in set(kinds))
    for kind in set(kinds):
        sizes = [len(job) for job in jobs
                 if kinds[int(next(iter(job)).name)] == kind]
        assert max(sizes) - min(sizes) <= 1
    firsts = [int(next(iter(job)).name) for job in jobs]
    assert firsts == sorted(firsts)


def test_members_go_on_together_only_from_a_checkpoint_that_all_have() -> None:
    members = configs({"training.seed": (0, 1, 2, 3, 4)})
    paths = list(members)
    checkpoints = {paths[0]: [10, 20], paths[2]: [20, 30], paths[3]: [30, 40]}
    assert [list(job) for job in pack(members, 10, checkpoints)] == [
        [paths[0], paths[2]], [paths[1], paths[4]], [paths[3]]]


def test_a_member_that_broke_long_ago_does_not_hold_the_others_back() -> None:
    members = configs({"training.seed": (0, 1, 2, 3)})
    names = list(members)
    steps = dict(zip(names, [(0, 100), (800, 900), (900, 1_000), (800, 900)], strict=True))
    assert [list(job) for job in pack(members, 10, steps)] == [[names[0]], names[1:]]
