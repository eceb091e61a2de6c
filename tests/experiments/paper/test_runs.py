"""Which runs count for a setting, and which are missing?"""

import json
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

import latentcode as lc
from latentcode.config import RunConfig
from latentcode.errors import RunError
from latentcode.experiments.paper.claims import Setting
from latentcode.experiments.paper.runs import (
    KnownRuns,
    find_runs,
    folder_name,
    minutes,
    missing,
    seeded,
    signature,
    split_seed,
)
from latentcode.models.config import kind_of
from latentcode.runs.run import TIMING

SETTING = Setting("smoke", "logic", ("kind=softmax,hyla",))
SHORT = Setting("smoke", "logic", ("kind=hyla", "training.steps=12"))


def changed(config: RunConfig, section: str, **values: object) -> RunConfig:
    return replace(config, **{section: replace(getattr(config, section), **values)})


def test_seeds_precision_and_evaluations_do_not_tell_runs_apart() -> None:
    config = lc.preset("smoke", "logic", "hyla")
    for same in (seeded(config, 5), changed(config, "training", precision="bf16_mlp"),
                 changed(config, "training", eval_every=7, milestones=(3,), device="cuda")):
        assert signature(same) == signature(config)
    for other in (changed(config, "training", steps=31), changed(config, "task", ood_fraction=0.4),
                  changed(config, "training", weight_decay=0.2),
                  changed(config, "model", attention_dropout=0.2)):
        assert signature(other) != signature(config)
    assert len({folder_name(seeded(config, seed, split)) for seed in range(3)
                for split in (None, 3)}) == 6
    assert folder_name(seeded(config, 2, 2)) == folder_name(seeded(config, 2))


def test_a_language_model_counts_whatever_the_state_of_its_text_with_every_seed() -> None:
    config = Setting("smoke", "language", ("kind=hyla",)).grid.members()["kind=hyla"]
    config = changed(config, "task", text="here")
    assert signature(changed(config, "task", revision="1-2")) == signature(config)
    assert signature(changed(config, "task", text="there")) != signature(config)
    seeds = [seeded(config, seed) for seed in range(3)]
    assert {signature(one) for one in seeds} == {signature(config)}
    assert [split_seed(one) for one in seeds] == [one.training.seed for one in seeds] == [0, 1, 2]


def trained(path: Path, config: RunConfig) -> lc.Run:
    return lc.train(config, path, progress=False)


def test_runs_are_found_once_and_what_is_missing_is_named(tmp_path: Path) -> None:
    config, = SHORT.grid.members().values()
    run = trained(tmp_path / "a" / "one", changed(seeded(config, 1), "training", eval_every=6))
    run.publish(tmp_path / "b" / "copy")
    lc.Run.create(tmp_path / "c", seeded(config, 0))  # begun, which does not count
    known = find_runs([tmp_path, tmp_path / "a"])
    assert [found.id for found in known.of(config)] == [run.id]
    wanted = missing(known, [SHORT, SHORT], 3)
    assert [split_seed(config) for config in wanted.values()] == [0, 2]
    assert set(wanted) == {folder_name(seeded(config, seed)) for seed in (0, 2)}
    assert missing(known, [SHORT], 1) == {}
    assert len(missing(known, [SETTING], 2)) == 4
    with pytest.raises(RunError, match="no folder"):
        find_runs([tmp_path / "none"])


def known_of(**seeds: list[tuple[int, int]]) -> KnownRuns:
    """Runs of each kind, by the seeds of split and model."""
    return KnownRuns({signature(config): tuple(
        SimpleNamespace(config=seeded(config, seed, split))
        for split, seed in seeds[name.removeprefix("kind=")])
        for name, config in SETTING.grid.members().items()})  # type: ignore[misc]


def told(lacking: Mapping[str, RunConfig]) -> list[tuple[str, int, int]]:
    """Return the kinds of runs, with their seeds of split and model."""
    return [(kind_of(config.model), split_seed(config), config.training.seed)
            for config in lacking.values()]


def test_a_missing_run_takes_the_seeds_that_others_have_on_its_split() -> None:
    def lacking(found: KnownRuns) -> list[tuple[str, int, int]]:
        return told(missing(found, [SETTING], 3))

    assert lacking(known_of(softmax=[(0, 0), (1, 1)], hyla=[(0, 0), (1, 1), (2, 0)])) == [
        ("softmax", 2, 0)]
    assert lacking(known_of(softmax=[(0, 0), (1, 1), (2, 0), (2, 1)], hyla=[(1, 0), (1, 1)])) == [
        ("hyla", 0, 0), ("hyla", 2, 0)]
    assert lacking(known_of(softmax=[(0, 1)], hyla=[])) == [
        ("softmax", 1, 1), ("softmax", 2, 2), ("hyla", 0, 1), ("hyla", 1, 1), ("hyla", 2, 2)]


def test_members_that_are_compared_by_seed_need_runs_of_the_same_seeds() -> None:
    def lacking(found: KnownRuns) -> list[tuple[str, int, int]]:
        return told(missing(found, [], 3, [SETTING]))

    # Three splits each, but only two pairs of seeds that both have.
    some = known_of(softmax=[(0, 0), (1, 1), (2, 2)], hyla=[(0, 0), (1, 1), (2, 0), (0, 1)])
    assert missing(some, [SETTING], 3) == {}
    assert lacking(some) == [("hyla", 2, 2)]
    assert lacking(known_of(softmax=[(0, 0)], hyla=[])) == [
        ("softmax", 1, 1), ("softmax", 2, 2), ("hyla", 0, 0), ("hyla", 1, 1), ("hyla", 2, 2)]
    assert lacking(known_of(softmax=[(0, 0), (1, 1), (2, 0)], hyla=[(0, 0)])) == [
        ("hyla", 1, 1), ("hyla", 2, 0)]
    whole = [(0, 0), (1, 1), (2, 1)]
    assert lacking(known_of(softmax=whole, hyla=whole)) == []
    assert len(missing(KnownRuns({}), [], 3, [SETTING])) == 6


def test_a_training_that_was_repeated_counts_once(tmp_path: Path) -> None:
    config, = SHORT.grid.members().values()
    first = trained(tmp_path / "a", config)

    def repeated(name: str, **training: object) -> lc.Run:
        run = lc.Run.create(tmp_path / name, changed(config, "training", **training))
        shutil.copytree(first.path / "checkpoints", run.path / "checkpoints", dirs_exist_ok=True)
        return run

    again = repeated("b", eval_every=6)
    assert again.is_complete
    assert first.id != again.id
    assert [run.id for run in find_runs([tmp_path]).of(config)] == [first.id]
    # Of several precisions float32 counts, wherever it is found.
    shorter = repeated("A", precision="bf16_mlp")
    assert [run.id for run in find_runs([shorter.path]).of(config)] == [shorter.id]
    for order in ([shorter.path, first.path], [first.path, shorter.path]):
        assert [run.id for run in find_runs(order).of(config)] == [first.id]


def test_attempts_are_added_up(tmp_path: Path) -> None:
    assert minutes(tmp_path) is None
    records = (("start", 30.0), ("evaluation", 330.0), ("start", 10.0), ("evaluation", 60.0),
               ("end", 210.0), ("start", 60.0))
    lines = [json.dumps({"event": event, "seconds": seconds}) for event, seconds in records]
    (tmp_path / TIMING).write_text("\n".join([*lines, '{"event": "ev']), encoding="utf-8")
    assert minutes(tmp_path) == 10.0
