"""The configuration that determines a run: frozen dataclasses, checked, hashed, read from YAML.

`RunConfig` = task + model + training. Presets (`latentcode.presets`) are named values of it.
Nothing here imports torch, so that the command line can show its help at once.

Reading is strict both ways: an unknown key and a missing key are errors that name it, never a
silent default. A field that came later, marked by `later`, is written where it says something:
files and hashes of configurations that do without it stay what they were.
"""

from __future__ import annotations

import hashlib
import json
import operator
import re
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import Field, dataclass, field, fields, is_dataclass, replace
from functools import cache, lru_cache
from math import comb
from pathlib import Path
from types import UnionType
from typing import (
    Any,
    ClassVar,
    Literal,
    Protocol,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    runtime_checkable,
)

from latentcode.devices import BELOW
from latentcode.errors import (
    MOST,
    ConfigError,
    check,
    check_choice,
    check_no_pipe,
    check_whole,
    listed,
    reason,
)
from latentcode.models.config import OWN, ModelConfig
from latentcode.registry import Registry, Source

T = TypeVar("T")
LATER, FILLED_IN = "later", "filled_in"


def later(default: T) -> T:
    """A field that older files do not have: it is left out where it has its default."""
    return field(default=default, metadata={LATER: True})


def filled_in() -> str:
    """A later field that is empty until training begins, and then says what was found."""
    return field(default="", metadata={LATER: True, FILLED_IN: True})


# Reading the claims builds hundreds of configurations of a few classes.
hints_of = cache(get_type_hints)


def is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def check_values(owner: str, config: object, **least: int) -> None:
    """Raise `ConfigError` unless each field holds what its annotation says.

    Numbers are finite and at least `least` (default: 0), and a seed is one; lists are not checked.
    """
    for name, hint in hints_of(type(config)).items():  # type: ignore[arg-type]
        value, where = getattr(config, name), f"{owner}.{name}"
        if type(None) in get_args(hint):
            if value is None:
                continue
            hint = get_args(hint)[0]
        if get_origin(hint) is Literal:
            check_choice(where, value, get_args(hint))
        elif hint is int:
            check_whole(where, value, least.get(name, 0),
                        most=BELOW - 1 if name.endswith("seed") else MOST)
        elif hint is float:
            check(is_number(value) and 0.0 <= value < float("inf"),
                  f"{where} is {value!r}; expected a number of at least 0")
        elif hint in (bool, str):
            check(type(value) is hint, f"{where} is {value!r}; expected "
                  f"{'text' if hint is str else 'True or False'}")
        if name.endswith("_fraction"):
            check(value < 1.0, f"{where} is {value!r}; expected 0 <= fraction < 1")


MOST_COMBINATIONS = 5_000_000
"""The most combinations of constituents that a split lists."""


@runtime_checkable
class TaskConfig(Protocol):
    """What every task's configuration has: a frozen dataclass, its name, and the sizes of a model.

    name      what the task is registered under
    d_input   width of a token, d_output: width of the read-out
    n_tokens  tokens of an instance
    """

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    @property
    def name(self) -> str: ...

    @property
    def d_input(self) -> int: ...

    @property
    def d_output(self) -> int: ...

    @property
    def n_tokens(self) -> int: ...


@dataclass(frozen=True)
class LogicConfig:
    """Fuzzy-logic functions in disjunctive normal form, learned in context (paper, section 3)."""

    name: Literal["logic"] = "logic"
    """Which task this is; fixed."""
    n_variables: int = 4
    """Number of variables L; there are 2^L possible terms."""
    n_terms: int = 2
    """Number of terms K that are joined by OR."""
    n_examples: int = 32
    """Length of the sequence: n_examples - 1 examples in context and the query ("sequence
    length" in Fig. 2C)."""
    ood_fraction: float = 0.7
    """Share of the combinations of known terms that is held out of training (Fig. 2C)."""
    unknown_fraction: float = 0.25
    """Share of the 2^L terms, the last ones, that are never trained on (Fig. A3C; official)."""
    inputs: Literal["uniform", "fixed_context", "fixed_query"] = "uniform"
    """`uniform`: all inputs fresh per instance; `fixed_context`: all instances share the
    inputs shown in context, the query varies (paper 3.2); `fixed_query`: the reverse."""
    split_seed: int = 0
    """Seed of the split and of the fixed inputs."""
    held_out: tuple[tuple[int, ...], ...] | None = None
    """Explicit held-out combinations, as tuples of term indices, in place of the random split
    of `ood_fraction` and `split_seed`."""

    def __post_init__(self) -> None:
        check_values("task", self, n_variables=1, n_terms=1, n_examples=2)
        check(self.n_variables <= 16,
              f"task.n_variables is {self.n_variables}; expected at most 16 (65,536 terms)")
        check(self.n_terms <= self.n_known_terms,
              f"task.n_terms is {self.n_terms}; expected at most the {self.n_known_terms} known "
              f"terms of {self.n_variables} variables")
        n = max(self.n_known_terms, 2**self.n_variables - self.n_known_terms)
        check(comb(n, self.n_terms) <= MOST_COMBINATIONS,
              f"task.n_terms is {self.n_terms}; sets of that many out of {n} terms are more "
              f"than the {MOST_COMBINATIONS:,} combinations that can be listed")
        _check_held_out(self)

    @property
    def n_known_terms(self) -> int:
        """Number of terms that may occur in training."""
        n: int = 2**self.n_variables
        return n - int(n * self.unknown_fraction)

    @property
    def d_input(self) -> int:
        """Width of a token: the variables and the target."""
        return self.n_variables + 1

    @property
    def d_output(self) -> int:
        """Width of the read-out: one number."""
        return 1

    @property
    def n_tokens(self) -> int:
        """Tokens per instance."""
        return self.n_examples


@dataclass(frozen=True)
class SravenConfig:
    """Symbolic Raven matrices (paper, section 4)."""

    name: Literal["sraven"] = "sraven"
    """Which task this is; fixed."""
    n_features: int = 4
    """Features per panel M, each governed by its own rule."""
    n_values: int = 8
    """Symbols K; arithmetic is modulo K."""
    grid_size: int = 3
    """Panels per row and column G."""
    permuted: bool = True
    """Permute the features, one permutation per column and instance (paper 4.3)."""
    rule_order: Literal["random", "sorted"] = "random"
    """How the rules of a combination are dealt to the features: at random, or in rising order
    as the official code does (which biases the last feature to high rule indices)."""
    ood_fraction: float = 0.25
    """Share of the rule combinations that is held out of training (paper 4.2)."""
    split_seed: int = 0
    """Seed of the split."""
    held_out: tuple[tuple[int, ...], ...] | None = None
    """Explicit held-out combinations, as tuples of rule indices, in place of the random split
    of `ood_fraction` and `split_seed`."""

    N_RULES: ClassVar[int] = 8

    def __post_init__(self) -> None:
        check_values("task", self, n_features=1, n_values=2, grid_size=2)
        check(self.n_values >= self.grid_size,
              f"task.n_values is {self.n_values}; expected at least grid_size = {self.grid_size} "
              "(distribute-three needs that many different symbols)")
        check(self.n_features <= 8,
              f"task.n_features is {self.n_features}; expected at most 8 (6,435 combinations)")
        _check_held_out(self)

    @property
    def d_input(self) -> int:
        """Width of a token: a one-hot symbol."""
        return self.n_values

    @property
    def d_output(self) -> int:
        """Width of the read-out: one logit per symbol."""
        return self.n_values

    @property
    def n_tokens(self) -> int:
        """Tokens per instance: M for each of the G x G panels, the last M being the response."""
        return self.grid_size**2 * self.n_features


@dataclass(frozen=True)
class LanguageConfig:
    """Text, token by token: token ids in, logits of the next token out (paper, section 5).

    Without `text`, as in runs that were imported, no instance can be drawn: the run can be opened
    and its model be given tokens, but it can be neither trained nor sampled from.
    """

    name: Literal["language"] = "language"
    """Which task this is; fixed."""
    n_vocabulary: int = 2_048
    """Number of token ids (paper: 32,000; official wikitext-2: 2,048)."""
    n_tokens: int = 128
    """Length of the sequences trained on (official: 128)."""
    text: str = later("")
    """Where the text is: a folder or file (text, JSONL, parquet), or a dataset on the Hugging Face
    hub, such as `allenai/c4`, which is streamed."""
    subset: str = later("")
    """Part of a dataset on the hub, such as `en`."""
    column: str = later("text")
    """Column of JSONL, parquet and datasets that holds the text."""
    tokenizer: str = later("")
    """A tokenizer's file (tokenizer.json), folder or name on the hub; empty: byte-level BPE of
    n_vocabulary tokens, trained on the text."""
    held_out_sources: tuple[str, ...] = later(())
    """Sources that are never trained on, the split `ood`: values of a column `source`, or the
    first folder below `text`. Empty: `ood` is of held-out documents, like `test`."""
    revision: str = filled_in()
    """Which state of the text and tokenizer: filled in when training begins."""

    def __post_init__(self) -> None:
        check_values("task", self, n_vocabulary=1, n_tokens=1)
        check(re.fullmatch(r"[\w-]*", self.revision, re.ASCII) is not None, f"task.revision is "
              f"{self.revision!r}; expected what an earlier run of the text says")
        sources = self.held_out_sources
        check(isinstance(sources, (list, tuple)) and all(isinstance(x, str) for x in sources),
              f"task.held_out_sources is {sources!r}; expected a list of names")
        object.__setattr__(self, "held_out_sources", tuple(sources))

    @property
    def d_input(self) -> int:
        """Size of the embedding table."""
        return self.n_vocabulary

    @property
    def d_output(self) -> int:
        """Width of the read-out: one logit per token id."""
        return self.n_vocabulary


TASKS: Registry[type[TaskConfig]] = Registry("task", "lc.register_task", {
    LogicConfig.name: LogicConfig, SravenConfig.name: SravenConfig,
    LanguageConfig.name: LanguageConfig})
"""The class of each task's configuration, by name.

Apart from the tasks themselves (`latentcode.tasks.registry`), so that a configuration is read, and
help shown, without importing torch.
"""


def _check_held_out(config: LogicConfig | SravenConfig) -> None:
    """Make tuples of the lists or arrays that a caller gave, so that configurations compare."""
    if config.held_out is None:
        return
    try:
        held_out = tuple(tuple(operator.index(c) for c in row) for row in config.held_out)
    except TypeError:
        raise ConfigError(f"task.held_out is {config.held_out!r}; expected a list of lists of "
                          f"whole numbers, or null") from None
    object.__setattr__(config, "held_out", held_out)


Precision = Literal["float32", "tf32", "bf16_mlp", "bf16"]
HOW_FIELDS = ("accumulate", "checkpoint_activations", "compile")
"""Fields of the training that decide on memory and speed, and on results by rounding alone."""


@dataclass(frozen=True)
class TrainingConfig:
    """Optimisation, evaluation and checkpoints of one run."""

    steps: int = 50_000
    """Number of updates (fuzzy logic: 50,000; SRAVEN: 20 M instances / batch size)."""
    batch_size: int = 128
    """Instances per update (Table A3)."""
    learning_rate: float = 1e-3
    """Peak learning rate (Table A3)."""
    weight_decay: float = 0.1
    """Decoupled weight decay (Table A3), on every tensor that is not one-dimensional."""
    warmup_steps: int = 100
    """Updates of linear warm-up, 100 or a twentieth of no more than 200 steps; the cosine then
    falls to a tenth of the peak at `steps - warmup_steps` (official schedule)."""
    grad_clip: float | None = None
    """Largest global gradient norm; None, as official, does not clip."""
    seed: int = 0
    """Seed of the initial weights, the data streams and the dropout masks."""
    device: str = "cpu"
    """`cpu`, `cuda` or `cuda:N`."""
    precision: Precision = "float32"
    """float32; tf32: float32 whose matrix products round their factors to 10 bits (CUDA only);
    bf16_mlp: bfloat16 autocast in the feed-forward layers, which do most of the arithmetic; or
    bf16: bfloat16 autocast everywhere, in which logits of HYLA are off by 3 %. Weights and losses
    are float32 always. Training in bfloat16 is refused where the processor or GPU could only
    emulate it."""
    eval_every: int = 10_000
    """Steps between evaluations; the last step is always evaluated."""
    eval_instances: int = 16_000
    """Instances per split and evaluation."""
    log_every: int = 100
    """Steps between records of the training loss."""
    checkpoint_every: int = 10_000
    """Steps between checkpoints; the last step always has one."""
    keep_checkpoints: int | None = 2
    """How many of the newest checkpoints stay on disk; None keeps all."""
    milestones: tuple[int, ...] = later(())
    """Further steps with an evaluation and a checkpoint, which stays."""

    accumulate: int = later(1)
    """Micro-batches into which each process divides its share of a batch, to save memory."""
    checkpoint_activations: bool = later(False)
    """Keep only what enters each block, and compute the rest again in the backward pass."""
    compile: bool = later(False)
    """Compile the step with torch.compile; hooks are then refused."""

    def __post_init__(self) -> None:
        check_values(
            "training", self, steps=1, batch_size=1, eval_every=1, eval_instances=1, log_every=1,
            checkpoint_every=1, keep_checkpoints=1, accumulate=1)
        if self.warmup_steps == TrainingConfig.warmup_steps and self.steps <= 2 * self.warmup_steps:
            object.__setattr__(self, "warmup_steps", self.steps // 20)
        steps = self.milestones
        rising = isinstance(steps, (list, tuple)) and all(
            type(step) is int and before < step <= self.steps
            for before, step in zip((0, *steps), steps, strict=False))
        check(rising, f"training.milestones is {steps!r}; expected rising whole numbers from 1 to "
              f"steps = {self.steps}")
        object.__setattr__(self, "milestones", tuple(steps))
        check(self.grad_clip is None or self.grad_clip > 0.0,
              f"training.grad_clip is {self.grad_clip!r}; expected a number above 0, or null")
        check(2 * self.warmup_steps < self.steps or self.warmup_steps == 0,
              f"training.warmup_steps is {self.warmup_steps}; expected less than half of steps "
              f"= {self.steps}")
        check(re.fullmatch(r"cpu|cuda(:[0-9]+)?", self.device) is not None,
              f"training.device is {self.device!r}; expected cpu, cuda or cuda:N")
        check(self.precision != "tf32" or self.device != "cpu", "training.precision is 'tf32'; "
              "expected float32, bf16_mlp or bf16 on the cpu")


def config_hash(config: object) -> str:
    """Return 12 hex digits that identify the values of a configuration."""
    # Read back first, so that 0 and 0.0 in a field of type float are one value.
    canonical = from_dict(type(config), to_dict(config))
    text = json.dumps(to_dict(canonical), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def to_dict(config: object) -> dict[str, Any]:
    """Return a configuration as plain dictionaries, lists, strings and numbers."""
    def values(config: Any) -> dict[str, Any]:
        return {f.name: values(value) if is_dataclass(value) else value for f in fields(config)
                if (value := getattr(config, f.name)) != f.default or LATER not in f.metadata}

    plain = json.loads(json.dumps(values(config)))
    assert isinstance(plain, dict)
    return plain


def fill_in(config: T, known: T) -> T:
    """Return a configuration with what it leaves to be filled in as in `known`.

    So a configuration without the revision of a text is that of a run of any revision.
    """
    values = {}
    for f in fields(config):  # type: ignore[arg-type]
        mine, other = getattr(config, f.name), getattr(known, f.name, None)
        if is_dataclass(mine) and type(mine) is type(other):
            values[f.name] = fill_in(mine, other)
        elif FILLED_IN in f.metadata and not mine and other:
            values[f.name] = other
    return replace(config, **values) if values else config  # type: ignore[type-var]


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
    known = {f.name: f for f in fields(cls)}  # type: ignore[arg-type]
    unknown = [str(key) for key in data if key not in known]
    missing = [key for key, f in known.items() if key not in data and LATER not in f.metadata]
    check(not unknown, f"{name} has unknown key(s) {listed(unknown)}; expected: "
          f"{', '.join(known)}")
    check(not missing, f"{name} lacks key(s) {', '.join(missing)}")
    return cls(**{key: convert(hints[key], data[key], f"{where}.{key}" if where else key)
                  for key in known if key in data})


def convert(hint: Any, value: Any, where: str) -> Any:
    """Return `value` as the annotated type, or raise `ConfigError`."""
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        if value is None and type(None) in args:
            return None
        return convert(next(arg for arg in args if arg is not type(None)), value, where)
    if hint is Any:
        return value
    if origin in (dict, Mapping):
        check(isinstance(value, Mapping), f"{where} is {value!r}; expected a mapping")
        return {convert(args[0], k, f"a key of {where}"): convert(args[1], v, f"{where}.{k}")
                for k, v in value.items()}
    if hint is TaskConfig:
        check(isinstance(value, Mapping) and "name" in value,
              f"{where} is {value!r}; expected a mapping with a name")
        name = value["name"]
        check(isinstance(name, str), f"{where}.name is {name!r}; expected text")
        return from_dict(TASKS.find(name), value, where)
    if is_dataclass(hint):
        return from_dict(hint, value, where)  # type: ignore[arg-type]
    if origin is Literal:
        check_choice(where, value, args)
        return value
    if origin is tuple:
        check(isinstance(value, (list, tuple)), f"{where} is {value!r}; expected a list")
        return tuple(convert(args[0], v, f"{where}[{i}]") for i, v in enumerate(value))
    if hint is float and is_number(value):
        try:
            return float(value)
        except OverflowError:
            raise ConfigError(f"{where} is too large; expected float") from None
    check(isinstance(value, hint) and not (hint is not bool and isinstance(value, bool)),
          f"{where} is {value!r}; expected {hint.__name__}")
    return value


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


def parse_yaml(text: str, where: str = "configuration") -> Any:
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


@dataclass(frozen=True)
class RunConfig:
    """Everything that determines a run."""

    task: TaskConfig = field(default_factory=LogicConfig)
    """The problems."""
    model: ModelConfig = field(default_factory=ModelConfig)
    """The hooked transformer."""
    training: TrainingConfig = field(default_factory=TrainingConfig)
    """The optimisation."""

    def __post_init__(self) -> None:
        kind = TASKS.find(self.task.name)
        check(isinstance(self.task, kind), f"task is a {type(self.task).__qualname__}; expected a "
              f"{kind.__qualname__}, as task {self.task.name!r} is registered now")
        for name in ("d_input", "d_output"):
            mine, wanted = getattr(self.model, name), getattr(self.task, name)
            check(mine == wanted, f"model.{name} is {mine}; expected {wanted}, the {name} of "
                  f"task {self.task.name!r}")
        embedding = "token" if isinstance(self.task, LanguageConfig) else "dense"
        check(self.model.embedding == embedding,
              f"model.embedding is {self.model.embedding!r}; expected {embedding!r} for task "
              f"{self.task.name!r}")
        check(not self.model.cross_attention, "model.cross_attention is True; expected False: "
              f"task {self.task.name!r} has one sequence")


def own_in(config: RunConfig) -> dict[str, tuple[str, Source]]:
    """Which names of users does a configuration hold? What -> the name, and where it is from."""
    named = [(TASKS, config.task.name), *(
        (registry, getattr(config.model, name)) for name, registry in OWN.items())]
    return {registry.what: (name, source) for registry, name in named
            if (source := registry.source(name)) is not None}


def check_registered(names: Mapping[str, Mapping[str, str]], where: object) -> None:
    """Raise `ConfigError` unless the names in a run's provenance are registered here, too.

    Nothing is imported because a file says so: the message tells the user what to import.
    """
    registries = {registry.what: registry for registry in (TASKS, *OWN.values())}
    for what, files in names.items():
        for name, file in files.items():
            if name not in registries.get(what, ()):
                raise ConfigError(
                    f"{where} has {what} {name!r}, which was registered in {file}; expected it to "
                    "be registered first, as it was there"
                    if " " in file else  # as in `NOWHERE`
                    f"{where} has {what} {name!r}, which is not registered here; expected `import "
                    f"{file.removesuffix('.py')}` first, or --import {file} on the command line")


def load_config(path: str | Path) -> RunConfig:
    """Read a `RunConfig` from a YAML file; `ConfigError` names the file."""
    text = read_text("configuration", Path(path))
    try:
        return from_dict(RunConfig, parse_yaml(text))
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
