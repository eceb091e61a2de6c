"""The configuration of a run: frozen dataclasses, validated, YAML in and out.

`RunConfig` = task + model + training. Nothing here imports torch, so that the command line can
show its help at once. Reading is strict both ways: an unknown key and a missing key are errors
that name it, never a silent default. A field that came later, marked by `_later`, is written where
it says something: files and hashes of configurations that do without it stay what they were.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import operator
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import comb
from pathlib import Path
from types import UnionType
from typing import Any, ClassVar, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from latentcode.errors import ConfigError, check, check_choice
from latentcode.models.config import ModelConfig

T = TypeVar("T")
LATER = "later"


def _later(default: T) -> T:
    """A field that older files do not have: it is left out where it has its default."""
    return field(default=default, metadata={LATER: True})


MOST_COMBINATIONS = 5_000_000
"""The most combinations of constituents that a split lists."""


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _check_fraction(name: str, value: float) -> None:
    check(_is_number(value) and 0.0 <= value < 1.0,
          f"{name} is {value!r}; expected 0 <= fraction < 1")


def _check_at_least(owner: str, config: object, least: int, *names: str) -> None:
    for name in names:
        value = getattr(config, name)
        check(isinstance(value, int) and not isinstance(value, bool) and value >= least,
              f"{owner}.{name} is {value!r}; expected a whole number of at least {least}")


def _check_seed(owner: str, config: object, name: str) -> None:
    # torch's generators take 64 bits.
    _check_at_least(owner, config, 0, name)
    value = getattr(config, name)
    check(value < 2**63, f"{owner}.{name} is {value!r}; expected a number below 2^63")


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
        check_choice("task.name", self.name, ("logic",))
        check_choice("task.inputs", self.inputs, ("uniform", "fixed_context", "fixed_query"))
        _check_at_least("task", self, 1, "n_variables", "n_terms")
        _check_at_least("task", self, 2, "n_examples")
        _check_fraction("task.ood_fraction", self.ood_fraction)
        _check_fraction("task.unknown_fraction", self.unknown_fraction)
        check(self.n_variables <= 16,
              f"task.n_variables is {self.n_variables}; expected at most 16 (65,536 terms)")
        check(self.n_terms <= self.n_known_terms,
              f"task.n_terms is {self.n_terms}; expected at most the {self.n_known_terms} known "
              f"terms of {self.n_variables} variables")
        n = max(self.n_known_terms, 2**self.n_variables - self.n_known_terms)
        check(comb(n, self.n_terms) <= MOST_COMBINATIONS,
              f"task.n_terms is {self.n_terms}; sets of that many out of {n} terms are more "
              f"than the {MOST_COMBINATIONS:,} combinations that can be listed")
        _check_seed("task", self, "split_seed")
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
        check_choice("task.name", self.name, ("sraven",))
        check_choice("task.rule_order", self.rule_order, ("random", "sorted"))
        _check_at_least("task", self, 1, "n_features")
        _check_at_least("task", self, 2, "n_values", "grid_size")
        _check_fraction("task.ood_fraction", self.ood_fraction)
        check(self.n_values >= self.grid_size,
              f"task.n_values is {self.n_values}; expected at least grid_size = {self.grid_size} "
              "(distribute-three needs that many different symbols)")
        check(self.n_features <= 8,
              f"task.n_features is {self.n_features}; expected at most 8 (6,435 combinations)")
        _check_seed("task", self, "split_seed")
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
    """Token ids in, logits of the vocabulary out: what an imported language model was trained on.

    No text comes with the library, so that no instance can be drawn: such a run can be opened
    and its model be given tokens, but it can be neither trained nor sampled from.
    """

    name: Literal["language"] = "language"
    """Which task this is; fixed."""
    n_vocabulary: int = 2_048
    """Number of token ids (official wikitext-2: 2,048)."""
    n_tokens: int = 128
    """Length of the sequences trained on (official: 128)."""

    def __post_init__(self) -> None:
        check_choice("task.name", self.name, ("language",))
        _check_at_least("task", self, 1, "n_vocabulary", "n_tokens")

    @property
    def d_input(self) -> int:
        """Size of the embedding table."""
        return self.n_vocabulary

    @property
    def d_output(self) -> int:
        """Width of the read-out: one logit per token id."""
        return self.n_vocabulary


TaskConfig = LogicConfig | SravenConfig | LanguageConfig
TASKS: dict[str, type[LogicConfig] | type[SravenConfig]] = {
    "logic": LogicConfig, "sraven": SravenConfig}
"""The tasks that instances can be drawn from."""


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
    """Updates of linear warm-up; the cosine then falls to a tenth of the peak at
    `steps - warmup_steps` (official schedule)."""
    grad_clip: float | None = None
    """Largest global gradient norm; None, as official, does not clip."""
    seed: int = 0
    """Seed of the initial weights, the data streams and the dropout masks."""
    device: str = "cpu"
    """`cpu`, `cuda` or `cuda:N`."""
    precision: Literal["float32", "tf32", "bf16_mlp", "bf16"] = "float32"
    """float32; tf32: float32 whose matrix products round their factors to 10 bits (CUDA only);
    bf16_mlp: bfloat16 autocast in the feed-forward layers, which do most of the arithmetic; or
    bf16: bfloat16 autocast everywhere, in which logits of HYLA are off by 3 % (see
    experiments/studies/precision.py). Weights and losses are float32 always. Training in bfloat16
    is refused where the processor or GPU could only emulate it."""
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
    milestones: tuple[int, ...] = _later(())
    """Further steps with an evaluation and a checkpoint, which stays."""

    def __post_init__(self) -> None:
        _check_at_least("training", self, 1, "steps", "batch_size", "eval_every",
                        "eval_instances", "log_every", "checkpoint_every")
        _check_at_least("training", self, 0, "warmup_steps")
        _check_seed("training", self, "seed")
        if self.keep_checkpoints is not None:
            _check_at_least("training", self, 1, "keep_checkpoints")
        self._check_milestones()
        check_choice("training.precision", self.precision,
                     ("float32", "tf32", "bf16_mlp", "bf16"))
        for name in ("learning_rate", "weight_decay"):
            value = getattr(self, name)
            check(_is_number(value) and 0.0 <= value < float("inf"),
                  f"training.{name} is {value!r}; expected a number of at least 0")
        check(self.grad_clip is None
              or (_is_number(self.grad_clip) and 0.0 < self.grad_clip < float("inf")),
              f"training.grad_clip is {self.grad_clip!r}; expected a number above 0, or null")
        check(2 * self.warmup_steps < self.steps or self.warmup_steps == 0,
              f"training.warmup_steps is {self.warmup_steps}; expected less than half of steps "
              f"= {self.steps}")
        check(re.fullmatch(r"cpu|cuda(:[0-9]+)?", str(self.device)) is not None,
              f"training.device is {self.device!r}; expected cpu, cuda or cuda:N")
        check(self.precision != "tf32" or self.device != "cpu", "training.precision is 'tf32'; "
              "expected float32, bf16_mlp or bf16 on the cpu")

    def _check_milestones(self) -> None:
        steps = self.milestones
        rising = isinstance(steps, (list, tuple)) and all(
            type(step) is int and before < step <= self.steps
            for before, step in zip((0, *steps), steps, strict=False))
        check(rising, f"training.milestones is {steps!r}; expected rising whole numbers from 1 to "
              f"steps = {self.steps}")
        object.__setattr__(self, "milestones", tuple(steps))


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


def flatten(data: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested mappings as one, with dotted keys such as `training.seed`."""
    flat: dict[str, Any] = {}
    for key, value in data.items():
        flat |= flatten(value, f"{prefix}{key}.") if isinstance(value, dict) else {
            prefix + key: value}
    return flat


def from_dict(cls: type[T], data: object, where: str = "") -> T:
    """Build a configuration from plain data; every key must be known and present.

    Raises `ConfigError` naming the key (with its path), the value and what was expected.
    """
    name = where or "configuration"
    check(isinstance(data, Mapping), f"{name} is {data!r}; expected a mapping")
    assert isinstance(data, Mapping)
    hints = get_type_hints(cls)
    fields = dataclasses.fields(cls)  # type: ignore[arg-type]
    keys = [f.name for f in fields]
    unknown = [str(k) for k in data if k not in keys]
    missing = [f.name for f in fields if f.name not in data and LATER not in f.metadata]
    check(not unknown, f"{name} has unknown key(s) {', '.join(unknown)}; expected: "
          f"{', '.join(keys)}")
    check(not missing, f"{name} lacks key(s) {', '.join(missing)}")
    return cls(**{k: _convert(hints[k], data[k], f"{where}.{k}" if where else k)
                  for k in keys if k in data})


def task_from_dict(data: object) -> TaskConfig:
    """Build the configuration of a task, as codes have it in their `meta`; see `from_dict`."""
    task: TaskConfig = _convert(get_type_hints(RunConfig)["task"], data, "task")
    return task


def _convert(hint: Any, value: Any, where: str) -> Any:
    """Return `value` as the annotated type, or raise `ConfigError`."""
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        if value is None and type(None) in args:
            return None
        args = tuple(a for a in args if a is not type(None))
        if len(args) > 1 and all(dataclasses.is_dataclass(a) for a in args):
            check(isinstance(value, Mapping) and "name" in value,
                  f"{where} is {value!r}; expected a mapping with a name")
            by_name = {a.name: a for a in args}
            check_choice(f"{where}.name", value["name"], by_name)
            return from_dict(by_name[value["name"]], value, where)
        return _convert(args[0], value, where)
    if dataclasses.is_dataclass(hint):
        return from_dict(hint, value, where)  # type: ignore[arg-type]
    if origin is Literal:
        check_choice(where, value, args)
        return value
    if origin is tuple:
        check(isinstance(value, (list, tuple)), f"{where} is {value!r}; expected a list")
        return tuple(_convert(args[0], v, f"{where}[{i}]") for i, v in enumerate(value))
    if hint is float and _is_number(value):
        try:
            return float(value)
        except OverflowError:
            raise ConfigError(f"{where} is too large; expected float") from None
    check(isinstance(value, hint) and not (hint is not bool and isinstance(value, bool)),
          f"{where} is {value!r}; expected {hint.__name__}")
    return value


def to_yaml(config: object) -> str:
    """Return the YAML text of a configuration, fields in the order of the class."""
    import yaml

    return yaml.safe_dump(to_dict(config), sort_keys=False, allow_unicode=True)


def from_yaml(cls: type[T], text: str, where: str = "configuration") -> T:
    """Read YAML written by `to_yaml`; `ConfigError` says what is wrong with it."""
    return from_dict(cls, parse_yaml(text, where))


def parse_yaml(text: str, where: str) -> Any:
    """Return the plain data that YAML says; `ConfigError` says what is wrong with it."""
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
        raise ConfigError(f"{where} is not valid YAML: {' '.join(str(error).split())}") from None


def load_config(path: str | Path) -> RunConfig:
    """Read a `RunConfig` from a YAML file; `ConfigError` names the file."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read configuration {path}: {error}") from None
    try:
        return from_yaml(RunConfig, text)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
