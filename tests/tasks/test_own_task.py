"""Is a task of one's own taken where it is whole, and refused by the member that it lacks?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, make_dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import pandas as pd
import pytest
import torch
from places import EXAMPLE

import latentcode as lc
from latentcode.config import TASKS, SravenConfig, from_dict, task_from_dict, to_dict
from latentcode.devices import make_generator
from latentcode.errors import ConfigError, UnknownNameError
from latentcode.registry import import_file
from latentcode.tasks.registry import REGISTRY
from latentcode.tasks.sraven.counterfactuals import SravenCounterfactuals
from latentcode.tasks.sraven.task import Sraven, sraven_distances

pytestmark = pytest.mark.usefixtures("own_names")


@dataclass(frozen=True)
class Sizes:
    """What every configuration of a task has beside its name."""

    d_input: ClassVar[int] = 3
    d_output: ClassVar[int] = 2
    n_tokens: ClassVar[int] = 3


def config_class(
    name: str = "own", fields: Sequence[Any] = (), *, bases: tuple[type, ...] = (Sizes,),
    frozen: bool = True, **members: Any,
) -> type:
    """Return the class of a configuration with further fields and members."""
    return make_dataclass("OwnConfig", [*fields, ("name", str, name)], bases=bases, frozen=frozen,
                          namespace=members)


def whole_task(without: str = "") -> type[lc.Task]:
    """Return a class with every member but one, new for every call."""
    members = dict.fromkeys(lc.Task.__abstractmethods__)
    members |= {"constituent": "term", "headline": "accuracy"}
    members.pop(without, None)
    return type("Own", (lc.Task,), members)


def test_a_task_is_known_by_its_name() -> None:
    config = config_class()
    task = lc.register_task("own", config=config)(whole_task())
    assert task.name == "own"
    assert isinstance(lc.make_task(config()), task)
    run = lc.preset("smoke", task="own", kind="softmax")
    assert run.task == config()
    assert (run.model.d_input, run.model.d_output, run.model.n_buckets) == (3, 2, 3)
    assert from_dict(lc.RunConfig, to_dict(run)) == run
    assert task_from_dict(to_dict(config())) == config()
    with pytest.raises(ConfigError, match="task 'own' has no published setting"):
        lc.preset("paper", task="own")


@pytest.mark.parametrize("member", ["losses", "pairs", "labels", "constituent", "headline"])
def test_what_a_class_lacks_is_named(member: str) -> None:
    refused = whole_task(without=member)
    with pytest.raises(ConfigError, match=f"Own lacks {member}"):
        lc.register_task("own", config=config_class())(refused)
    assert "name" not in vars(refused)
    assert "own" not in TASKS
    assert "own" not in REGISTRY


@pytest.mark.parametrize(("config", "message"), [
    (dict, "config is dict"),
    (make_dataclass("OwnConfig", [("modulus", int, 3)], bases=(Sizes,), frozen=True), "field name"),
    (config_class(fields=[("known", dict, field(default_factory=dict))]), r"known is {}"),
    (config_class(fields=[("modulus", int, "x")]), r"modulus is 'x'; expected int"),
    (config_class(fields=[("modulus", int)]), "cannot be made.*modulus"),
    (config_class(fields=[("known", frozenset[int], frozenset({1}))]), "written to a file"),
    (config_class(bases=(), d_input=3, n_tokens=3), "d_output is None"),
    (config_class(n_tokens=0), "n_tokens is 0"),
    (config_class("other"), "expected name: Literal..own"),
    (config_class(frozen=False, bases=()), "expected a frozen dataclass"),
])
def test_a_configuration_is_one_that_runs_can_hold(config: type, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        lc.register_task("own", config=config)(whole_task())
    assert "own" not in TASKS


def test_a_taken_name_is_refused_unless_it_is_replaced() -> None:
    for name in ("logic", "language"):
        with pytest.raises(ConfigError, match=f"task '{name}' comes with latentcode"):
            lc.register_task(name, config=config_class(name))(whole_task())
    first, second = config_class(), config_class()
    lc.register_task("own", config=first)(whole_task())
    with pytest.raises(ConfigError, match="registered already"):
        lc.register_task("own", config=second)(whole_task())
    run = lc.preset("smoke", task="own")
    lc.register_task("own", config=second, replace=True)(whole_task())
    assert TASKS["own"] is second
    with pytest.raises(ConfigError, match="as task 'own' is registered now"):
        replace(run, training=run.training)  # of the class that was replaced


def test_a_task_that_nobody_registered_is_no_other_task() -> None:
    config: Any = config_class("stranger")()
    for ask in (lc.make_task, lambda task: replace(lc.preset("smoke"), task=task)):
        asked: Callable[[Any], Any] = ask
        with pytest.raises(UnknownNameError, match=r"unknown task 'stranger'.*--import FILE"):
            asked(config)


def test_readers_are_optional() -> None:
    config, marker = config_class(), object()
    lc.register_task("own", config=config)(whole_task())
    task = lc.make_task(config())
    lc.register_task("own", config=config, counterfactuals=lambda task: (marker, task),
                     replace=True)(type(task))
    assert lc.make_counterfactuals(task) == (marker, task)  # type: ignore[comparison-overlap]


def test_what_a_task_need_not_say_has_a_plain_default() -> None:
    import_file(str(EXAMPLE))
    task = lc.make_task(lc.preset("smoke", task="modadd").task)
    batch = task.sample("ood", 4, make_generator(0, "test"))
    first = task.labels(batch).iloc[0]
    assert f"sum: {first['sum']}" in task.render(batch, 0).splitlines()
    assert f"<td>{first['combination']}</td>" in task.render(batch, 0, "html")
    for html in (task.sketch(batch, 0), task.render(batch, 0, "html")):
        for position, token in enumerate(("first", "second", "answer")):
            assert f'data-token="{position}"' in html
            assert f">{token}</span>" in html
        assert f"<td>{first['combination']}</td>" in html


def test_the_last_tokens_answer() -> None:
    sraven = lc.make_task(lc.preset("smoke", task="sraven").task)
    logits = torch.randn(5, 18, 5)
    targets = torch.zeros(5, 2, dtype=torch.int64)
    assert torch.equal(sraven.answers(logits, targets), logits[:, -2:].argmax(-1))
    logic = lc.make_task(lc.preset("smoke").task)
    outputs = torch.randn(5, 8, 1)
    assert torch.equal(logic.answers(outputs, torch.zeros(5, 1)), outputs[:, -1])


def test_tokens_have_names() -> None:
    logic = lc.make_task(replace(lc.LogicConfig(), n_examples=3))
    assert logic.token_names == ("example 0", "example 1", "query (answer)")
    names = lc.make_task(lc.preset("smoke", "sraven").task).token_names
    assert (names[0], names[17]) == ("panel 1, token 0", "panel 9, token 1 (answer)")
    assert len(set(names)) == 18


@dataclass(frozen=True)
class CopiedConfig(SravenConfig):
    """SRAVEN under another name."""

    name: Literal["copied"] = "copied"  # type: ignore[assignment]

    def __post_init__(self) -> None:
        pass


@pytest.mark.slow
def test_a_task_with_readers_is_as_good_as_one_of_the_library(tmp_path: Path) -> None:
    class Copied(Sraven):
        name = "copied"

    lc.register_task("copied", config=CopiedConfig, counterfactuals=SravenCounterfactuals,
                     distances=sraven_distances)(Copied)
    built_in = lc.preset("smoke", "sraven", "hyla")
    same = replace(built_in, task=CopiedConfig(
        n_features=built_in.task.n_features, n_values=built_in.task.n_values, permuted=False))
    runs = [lc.train(config, tmp_path / config.task.name, progress=False)
            for config in (built_in, same)]
    pd.testing.assert_frame_equal(runs[0].metrics(), runs[1].metrics())
    chosen = [lc.Patch("interchange", "everything", (0, 1))]
    results = [lc.intervene(run, interventions=chosen, n=400, factorial=False) for run in runs]
    assert results[1].settings["task"]["name"] == "copied"
    pd.testing.assert_frame_equal(results[0].table, results[1].table)
    tables = [lc.topography(run, n=200).table for run in runs]
    pd.testing.assert_frame_equal(*(table.drop(columns="run", errors="ignore")
                                    for table in tables))
