"""Registered tasks: the class of each configuration, its minimal pairs and its distances.

A task knows nothing of its readers: the table is where they meet. A task of a user's own is tried
on a few instances.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import pandas as pd
import torch
from torch import Tensor

from latentcode.config import TASKS, TaskConfig, from_dict, to_dict
from latentcode.devices import make_generator
from latentcode.errors import ConfigError, check, check_whole
from latentcode.registry import Registry
from latentcode.tasks.base import Batch, Task
from latentcode.tasks.counterfactuals import ChosenPairs, Counterfactuals
from latentcode.tasks.distances import Distances
from latentcode.tasks.logic.counterfactuals import LogicCounterfactuals
from latentcode.tasks.logic.task import FuzzyLogic, logic_distances
from latentcode.tasks.sraven.counterfactuals import SravenCounterfactuals
from latentcode.tasks.sraven.task import Sraven, sraven_distances
from latentcode.tasks.text.counterfactuals import TextCounterfactuals
from latentcode.tasks.text.task import Text

TaskT = TypeVar("TaskT", bound=Task)
HELD = "numbers, text, truth values, Literal choices and tuples of these"
"""What the fields of a configuration hold."""


@dataclass(frozen=True)
class Registered:
    """A task and its readers, as in `register_task`."""

    task: type[Task]
    counterfactuals: Callable[[Any], Counterfactuals] | None = None
    distances: Callable[[Any, str, str], Distances] | None = None


REGISTRY: Registry[Registered] = Registry("task", "lc.register_task", {
    FuzzyLogic.name: Registered(FuzzyLogic, LogicCounterfactuals, logic_distances),
    Sraven.name: Registered(Sraven, SravenCounterfactuals, sraven_distances),
    Text.name: Registered(Text, TextCounterfactuals),
})
"""By the name of the task; `latentcode.config.TASKS` has the classes of the configurations."""


def register_task(
    name: str,
    *,
    config: type[TaskConfig] | None = None,
    counterfactuals: Callable[[Any], Counterfactuals] | None = None,
    distances: Callable[[Any, str, str], Distances] | None = None,
    replace: bool = False,
) -> Callable[[type[TaskT]], type[TaskT]]:
    """Make a task of one's own known by a name: a decorator of its class.

        @lc.register_task("modadd", config=ModAddConfig)
        class ModularAddition(lc.Task): ...

    From then on, everything that takes fuzzy logic takes it, too.

    config           a frozen dataclass whose fields have defaults, `name` that of the task
    counterfactuals  of a task, its minimal pairs, which interventions need
    distances        of a task, a label and a split, how far apart the values of the label are,
                     which topography, representational similarity analysis, needs
    replace          take the place of an earlier task of that name, as when a cell of a notebook
                     runs again

    Raises `ConfigError` that names the member which the class or its configuration lacks, and
    for a name that is taken.
    """
    if config is None:
        raise ConfigError(f"register_task({name!r}) is given no config; expected config=, a frozen "
                          "dataclass of what its instances depend on")

    def register(task: type[TaskT]) -> type[TaskT]:
        check(isinstance(task, type) and issubclass(task, Task),
              f"task {name!r} is {task!r}; expected a subclass of lc.Task")
        given = vars(task).get("name", name)
        check(given == name, f"{task.__qualname__}.name is {given!r}; expected {name!r}, the name "
              "that it is registered under")
        lacking = sorted(getattr(task, "__abstractmethods__", ()))
        lacking += [each for each in ("constituent", "headline") if not hasattr(task, each)]
        check(not lacking, f"{task.__qualname__} lacks {', '.join(lacking)}; expected every member "
              "that lc.Task leaves open")
        _check_config(name, config)
        TASKS.add(name, config, replace=replace)
        REGISTRY.add(name, Registered(task, counterfactuals, distances), replace=replace)
        task.name = name
        return task

    return register


def task_class(config: TaskConfig) -> type[Task]:
    """Return the class of a configuration's task: what it says without its problems, or its text.
    """
    return REGISTRY.find(config.name).task


def make_task(config: TaskConfig | str) -> Task:
    """Return the task of a configuration, or of the name of one, such as `logic`, by default.

    `ConfigError` for language without a text to draw from, or with one that cannot be used, and for
    what is no configuration; `UnknownNameError` for a task that is not registered.
    """
    if isinstance(config, str):
        config = TASKS.find(config)()
    check(hasattr(config, "name"), f"config is {config!r}; expected the configuration of a task, "
          "such as lc.LogicConfig(), or the name of one")
    return task_class(config)(config)


def as_task(task: Task | TaskConfig) -> Task:
    """Return a task that is given as such or by its configuration.

    `ConfigError` for a name: its default configuration is rarely that of the run at hand, whose
    held-out combinations may then be none.
    """
    check(not isinstance(task, str), f"task is {task!r}; expected a task or a configuration, such "
          "as run.config.task, or dataclasses.replace(run.config.task, ...)")
    return task if isinstance(task, Task) else make_task(task)


def make_counterfactuals(task: Task, *, factorial: bool = True) -> Counterfactuals:
    """Return the minimal pairs of a task; `ConfigError` for a task that has none.

    factorial  with sources that differ in operation, operands and the rest, where the task offers
               them; without, minimal pairs of any two constituents
    """
    pairs: Counterfactuals = _reader(task, "counterfactuals", "offers no minimal pairs, which "
                                     "interventions need")(task)
    if not factorial:
        pairs.factorial = False
    return pairs


def chosen_pairs(pairs: Counterfactuals) -> ChosenPairs:
    """Return the pairs of a task whose constituents somebody can choose; `ConfigError` for others.
    """
    if not isinstance(pairs, ChosenPairs):
        raise ConfigError("the bench needs minimal pairs of a chosen constituent, which this task "
                          "does not offer; expected counterfactuals that are ChosenPairs, as those "
                          "of logic and sraven are")
    return pairs


def task_distances(task: Task, label: str, split: str) -> Distances:
    """Return how far apart the values of a label are: name of a distance -> [N, N].

    label  a constituent (`rule`, `term_1`, `terms`) or `combination`, those of `split`

    The frames' rows and columns are named as in `Task.labels`. `UnknownNameError` for other
    labels, `ConfigError` for a task that compares nothing.
    """
    distances: Distances = _reader(
        task, "distances", "defines no distance between its constituents, which topography needs "
        "unless distances={...} is given")(task, label, split)
    return distances


def _reader(task: Task, name: str, lack: str) -> Callable[..., Any]:
    """Return a reader of a registered task; `ConfigError` for a task without."""
    reader = getattr(REGISTRY.get(task.name), name, None)
    if reader is None:
        having = [known for known, registered in REGISTRY.items() if getattr(registered, name)]
        raise ConfigError(f"task {task.name!r} {lack}; expected {', '.join(having)} or a task of "
                          f"your own with {REGISTRY.register}(..., {name}=...)")
    return reader


def _check_config(name: str, config: type[TaskConfig]) -> None:
    """Raise `ConfigError` for a class that cannot be the configuration of a task."""
    what = getattr(config, "__qualname__", repr(config))
    frozen = getattr(getattr(config, "__dataclass_params__", None), "frozen", False)
    check(frozen, f"config is {what}; expected a frozen dataclass")
    try:
        default = config()
        again = from_dict(config, to_dict(default), what)
    except (TypeError, NameError) as error:  # no default, not for JSON, an unknown annotation
        raise ConfigError(f"{what} cannot be made, written to a file and read back ({error}); "
                          f"expected fields with defaults, of {HELD}") from None
    check(again == default, f"{what}() is another one when it is read back from a file; expected "
          f"fields of {HELD}")
    check(getattr(default, "name", None) == name, f"{what} lacks the field name; expected "
          f"name: Literal[{name!r}] = {name!r}, the name that the task is registered under")
    for field in dataclasses.fields(default):
        value = getattr(default, field.name)
        check(not isinstance(value, (dict, list)), f"{what}.{field.name} is {value!r}; expected "
              f"{HELD}")
    for size in ("d_input", "d_output", "n_tokens"):
        check_whole(f"{what}.{size}", getattr(default, size, None), 1)


N = 4
"""Instances of a trial."""


def try_task(task: Task, *splits: str) -> None:
    """Raise `ConfigError`, which names the member, unless a task's members fit each other.

    Args:
        task: The task; one of the library is not tried.
        splits: Those to draw from, N instances each.
    """
    if REGISTRY.file(getattr(task, "name", "")) is None:
        return
    for split in splits:
        task.check_split(split)
        _try_split(task, split)


def _try_split(task: Task, split: str) -> None:
    """Call every member on N instances; `ConfigError` for the first that returns something else."""
    def expect(condition: bool, member: str, returned: object, expected: str) -> None:
        given = (f"a tensor {list(returned.shape)}" if isinstance(returned, Tensor) else
                 returned if isinstance(returned, str) else f"a {type(returned).__name__}")
        check(condition, f"task {task.name!r}: for {N} instances of {split}, {member} returned "
              f"{given}; expected {expected}")

    def expect_tensor(member: str, values: Any, *shape: int) -> None:
        fits = isinstance(values, Tensor) and tuple(values.shape) == shape
        expect(fits, member, values, f"a tensor {list(shape)}")
        expect(bool(values.isfinite().all()), member, "NaN or infinite numbers", "finite ones")

    size, generator = task.config, make_generator(0, "trial")
    batch = task.sample(split, N, generator)
    expect(isinstance(batch, Batch), "sample", batch, "a lc.Batch")
    vector = () if batch.inputs.ndim == 2 else (size.d_input,)  # or token ids
    expect_tensor("sample (inputs)", batch.inputs, N, size.n_tokens, *vector)
    expect_tensor("sample (targets)", batch.targets, N, *batch.targets.shape[1:])
    expect_tensor("sample (combination)", batch.combination, N)
    logits = torch.randn(N, task.check_n_read() or size.n_tokens, size.d_output,
                         generator=generator)
    expect_tensor("losses", task.losses(logits, batch.targets), N)
    measures = task.measures(logits, batch)
    expect(isinstance(measures, Mapping), "measures", measures, "a dictionary of tensors")
    for name, values in measures.items():
        expect_tensor(f"measures ({name!r})", values, N)
    metrics = task.summarize({name: x.double().numpy() for name, x in {
        **measures, **task.constituent_measures(logits, batch)}.items()})
    expect(task.headline in metrics, "measures", ", ".join(metrics) or "nothing",
           f"the headline {task.headline!r} among them")
    for part, values in zip(("query", "key"), task.positions(tuple(task.pairs), batch),
                            strict=True):
        expect_tensor(f"positions ({part})", values, N, len(task.pairs))
        least, most = int(values.min()), int(values.max())
        expect(least >= 0 and most < size.n_tokens, f"positions ({part})",
               f"numbers from {least} to {most}", f"0 to {size.n_tokens - 1}")
    labels = task.labels(batch)
    expect(isinstance(labels, pd.DataFrame), "labels", labels, f"a data frame of {N} rows")
    expect(len(labels) == N, "labels", f"{len(labels)} rows", f"{N}, one for each instance")
    expect("combination" in labels, "labels", f"the columns {', '.join(map(str, labels))}",
           "'combination' among them")
