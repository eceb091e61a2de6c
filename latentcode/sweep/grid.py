"""Which models does a sweep train? A base configuration and axes; every combination is a member.

    base: {preset: small, task: logic}
    axes:
      kind: [softmax, linear, hyla]
      training.learning_rate: [1e-3, 3e-3]
      training.seed: [0, 1, 2]

The base is a preset with its task, and with a kind and any dotted fields if they are given; or
`base: {config: {task: ..., model: ..., training: ...}}`, every field of it. Axes are `kind`
(a row of the paper's Table A1) and dotted fields; the last one varies fastest. Fields joined by
`+` vary together: `training.seed+task.split_seed: [[0, 0], [1, 1]]`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from latentcode.config import (
    TASKS,
    RunConfig,
    TrainingConfig,
    config_hash,
    flatten,
    from_dict,
    parse_yaml,
    read_text,
    to_dict,
)
from latentcode.errors import ConfigError, UnknownNameError, check
from latentcode.models.config import ModelConfig, with_kind
from latentcode.presets import follow_task, preset

KIND = "kind"
"""The axis that is not a field: it sets all fields of a named attention kind."""
SEEDS: tuple[str, ...] = ("training.seed", "task.split_seed")
"""Axes over which a result is averaged."""
HYPERPARAMETERS: tuple[str, ...] = (
    "training.learning_rate", "training.weight_decay", "training.warmup_steps",
    "training.grad_clip")
"""Axes of which the best setting is reported (the first three: Table A3)."""
LONGEST_NAME = 150
"""Characters of a member's name; file systems allow 255, temporary names need some."""


@dataclass(frozen=True)
class Grid:
    """A base configuration and the values of the axes, in their order.

    `ConfigError` names an axis that is no field, is empty or has a value that cannot be used,
    and two members that would be the same model.
    """

    base: RunConfig
    """What all members share, apart from the axes."""
    axes: dict[str, tuple[Any, ...]]
    """Axis -> its values, plain data."""

    def __post_init__(self) -> None:
        check(bool(self.axes), "a grid has no axes; expected at least one")
        for field in self.fields:
            if field != KIND:
                check_field(field)
            check(self.fields.count(field) == 1, f"{field} is on several axes; expected one")
            check(field != "training.device", "training.device is an axis; expected one device "
                  "for the whole grid, in its base")
        for axis, values in self.axes.items():
            check(bool(values), f"axis {axis} is empty; expected at least one value")
            n = axis.count("+") + 1
            for value in values if n > 1 else ():
                check(isinstance(value, (list, tuple)) and len(value) == n, f"axis {axis} has the "
                      f"value {value!r}; expected a list of {n} values, one for each field")
        seen: dict[str, str] = {}
        for name, config in self.members().items():
            twin = seen.setdefault(config_hash(config), name)
            check(twin == name, f"members {twin} and {name} are the same model; expected every "
                  "member of a grid once")

    @property
    def fields(self) -> list[str]:
        """The fields that vary, and `kind` if it does."""
        return [field for axis in self.axes for field in axis.split("+")]

    def points(self) -> dict[str, dict[str, Any]]:
        """Return member -> field -> value, in the order of the grid."""
        points: dict[str, dict[str, Any]] = {}
        for values in itertools.product(*self.axes.values()):
            parts = [value if "+" in axis else (value,)
                     for axis, value in zip(self.axes, values, strict=True)]
            point = dict(zip(self.fields, itertools.chain(*parts), strict=True))
            name = self._name(point)
            check(name not in points, f"member {name} occurs twice in the grid; expected every "
                  "value of an axis once")
            points[name] = point
        return points

    def members(self) -> dict[str, RunConfig]:
        """Return member -> configuration, in the order of the grid."""
        members = {}
        for name, point in self.points().items():
            try:
                members[name] = with_fields(self.base, point)
            except ConfigError as error:
                raise ConfigError(f"member {name}: {error}") from None
        return members

    def to_dict(self) -> dict[str, Any]:
        """Return plain data that `read_grid` reads."""
        return {"base": {"config": to_dict(self.base)},
                "axes": {axis: list(values) for axis, values in self.axes.items()}}

    def to_yaml(self) -> str:
        """Return YAML that `load_grid` reads."""
        return yaml.safe_dump(self.to_dict(), sort_keys=False, allow_unicode=True)

    def differences(self, other: Grid) -> list[str]:
        """Say where `other` differs from this grid."""
        # The axes first: they tell most.
        mine, theirs = ({f"axis {axis}": list(values) for axis, values in grid.axes.items()}
                        | flatten(to_dict(grid.base)) for grid in (self, other))
        return [f"{key}: {mine.get(key)!r} in the sweep, "
                f"{theirs.get(key)!r} asked for"
                for key in {**mine, **theirs} if mine.get(key) != theirs.get(key)]

    def _name(self, point: Mapping[str, Any]) -> str:
        """Return `kind=hyla,seed=0`: fields without their section where one is unambiguous."""
        short = {field: field.rpartition(".")[2] for field in self.fields}
        parts = []
        for field, value in point.items():
            unique = list(short.values()).count(short[field]) == 1
            parts.append(f"{short[field] if unique else field}={_text(value)}")
        name = ",".join(parts)
        return name if len(name) <= LONGEST_NAME else f"{name[:LONGEST_NAME - 9]}~{_digest(name)}"


def with_fields(base: RunConfig, point: Mapping[str, Any]) -> RunConfig:
    """Return `base` with the kind and the dotted fields of `point`.

    Widths and T5 bias follow a changed task, unless `base` gave them values of their own or
    `point` does. `ConfigError` names the field, its value and what was expected.
    """
    model = with_kind(base.model, point[KIND]) if KIND in point else base.model
    sections = to_dict(replace(base, model=model))
    for axis, value in point.items():
        if axis.startswith("task."):
            sections["task"][axis.partition(".")[2]] = value
    task = from_dict(type(base.task), sections["task"], "task")
    own = follow_task(task, base.task)
    for name, value in follow_task(base.task, task).items():
        if sections["model"][name] == own[name]:
            sections["model"][name] = value
    for axis, value in point.items():
        section, _, name = axis.partition(".")
        if section in ("model", "training"):
            sections[section][name] = value
    return from_dict(RunConfig, sections)


def check_field(axis: str) -> None:
    """Raise `UnknownNameError` unless an axis is a dotted field of a configuration."""
    sections: dict[str, list[Any]] = {
        "task": list(TASKS.values()), "model": [ModelConfig],
        "training": [TrainingConfig]}
    fields = [f"{section}.{field.name}" for section, classes in sections.items()
              for cls in classes for field in dataclasses.fields(cls) if field.name != "name"]
    if axis not in fields:
        raise UnknownNameError("axis", axis, (KIND, *dict.fromkeys(fields)))


def read_grid(data: object, where: str) -> Grid:
    """Build a grid from plain data; `ConfigError` begins with `where`."""
    try:
        written = from_dict(_GridFile, data, what="the grid")
        base = written.base
        if "config" in base:
            _check_keys(base, {"config"}, {"config"})
            return Grid(from_dict(RunConfig, base["config"]), written.axes)
        fields = {key: value for key, value in base.items() if "." in key}
        _check_keys(base.keys() - fields.keys(), {"preset", "task"}, {"preset", "task", KIND})
        for field in fields:
            check_field(field)
        start = preset(base["preset"], base["task"], base.get(KIND, "hyla"))
        return Grid(with_fields(start, fields), written.axes)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None


@dataclass(frozen=True)
class _GridFile:
    """A grid as a file has it: a preset with its task, kind and fields, or `config`; and axes."""

    base: dict[str, Any]
    axes: dict[str, tuple[Any, ...]]


def _check_keys(given: Iterable[str], required: set[str], known: set[str]) -> None:
    unknown, missing = set(given) - known, required - set(given)
    check(not unknown, f"base has unknown key(s) {', '.join(sorted(unknown))}; expected: "
          f"{', '.join(sorted(known))}")
    check(not missing, f"base lacks key(s) {', '.join(sorted(missing))}")


def load_grid(name: str | Path) -> Grid:
    """Return the grid of a YAML file, or one that comes with the library; see `GRIDS`."""
    path = Path(name)
    if str(name) in GRIDS:
        text = (files("latentcode.sweep") / "grids" / f"{name}.yaml").read_text("utf-8")
        return read_grid(parse_yaml(text, f"grid {name}"), f"grid {name}")
    if path.suffix not in (".yaml", ".yml") and not path.exists():
        raise UnknownNameError("grid", str(name), (*GRIDS, "the path of a YAML file"))
    return read_grid(parse_yaml(read_text("grid", path), str(path)), str(path))


GRIDS: tuple[str, ...] = (
    "sraven_known", "fig6_small", "spans_small", "sraven_confirm", "sraven_replication",
    "paper_logic", "paper_sraven", "paper_logic_codes", "paper_logic_heldout",
    "paper_logic_ablations", "paper_sraven_ablations", "paper_sraven_confirm", "smoke_logic")
"""Grids that come with the library: SRAVEN models that know every rule, small language models, ones
that copy, SRAVEN models of other seeds on which findings are confirmed, the published settings of
Table A1, of the authors' codes for Fig. 2 and of Fig. 2C, and one for tests."""


def parse_axis(text: str, flag: str = "--axis") -> tuple[str, tuple[Any, ...]]:
    """Return (axis, values) of `training.seed=0,1,2`; values are read as YAML reads them."""
    axis, equals, values = text.partition("=")
    check(bool(axis and equals and values.strip()),
          f"{flag} is {text!r}; expected a field and values, such as training.seed=0,1,2")
    return axis.strip(), tuple(parse_yaml(f"[{values}]", f"{flag} {text}"))


def _text(value: Any) -> str:
    """Return a value as part of a folder's name."""
    text = value if isinstance(value, str) else json.dumps(value)
    if re.fullmatch(r"[A-Za-z0-9_.+-]{1,40}", text):
        return text
    return f"{re.sub('[^A-Za-z0-9_.+-]+', '-', text)[:24]}~{_digest(text)}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]
