"""A probe of one's own: a function of features and labels becomes a question."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, cast

from latentcode.arguments import as_tuple
from latentcode.errors import ConfigError, check, check_choice
from latentcode.lazy import offered
from latentcode.probes.registered.asking import ask
from latentcode.probes.registered.registry import PROBES, Probe, Registered
from latentcode.probes.registered.result import ProbeResult
from latentcode.probes.registered.trials import try_probe

FUNCTION = ("a function of the points that are scored, or of those that it is fitted on and those "
            "that are scored, whose options are keyword-only and have defaults, such as "
            "def nearest(train, heldout, *, k=10)")
SEED = "seed"
Asked = Callable[..., ProbeResult]


def register_probe(
    name: str,
    *,
    features: Sequence[str] | str = ("code",),
    columns: Sequence[str] | str = ("value",),
    figure: Callable[[ProbeResult, Any], object] | None = None,
    sentence: Callable[[ProbeResult], str] | None = None,
    replace: bool = False,
) -> Callable[[Callable[..., Any]], Asked]:
    """Make a function of points a question, known by a name: a decorator.

        @lc.register_probe("nearest", columns="accuracy")
        def nearest(train, heldout, *, k=10):
            \"""Which label do the nearest problems of other combinations have?

            Args:
                k: Number of neighbours.
            \"""
            found = KNeighborsClassifier(k).fit(train.x, train.y)
            return found.predict(heldout.x) == heldout.y

        nearest("sraven-hyla", k=5)

    The function is given `Points`: of training combinations and of held-out ones, if it takes two
    sets, else of those that are scored alone. It returns a number for each problem that is scored,
    or several, by name (a mapping or a data frame). What it is called with then, which problems and
    labels, which controls, and what stands in the result, is that of all questions (`ask` in
    `latentcode.probes.registered.asking`, `ProbeResult`), as are the command `latentcode nearest`
    and the page Results.

    name      lower-case letters, digits and underscores
    features  what it is asked of unless the caller says more: `code`, others of
              `latentcode.codes.rows`, or registered ones
    columns   what the numbers are called, one name or several
    figure    draws a result on matplotlib axes: figure(result, axes); default: the value per layer,
              with controls and intervals
    sentence  says what a result found: sentence(result) -> text, which stands before its contrasts
              in words; default: these alone
    replace   take the place of an earlier probe of that name, as when a cell of a notebook runs
              again

    Its keyword-only arguments are options; its docstring describes them under `Args:`, as
    above. An argument `seed` is given the question's, and is where random numbers are drawn
    from. The function is tried on a few made-up problems at once: `ConfigError` for a name that is
    taken, for a function with other arguments or without a docstring, and for one that fails on
    them, changes what it is given, or returns something else than the columns.
    """
    PROBES.check_name(name)

    def register(function: Callable[..., Any]) -> Asked:
        _check_name(name, function)
        probe = Probe(
            name, function, *_arguments(name, function), tuple(as_tuple(features)),
            tuple(as_tuple(columns)), figure, sentence)
        _check_said(probe)
        signature = _signature(probe)

        @wraps(function)
        def question(*of: Any, **given: Any) -> ProbeResult:
            for argument in given:
                check_choice(f"argument of probe {name!r}", argument, signature.parameters)
            bound = signature.bind(*of, **given)
            return ask(probe, *bound.args, **bound.kwargs)

        question.__name__ = name
        asked = cast(Any, question)
        asked.__signature__, asked.registered = signature, True
        if not _of_library(name, function):
            try_probe(probe)
        PROBES.add(name, Registered(probe, question), replace=replace)
        return question

    return register


def _of_library(name: str, function: Callable[..., Any]) -> bool:
    return offered().get(name) == getattr(function, "__module__", "")


def _check_name(name: str, function: Callable[..., Any]) -> None:
    check(callable(function), f"probe {name!r} is {function!r}; expected {FUNCTION}")
    check(name not in offered() or _of_library(name, function),
          f"probe {name!r} comes with latentcode; expected another name")


def _arguments(
    name: str, function: Callable[..., Any]
) -> tuple[Mapping[str, Any], bool, bool]:
    """Return the options of a function, whether it is fitted, and whether it takes a seed."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # built-in functions do not say
        raise ConfigError(f"probe {name!r} is {function!r}; expected {FUNCTION}") from None
    points = [one for one in parameters if one.kind in (one.POSITIONAL_ONLY,
                                                        one.POSITIONAL_OR_KEYWORD)]
    own = [one for one in parameters if one.kind is one.KEYWORD_ONLY]
    check(len(points) in (1, 2) and len(points) + len(own) == len(parameters)
          and all(one.default is one.empty for one in points),
          f"probe {name!r} takes ({', '.join(map(str, parameters))}); expected {FUNCTION}")
    options = {one.name: one.default for one in own if one.name != SEED}
    without = [option for option, default in options.items() if default is inspect.Parameter.empty]
    check(not without, f"probe {name!r}: {', '.join(without)} has no default; expected {FUNCTION}")
    known = [*inspect.signature(ask).parameters]
    taken = [option for option in options if option in known]
    check(not taken, f"probe {name!r} has an option {', '.join(taken)}, which every question has; "
          f"expected other names than {', '.join(known[1:-1])}")
    return options, len(points) == 2, any(one.name == SEED for one in own)


def _check_said(probe: Probe) -> None:
    check(bool((probe.function.__doc__ or "").strip()), f"probe {probe.name!r} has no docstring; "
          "expected one whose first line is the question that it answers")
    for what in ("features", "columns"):
        names = getattr(probe, what)
        check(bool(names) and all(isinstance(one, str) and one for one in names)
              and len(set(names)) == len(names), f"{what} of probe {probe.name!r} are {names!r}; "
              "expected different names, at least one")
    for what in ("figure", "sentence"):
        function = getattr(probe, what)
        check(function is None or callable(function), f"{what} of probe {probe.name!r} is "
              f"{function!r}; expected a function of a result")


def _signature(probe: Probe) -> inspect.Signature:
    """Return what the question takes: model and problems, the probe's options, those of all."""
    asked = inspect.signature(ask)
    common = [one for one in asked.parameters.values() if one.kind is not one.VAR_KEYWORD][1:]
    of_model = [one for one in common if one.kind is one.POSITIONAL_OR_KEYWORD]
    of_probe = inspect.signature(probe.function).parameters
    return inspect.Signature(
        [*of_model, *(of_probe[option] for option in probe.options),
         *(one for one in common if one not in of_model)],
        return_annotation=asked.return_annotation)
