"""Grids: members, their names, and errors that say what is wrong."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import latentcode as lc
from latentcode.config import parse_yaml, to_dict
from latentcode.errors import ConfigError
from latentcode.models.config import ATTENTION_KINDS
from latentcode.sweep import GRIDS, Grid, load_grid, parse_axis, read_grid

BASE = {"preset": "smoke", "task": "logic"}


def read(text: str) -> Grid:
    return read_grid(parse_yaml(text, "grid.yaml"), "grid.yaml")


def test_every_combination_is_a_member() -> None:
    grid = read("""
        base: {preset: smoke, task: logic, training.steps: 40}
        axes: {kind: [softmax, hyla], training.learning_rate: [1e-3, 3e-3], training.seed: [0, 1]}
    """)
    members = grid.members()
    assert list(members) == [
        f"kind={kind},learning_rate={rate},seed={seed}"
        for kind in ("softmax", "hyla") for rate in (0.001, 0.003) for seed in (0, 1)]
    config = members["kind=hyla,learning_rate=0.003,seed=1"]
    wanted = lc.preset("smoke", "logic", "hyla")
    assert config.model == wanted.model
    assert config.task == wanted.task
    training = config.training
    assert (training.steps, training.learning_rate, training.seed) == (40, 0.003, 1)
    assert grid.points()["kind=softmax,learning_rate=0.001,seed=1"] == {
        "kind": "softmax", "training.learning_rate": 0.001, "training.seed": 1}


def test_fields_vary_together() -> None:
    grid = read_grid({"base": BASE, "axes": {
        "training.seed+task.split_seed": [[0, 5], [1, 6]]}}, "here")
    assert list(grid.members()) == ["seed=0,split_seed=5", "seed=1,split_seed=6"]
    assert [(c.training.seed, c.task.split_seed)  # type: ignore[union-attr]
            for c in grid.members().values()] == [(0, 5), (1, 6)]


def test_the_model_follows_the_task_unless_it_was_given_values_of_its_own() -> None:
    axes = {"task.n_variables": [3, 4], "task.n_examples": [8, 16]}
    models = {name: config.model for name, config in
              read_grid({"base": BASE, "axes": axes}, "here").members().items()}
    model = models["n_variables=4,n_examples=16"]
    assert (model.d_input, model.n_buckets, model.max_distance) == (5, 16, 16)
    own = {**BASE, "model.n_buckets": 4}
    models = {name: config.model for name, config in
              read_grid({"base": own, "axes": axes}, "here").members().items()}
    assert models["n_variables=4,n_examples=16"].n_buckets == 4
    assert models["n_variables=4,n_examples=16"].max_distance == 16


def test_names_tell_members_apart_and_are_names_of_files() -> None:
    held_out = [[[0, 1]], [[0, 2]]]
    grid = Grid(lc.preset("smoke", "logic"), {
        "task.held_out": tuple(held_out), "training.grad_clip": (None, 1.5),
        "task.split_seed": (0,), "model.feedforward": ("gelu", "moe")})
    names = list(grid.members())
    assert len(set(names)) == 8
    assert all(re.fullmatch(r"[A-Za-z0-9_.+=,~-]+", name) for name in names)
    assert names[0].endswith(",grad_clip=null,split_seed=0,feedforward=gelu")
    long = Grid(lc.preset("smoke", "logic"), {
        f"training.{name}": (value,) for name, value in to_dict(
            lc.preset("smoke", "logic").training).items()
        if name not in ("device", "precision", "seed")} | {
            "model.d_model": (16,), "training.seed": (0, 1)})
    assert len(set(long.members())) == 2
    assert max(map(len, long.members())) <= 150


@pytest.mark.parametrize(("change", "message"), [
    ({"axis": {}}, "the grid has unknown key(s) axis"),
    ({"axes": {}}, "a grid has no axes"),
    ({"axes": [1]}, "axes is [1]; expected a mapping"),
    ({"axes": {"training.seed": []}}, "axis training.seed is empty"),
    ({"axes": {"training.seed": 3}}, "axes.training.seed is 3; expected a list"),
    ({"axes": {3: [3]}}, "a key of axes is 3; expected str"),
    *(({"axes": {axis: [1]}}, f"unknown axis '{axis}'")
      for axis in ("training.sed", "seed", "training", "task.name")),
    ({"base": {**BASE, "training.size": 3}}, "unknown axis 'training.size'"),
    ({"axes": {"kind": [["hyla"]]}}, "attention kind"),
    ({"axes": {"task.n_features": [2, 3]}},
     "member n_features=2: task has unknown key(s) n_features"),
    ({"axes": {"training.seed": [0, "1"]}}, "member seed=1: training.seed is '1'; expected int"),
    ({"axes": {"training.seed": [0, True]}}, "training.seed is True"),
    ({"axes": {"training.seed": [0, 0]}}, "member seed=0 occurs twice"),
    ({"axes": {"training.grad_clip": [1, 1.0]}}, "are the same model"),
    ({"axes": {"kind": ["hyla", "hylla"]}}, "member kind=hylla: unknown attention kind 'hylla'"),
    ({"axes": {"kind": ["hyla"], "model.value_network": ["hyla", "linear"],
               "model.nonlinearity": ["relu", "identity"],
               "model.normalization+training.seed": [["softmax", 0], ["softmax", 0]]}},
     "occurs twice"),
    ({"axes": {"training.seed+task.split_seed": [[0, 1], [2]]}}, "has the value [2]; expected a"),
    ({"axes": {"training.seed+task.split_seed": [3]}}, "has the value 3; expected a list of 2"),
    ({"axes": {"training.seed": [0], "training.seed+task.split_seed": [[0, 0]]}},
     "training.seed is on several axes"),
    ({"axes": {"training.device": ["cpu"]}}, "one device for the whole grid"),
    ({"axes": {"training.warmup_steps": [5, 15]}},
     "member warmup_steps=15: training.warmup_steps is 15; expected less than half"),
    ({"base": None}, "base is None"),
    ({"base": {"preset": "smoke"}}, "base lacks key(s) task"),
    ({"base": {**BASE, "size": 3}}, "base has unknown key(s) size"),
    ({"base": {**BASE, "preset": "big"}}, "unknown preset 'big'"),
    ({"base": {"config": {}}}, "configuration lacks key(s) task, model, training"),
    ({"base": {"config": {}, **BASE}}, "base has unknown key(s) preset, task"),
])
def test_what_is_wrong_with_a_grid_is_said(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        read_grid({"base": BASE, "axes": {"training.seed": [0]}, **change}, "grid.yaml")
    assert str(raised.value).startswith("grid.yaml: ")
    assert message in str(raised.value)


@pytest.mark.parametrize("data", [None, 3, [], "text", {"axes": {"training.seed": [0]}}])
def test_what_is_no_grid_is_refused(data: object) -> None:
    with pytest.raises(ConfigError, match=r"grid\.yaml: the grid (is|lacks)"):
        read_grid(data, "grid.yaml")


@pytest.mark.parametrize(("text", "message"), [
    ("", "expected a field and values"), ("kind", "expected a field and values"),
    ("kind=", "expected a field and values"), ("=3", "expected a field and values"),
    ("kind=[", "is not valid YAML"), ("kind={a: 1, a: 2}", "given twice"),
])
def test_what_is_wrong_with_a_flag_is_said(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        parse_axis(text)


def test_flags_are_read_as_yaml_reads_them() -> None:
    assert parse_axis("training.learning_rate=1e-3,3e-3,1") == (
        "training.learning_rate", (0.001, 0.003, 1))
    assert parse_axis("kind=softmax, hyla") == ("kind", ("softmax", "hyla"))
    assert parse_axis("training.grad_clip=null,1") == ("training.grad_clip", (None, 1))
    assert parse_axis("a+b=[0,1],[2,3]") == ("a+b", ([0, 1], [2, 3]))


@given(st.dictionaries(
    st.sampled_from(["training.seed", "task.split_seed", "training.learning_rate",
                     "model.n_layers", "training.weight_decay"]),
    st.lists(st.integers(1, 50), min_size=1, max_size=3, unique=True), min_size=1, max_size=3))
def test_a_kept_grid_is_the_grid(axes: dict[str, list[int]]) -> None:
    grid = read_grid({"base": BASE, "axes": axes}, "here")
    text = grid.to_yaml()
    again = read_grid(parse_yaml(text, "again"), "again")
    assert again == grid
    assert list(again.members().items()) == list(grid.members().items())
    assert grid.differences(again) == []


def test_differences_are_named() -> None:
    grid = Grid(lc.preset("smoke", "logic"), {"training.seed": (0, 1)})
    other = Grid(lc.preset("smoke", "logic", "softmax"), {"training.seed": (0, 2)})
    assert grid.differences(other)[:2] == [
        "axis training.seed: [0, 1] in the sweep, [0, 2] asked for",
        "model.normalization: 'rms_head' in the sweep, 'softmax' asked for"]


@pytest.mark.parametrize("name", GRIDS)
def test_the_grids_of_the_library(name: str) -> None:
    grid = load_grid(name)
    # A run can move to a machine without bfloat16; the language models are the exception,
    # whose feed-forward layers are most of their time.
    assert grid.base.training.precision == ("bf16_mlp" if name == "fig6_small" else "float32")
    if name.startswith("paper"):
        published = lc.preset("paper", name.split("_")[1])
        looks = {field: getattr(published.training, field)
                 for field in ("eval_every", "checkpoint_every", "milestones")}
        if name == "paper_sraven_confirm":  # at the other learning rate of Table A3
            looks["learning_rate"] = published.training.learning_rate
            assert grid.base.training.learning_rate == 3e-4
        assert replace(grid.base, training=replace(grid.base.training, **looks)) == published


@pytest.mark.parametrize("task", ["logic", "sraven"])
def test_the_published_grids_are_the_rows_of_table_a1(task: str) -> None:
    grids = [load_grid(f"paper_{task}"), load_grid(f"paper_{task}_ablations")]
    kinds = [kind for grid in grids for kind in grid.axes["kind"]]
    assert sorted(kinds) == sorted(ATTENTION_KINDS)


def test_files_and_names(tmp_path: Path) -> None:
    (tmp_path / "grid.yaml").write_text("base: {preset: smoke, task: logic}\naxes: {kind: [hyla]}")
    assert list(load_grid(tmp_path / "grid.yaml").members()) == ["kind=hyla"]
    with pytest.raises(ConfigError, match=r"cannot read grid .*nowhere\.yaml"):
        load_grid(tmp_path / "nowhere.yaml")
    with pytest.raises(ConfigError, match="unknown grid 'table_a9'; expected one of: sraven_known"):
        load_grid("table_a9")
