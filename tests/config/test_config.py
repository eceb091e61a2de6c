"""Does a configuration survive the way to YAML and back, and is every bad value named?"""

from __future__ import annotations

import copy
import dataclasses
import math
import os
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from latentcode.config import (
    LATER,
    LanguageConfig,
    LogicConfig,
    RunConfig,
    SravenConfig,
    TaskConfig,
    TrainingConfig,
    config_hash,
    from_dict,
    load_config,
    parse_yaml,
    to_dict,
    to_yaml,
)
from latentcode.errors import ConfigError, LatentCodeError, UnknownNameError
from latentcode.files.storage import read_json
from latentcode.models.config import ATTENTION_KINDS, ModelConfig, with_kind
from latentcode.presets import preset
from latentcode.prompts import Prompts
from latentcode.registry import import_file
from latentcode.sweep import load_grid

pytestmark = pytest.mark.usefixtures("unchecked_signatures")

property_test = settings(max_examples=60)
fractions = st.floats(0.0, 1.0, exclude_max=True)
seeds = st.integers(0, 2**63 - 1)
held_out = st.none() | st.lists(
    st.tuples(st.integers(0, 11), st.integers(0, 11)), max_size=4).map(tuple)


@st.composite
def logic_configs(draw: st.DrawFn) -> LogicConfig:
    return LogicConfig(
        n_variables=draw(st.integers(2, 8)), n_terms=draw(st.integers(1, 2)),
        n_examples=draw(st.integers(2, 100)), ood_fraction=draw(fractions),
        unknown_fraction=draw(st.floats(0.0, 0.5)), split_seed=draw(seeds),
        inputs=draw(st.sampled_from(["uniform", "fixed_context", "fixed_query"])),
        held_out=draw(held_out))


@st.composite
def sraven_configs(draw: st.DrawFn) -> SravenConfig:
    grid_size = draw(st.integers(2, 5))
    return SravenConfig(
        n_features=draw(st.integers(1, 8)), n_values=draw(st.integers(grid_size, 20)),
        grid_size=grid_size, permuted=draw(st.booleans()), ood_fraction=draw(fractions),
        rule_order=draw(st.sampled_from(["random", "sorted"])), split_seed=draw(seeds),
        held_out=draw(held_out))


@st.composite
def training_configs(draw: st.DrawFn) -> TrainingConfig:
    steps = draw(st.integers(1, 10**6))
    numbers = st.integers(1, 10**6)
    return TrainingConfig(
        steps=steps, warmup_steps=draw(st.integers(0, (steps - 1) // 2)),
        batch_size=draw(numbers), eval_every=draw(numbers), eval_instances=draw(numbers),
        log_every=draw(numbers), checkpoint_every=draw(numbers), seed=draw(seeds),
        learning_rate=draw(st.floats(0.0, 1e3)), weight_decay=draw(st.floats(0.0, 10.0)),
        grad_clip=draw(st.none() | st.floats(1e-300, 1e300)),
        keep_checkpoints=draw(st.none() | numbers),
        milestones=tuple(sorted(draw(st.sets(st.integers(1, steps), max_size=3)))),
        device=draw(st.sampled_from(["cpu", "cuda", "cuda:3"])),
        precision=draw(st.sampled_from(["float32", "bf16_mlp", "bf16"])))


@st.composite
def run_configs(draw: st.DrawFn) -> RunConfig:
    task: TaskConfig = draw(st.one_of(logic_configs(), sraven_configs()))
    sizes: dict[str, Any] = {name: draw(st.integers(1, 64)) for name in (
        "n_layers", "d_model", "n_heads", "d_head_v", "d_mlp")}
    model = with_kind(ModelConfig(
        d_input=task.d_input, d_output=task.d_output, d_head=2 * draw(st.integers(1, 8)), **sizes,
        attention_dropout=draw(fractions), causal=draw(st.booleans()),
        positions=draw(st.sampled_from(["t5", "rotary", "none"]))),
        draw(st.sampled_from(sorted(ATTENTION_KINDS))))
    return RunConfig(task, model, draw(training_configs()))


# --- Out and in again -----------------------------------------------------------------------------


@property_test
@given(run_configs())
@example(RunConfig(LanguageConfig(n_vocabulary=50, n_tokens=9),
                   ModelConfig(50, 50, embedding="token", readout="tied")))
def test_yaml_round_trip(config: RunConfig) -> None:
    text = to_yaml(config)
    read = from_dict(RunConfig, parse_yaml(text))
    assert read == config
    assert to_yaml(read) == text
    assert config_hash(read) == config_hash(config)


@property_test
@given(run_configs(), run_configs())
def test_the_hash_tells_configurations_apart(a: RunConfig, b: RunConfig) -> None:
    assert (config_hash(a) == config_hash(b)) == (a == b)


def test_the_hash_is_pinned() -> None:
    """Runs on disk are recognised by it."""
    assert config_hash(RunConfig()) == "8709e906dce2"


def test_an_integer_for_a_float_is_the_same_configuration() -> None:
    """A run that was started with weight_decay=0 must find itself again."""
    mine = RunConfig(training=TrainingConfig(weight_decay=0, learning_rate=1))
    again = from_dict(RunConfig, parse_yaml(to_yaml(mine)))
    assert mine == again
    assert config_hash(mine) == config_hash(again)


@pytest.mark.parametrize("cls", [LogicConfig, SravenConfig])
def test_held_out_combinations_may_be_lists_or_arrays(
    cls: type[LogicConfig] | type[SravenConfig]
) -> None:
    wanted = cls(held_out=((0, 1), (2, 3)))
    for value in ([[0, 1], [2, 3]], np.array([[0, 1], [2, 3]]), [(np.int64(0), 1), (2, 3)]):
        config = cls(held_out=value)  # type: ignore[arg-type]
        assert config == wanted
        assert config_hash(config) == config_hash(wanted)
    for bad in ([0, 1], [[0.5, 1]], [["a", "b"]], 3):
        with pytest.raises(ConfigError, match=r"task\.held_out is "):
            cls(held_out=bad)  # type: ignore[arg-type]


@pytest.mark.parametrize(("text", "value"), [
    ("1e-3", 1e-3), ("1E+2", 100.0), ("2e0", 2.0), ("1.5e-3", 1.5e-3), ("1", 1.0), (".5", 0.5)])
def test_numbers_are_read_as_people_write_them(text: str, value: float) -> None:
    yaml_text = to_yaml(RunConfig()).replace("learning_rate: 0.001", f"learning_rate: {text}")
    learning_rate = from_dict(RunConfig, parse_yaml(yaml_text)).training.learning_rate
    assert learning_rate == value
    assert type(learning_rate) is float


def test_fields_keep_the_order_of_the_class() -> None:
    data = yaml.safe_load(to_yaml(RunConfig()))
    assert list(data) == ["task", "model", "training"]
    names = [f.name for f in dataclasses.fields(TrainingConfig)]
    later = [f.name for f in dataclasses.fields(TrainingConfig) if LATER in f.metadata]
    assert list(data["training"]) == [name for name in names if name not in later]
    config = RunConfig(training=TrainingConfig(
        milestones=(5, 20), accumulate=2, checkpoint_activations=True, compile=True))
    assert list(yaml.safe_load(to_yaml(config))["training"]) == names
    assert from_dict(RunConfig, parse_yaml(to_yaml(config))) == config


# --- Every key, one at a time ---------------------------------------------------------------------


RUNS = (RunConfig(),
        RunConfig(SravenConfig(), ModelConfig(d_input=8, d_output=8)))


def places(data: dict[str, Any], prefix: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The path of every key of nested dictionaries."""
    for key, value in data.items():
        yield (*prefix, key)
        if isinstance(value, dict):
            yield from places(value, (*prefix, key))


ALL_PLACES = [pytest.param(run, path, id=f"{run.task.name}:{'.'.join(path)}")
              for run in RUNS for path in places(to_dict(run))]


def edited(run: RunConfig, path: tuple[str, ...]) -> tuple[dict[str, Any], dict[str, Any]]:
    """A copy of a configuration's data, and the mapping in it that holds the last key."""
    data = copy.deepcopy(to_dict(run))
    inner = data
    for key in path[:-1]:
        inner = inner[key]
    return data, inner


@pytest.mark.parametrize(("run", "path"), ALL_PLACES)
def test_a_missing_key_is_named(run: RunConfig, path: tuple[str, ...]) -> None:
    data, inner = edited(run, path)
    del inner[path[-1]]
    with pytest.raises(ConfigError) as raised:
        from_dict(RunConfig, data)
    if path == ("task", "name"):
        assert "task is" in str(raised.value)
        assert "expected a mapping with a name" in str(raised.value)
    else:
        owner = ".".join(path[:-1]) or "configuration"
        assert str(raised.value) == f"{owner} lacks key(s) {path[-1]}"


@pytest.mark.parametrize(("run", "path"), ALL_PLACES)
@pytest.mark.parametrize("wrong", [b"wrong", ["wrong"], 1 + 2j])
def test_a_value_of_the_wrong_type_is_named(
    run: RunConfig, path: tuple[str, ...], wrong: object
) -> None:
    data, inner = edited(run, path)
    inner[path[-1]] = wrong
    with pytest.raises(ConfigError) as raised:
        from_dict(RunConfig, data)
    assert ".".join(path) in str(raised.value)
    assert repr(wrong) in str(raised.value) or repr(wrong[0]) in str(raised.value)  # type: ignore[index]


@pytest.mark.parametrize("path", [
    (section, name)
    for section, cls in (("task", LogicConfig), ("model", ModelConfig),
                         ("training", TrainingConfig))
    for name, hint in get_type_hints(cls).items() if hint in (float, float | None)])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -1.0])
def test_numbers_must_be_finite_and_not_negative(path: tuple[str, str], value: float) -> None:
    data, inner = edited(RunConfig(), path)
    inner[path[1]] = value
    with pytest.raises(ConfigError) as raised:
        from_dict(RunConfig, data)
    assert f"{'.'.join(path)} is {value!r}; expected" in str(raised.value)


@pytest.mark.parametrize(("where", "path"), [
    ("configuration", ()), ("task", ("task",)), ("model", ("model",)),
    ("training", ("training",))])
def test_an_unknown_key_is_named_with_the_valid_ones(where: str, path: tuple[str, ...]) -> None:
    data, inner = edited(RunConfig(), (*path, "learning_rates"))
    inner["learning_rates"] = 1
    valid = list(inner)[:-1]
    if where == "training":
        valid += ["milestones", "accumulate", "checkpoint_activations", "compile"]
    with pytest.raises(ConfigError) as raised:
        from_dict(RunConfig, data)
    assert str(raised.value) == (
        f"{where} has unknown key(s) learning_rates; expected: {', '.join(valid)}")


# --- Values out of range --------------------------------------------------------------------------


OUT_OF_RANGE: list[tuple[type[Any], str, dict[str, tuple[object, ...]]]] = [
    (LogicConfig, "task", {
        "n_variables": (0, 17, True, 2.0), "n_terms": (0, 13), "n_examples": (1,),
        "ood_fraction": (1.0, "0.5"), "unknown_fraction": (-0.1,), "split_seed": (-1, 2**63),
        "inputs": ("fixed",), "name": ("sraven",)}),
    (SravenConfig, "task", {
        "n_features": (0, 9), "n_values": (1,), "grid_size": (1,), "ood_fraction": (1.5,),
        "rule_order": ("rising",), "split_seed": (0.0,)}),
    (TrainingConfig, "training", {
        "steps": (0, 10**20), "batch_size": ("many",), "eval_every": (0,), "eval_instances": (-5,),
        "log_every": (None,), "checkpoint_every": (0,), "accumulate": (0,), "compile": (1,),
        "keep_checkpoints": (0,), "milestones": ((3, 3), (0,), (50_001,), 5), "seed": (-1,),
        "warmup_steps": (-1, 25_000), "learning_rate": ("fast",), "grad_clip": (0.0,),
        "precision": ("fp16", "tf32"),
        "device": ("gpu", "cuda:", "cuda:x", "cpu:0", "cuda:²", "", 0)}),
    (ModelConfig, "model", {
        "n_heads": (True,), "d_model": (2.0,), "n_layers": ("2", 10**9), "causal": (1,),
        "cross_attention": (None,), "attention_dropout": (False, "0.1", math.nan)}),
]


@pytest.mark.parametrize(("cls", "place", "field", "value"), [
    (cls, f"{section}.{field}", field, value) for cls, section, fields in OUT_OF_RANGE
    for field, values in fields.items() for value in values])
def test_a_value_out_of_range_is_named(
    cls: type[Any], place: str, field: str, value: object
) -> None:
    with pytest.raises(ConfigError) as raised:
        cls(**{field: value})
    assert str(raised.value).startswith((f"{place} is {value!r}; expected",
                                         f"unknown {place} {value!r}; expected one of"))


@pytest.mark.parametrize(("cls", "fields", "message"), [
    (LogicConfig, {"n_variables": 16, "n_terms": 20_000}, "task.n_terms is 20000; "),
    (LogicConfig, {"n_variables": 10, "n_terms": 3, "unknown_fraction": 0.95},
     "task.n_terms is 3; sets of that many out of 972 terms"),
    (SravenConfig, {"n_values": 3, "grid_size": 4}, "task.n_values is 3; expected at least grid_"),
    (TrainingConfig, {"steps": 100, "warmup_steps": 50}, "training.warmup_steps is 50; expected"),
    (TrainingConfig, {"steps": 199, "warmup_steps": 101}, "training.warmup_steps is 101; expected"),
    (RunConfig, {"task": LogicConfig(n_variables=5)},
     "model.d_input is 5; expected 6, the d_input of task 'logic'"),
    (RunConfig, {"task": SravenConfig(), "model": ModelConfig(d_input=8)},
     "model.d_output is 1; expected 8"),
    (RunConfig, {"model": ModelConfig(embedding="token")},
     "model.embedding is 'token'; expected 'dense'"),
    (RunConfig, {"model": ModelConfig(cross_attention=True)},
     "model.cross_attention is True; expected"),
    (RunConfig, {"task": LanguageConfig(n_vocabulary=50), "model": ModelConfig(50, 50)},
     "model.embedding is 'dense'; expected 'token' for task"),
    (LanguageConfig, {"n_tokens": 0}, "task.n_tokens is 0"),
])
def test_fields_must_fit_each_other(
    cls: type[Any], fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        cls(**fields)
    assert str(raised.value).startswith(message)


# --- Files ----------------------------------------------------------------------------------------


def test_a_configuration_is_loaded_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    config = RunConfig(training=TrainingConfig(steps=1234))
    path.write_text(to_yaml(config))
    assert load_config(path) == load_config(str(path)) == config
    with pytest.raises(ConfigError, match=r"cannot read configuration .*none\.yaml"):
        load_config(tmp_path / "none.yaml")


def test_the_warm_up_follows_few_steps() -> None:
    training = preset("small").training
    assert [dataclasses.replace(training, steps=steps).warmup_steps
            for steps in (1, 20, 200, 201, 4_000)] == [0, 1, 10, 100, 100]


@pytest.mark.parametrize("read", [load_config, load_grid, read_json, Prompts.read, import_file])
def test_a_pipe_is_not_waited_for(tmp_path: Path, read: Callable[[Any], object]) -> None:
    os.mkfifo(path := tmp_path / "pipe.py")
    with pytest.raises(LatentCodeError, match=r"is a pipe or a device|no such file"):
        read(path)


@pytest.mark.parametrize(("content", "message"), [
    (b"", "configuration is None; expected a mapping"),
    (b"- 1", r"configuration is \[1\]; expected a mapping"),
    (b"a: [", "is not valid YAML"), (b"a: 1\nb: 2\na: 3", "not valid YAML: .* twice: a"),
    (b"\xff\xfe\x00", "cannot read configuration"), (b"[" * 1_000, "not valid YAML"),
    (b"{task: {name: chess}, model: {}, training: {}}",
     "unknown task 'chess'; expected one of: logic, sraven"),
    (b"a: !!python/object/apply:os.getcwd []", "not valid YAML"),
])
def test_a_damaged_file_is_a_config_error(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "config.yaml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=message) as raised:
        load_config(path)
    assert str(path) in str(raised.value)


def test_a_number_too_large_for_a_float_is_named() -> None:
    text = to_yaml(RunConfig()).replace("weight_decay: 0.1", f"weight_decay: 1{'0' * 400}")
    with pytest.raises(ConfigError, match=r"training\.weight_decay is too large"):
        from_dict(RunConfig, parse_yaml(text))


def test_errors_travel_between_processes() -> None:
    error = UnknownNameError("split", "valid", ["train", "ood"])
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error) == "unknown split 'valid'; expected one of: train, ood"
    assert (again.what, again.name, again.valid) == ("split", "valid", ("train", "ood"))
