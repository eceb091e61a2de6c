"""A configuration as plain data and as YAML, and back.

Reading is strict both ways: an unknown key and a missing key are errors that name it, never a
silent default. A field that came later, marked by `later`, is written where it says something:
files and hashes of configurations that do without it stay what they were.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Mapping
from copy import deepcopy
from functools import lru_cache
from pathlib import Path
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

from latentcode.config.fields import FILLED_IN, LATER, hints_of, is_number
from latentcode.config.tasks import TASKS, TaskConfig
from latentcode.errors import ConfigError, check, check_choice, check_no_pipe, reason

T = TypeVar("T")


def config_hash(config: object) -> str:
    """Return 12 hex digits that identify the values of a configuration."""
    # Read back first, so that 0 and 0.0 in a field of type float are one value.
    canonical = from_dict(type(config), to_dict(config))
    text = json.dumps(to_dict(canonical), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def to_dict(config: object) -> dict[str, Any]:
    """Return a configuration as plain dictionaries, lists, strings and numbers."""
    plain = json.loads(json.dumps(_as_dict(config)))
    assert isinstance(plain, dict)
    return plain


def _as_dict(config: Any) -> dict[str, Any]:
    values = {f.name: getattr(config, f.name) for f in dataclasses.fields(config)
              if not (LATER in f.metadata and getattr(config, f.name) == f.default)}
    return {name: _as_dict(value) if dataclasses.is_dataclass(value) else value
            for name, value in values.items()}


def fill_in(asked: T, known: T) -> T:
    """Return what is asked for; what it leaves to be filled in is as in `known`.

    So a configuration without the revision of a text is that of a run of any revision.
    """
    values = {}
    for f in dataclasses.fields(asked):  # type: ignore[arg-type]
        mine, other = getattr(asked, f.name), getattr(known, f.name, None)
        if dataclasses.is_dataclass(mine) and type(mine) is type(other):
            values[f.name] = fill_in(mine, other)
        elif FILLED_IN in f.metadata and not mine and other:
            values[f.name] = other
    return dataclasses.replace(asked, **values) if values else asked  # type: ignore[type-var]


def flatten(data: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested mappings as one, with dotted keys such as `training.seed`."""
    flat: dict[str, Any] = {}
    for key, value in data.items():
        flat |= flatten(value, f"{prefix}{key}.") if isinstance(value, dict) else {
            prefix + key: value}
    return flat


def from_dict(cls: type[T], data: object, where: str = "", what: str = "configuration") -> T:
    """Build a configuration, or another dataclass, from plain data; every key must be known and
    present.

    Raises `ConfigError` naming the key (with its path), the value and what was expected.
    """
    name = where or what
    check(isinstance(data, Mapping), f"{name} is {data!r}; expected a mapping")
    assert isinstance(data, Mapping)
    hints = hints_of(cls)  # type: ignore[arg-type]
    fields = dataclasses.fields(cls)  # type: ignore[arg-type]
    keys = [f.name for f in fields]
    unknown = [str(k) for k in data if k not in keys]
    missing = [f.name for f in fields if f.name not in data and LATER not in f.metadata]
    check(not unknown, f"{name} has unknown key(s) {', '.join(unknown)}; expected: "
          f"{', '.join(keys)}")
    check(not missing, f"{name} lacks key(s) {', '.join(missing)}")
    return cls(**{k: convert(hints[k], data[k], f"{where}.{k}" if where else k)
                  for k in keys if k in data})


def convert(hint: Any, value: Any, where: str) -> Any:
    """Return `value` as the annotated type, or raise `ConfigError`."""
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        if value is None and type(None) in args:
            return None
        args = tuple(a for a in args if a is not type(None))
        if len(args) > 1 and all(dataclasses.is_dataclass(a) for a in args):
            by_name = {a.name: a for a in args}
            name = _name_in(value, where)
            check_choice(f"{where}.name", name, by_name)
            return from_dict(by_name[name], value, where)
        return convert(args[0], value, where)
    if hint is Any:
        return value
    if origin is dict:
        check(isinstance(value, dict), f"{where} is {value!r}; expected a mapping")
        return {str(k): convert(args[1], v, f"{where}.{k}") for k, v in value.items()}
    if hint is TaskConfig:
        return from_dict(TASKS.find(_name_in(value, where)), value, where)
    if dataclasses.is_dataclass(hint):
        return from_dict(hint, value, where)  # type: ignore[arg-type]
    if origin is Literal:
        check_choice(where, value, args)
        return value
    if origin is tuple:
        check(isinstance(value, (list, tuple)), f"{where} is {value!r}; expected a list")
        return tuple(convert(args[0], v, f"{where}[{i}]") for i, v in enumerate(value))
    if origin is Mapping:
        check(isinstance(value, Mapping), f"{where} is {value!r}; expected a mapping")
        return {convert(args[0], k, f"a key of {where}"): convert(args[1], v, f"{where}.{k}")
                for k, v in value.items()}
    if hint is float and is_number(value):
        try:
            return float(value)
        except OverflowError:
            raise ConfigError(f"{where} is too large; expected float") from None
    check(isinstance(value, hint) and not (hint is not bool and isinstance(value, bool)),
          f"{where} is {value!r}; expected {hint.__name__}")
    return value


def _name_in(value: object, where: str) -> str:
    """Return the name by which a mapping says which class it is of."""
    check(isinstance(value, Mapping) and "name" in value,
          f"{where} is {value!r}; expected a mapping with a name")
    assert isinstance(value, Mapping)
    name = value["name"]
    check(isinstance(name, str), f"{where}.name is {name!r}; expected text")
    return str(name)


def read_text(what: str, path: Path) -> str:
    """Return the text of a file; `ConfigError` says which file cannot be read, and why."""
    check_no_pipe(path)
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {what} {path}: {reason(error)}") from None


def task_from_dict(data: object) -> TaskConfig:
    """Build the configuration of a task, as codes have it in their `meta`; see `from_dict`."""
    task: TaskConfig = convert(TaskConfig, data, "task")
    return task


def to_yaml(config: object) -> str:
    """Return the YAML text of a configuration, fields in the order of the class."""
    import yaml

    return yaml.safe_dump(to_dict(config), sort_keys=False, allow_unicode=True)


def from_yaml(cls: type[T], text: str, where: str = "configuration") -> T:
    """Read YAML written by `to_yaml`; `ConfigError` says what is wrong with it."""
    return from_dict(cls, parse_yaml(text, where))


def parse_yaml(text: str, where: str) -> Any:
    """Return the plain data that YAML says; `ConfigError` says what is wrong with it."""
    return deepcopy(_parsed(text, where))


# Parsing takes milliseconds, and a search for runs opens each of them many times.
@lru_cache(maxsize=512)
def _parsed(text: str, where: str) -> Any:
    import yaml

    class Loader(yaml.SafeLoader):
        """YAML's safe types, with 1e-3 a number (PyYAML wants 1.0e-3) and no key given twice."""

        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
            mapping: dict[Any, Any] = super().construct_mapping(node, deep)
            if len(mapping) < len(node.value):
                keys = [key.value for key, _ in node.value]
                twice = sorted({str(k) for k in keys if keys.count(k) > 1})
                raise yaml.YAMLError(f"key(s) given twice: {', '.join(twice)}")
            return mapping

        def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
            # A few aliases of aliases stand for more values than any message could show.
            if self.check_event(yaml.AliasEvent):
                raise yaml.YAMLError("aliases (*name) are not supported")
            return super().compose_node(parent, index)

    Loader.add_implicit_resolver(
        "tag:yaml.org,2002:float", re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"),
        list("-+0123456789"))
    try:
        return yaml.load(text, Loader)
    except (yaml.YAMLError, ValueError, RecursionError, LookupError, AttributeError,
            TypeError) as error:  # PyYAML lets the last three out for tags such as `!!int ''`
        mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
        place = "" if mark is None else f", line {mark.line + 1}, column {mark.column + 1}"
        raise ConfigError(f"{where} is not valid YAML{place}: "
                          f"{' '.join(str(problem or error).split())}") from None
