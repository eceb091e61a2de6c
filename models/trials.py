"""A registered function of attention is tried on one small example: shape, type, finite numbers.

Every axis has a size of its own, so that none is taken for another. What else a function has to
be (a function of its arguments alone, each instance and query by itself, differentiable) is for a
test of its author's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from latentcode.errors import ConfigError, LatentCodeError, check
from latentcode.models.attention import nonlinearity
from latentcode.models.config import ModelConfig
from latentcode.models.names import Function, Normalization, OwnValueNetwork

MEMBERS, INSTANCES, HEADS, QUERIES, KEYS, WIDTH = 2, 3, 4, 5, 7, 6
SCORES = (INSTANCES, HEADS, QUERIES, KEYS)


def try_function(
    what: str, function: Callable[..., Tensor], shape: tuple[int, ...], *inputs: Tensor,
    weights: Mapping[str, Tensor] | None = None, note: str = "",
) -> Tensor:
    """Return what a function returns, if it is finite numbers of a shape.

    Args:
        what: Kind and name of the function, for errors.
        function: The function.
        shape: Shape of the expected result, whose type is that of the first input.
        inputs: Its positional arguments; it may not write to them.
        weights: Its keyword arguments.
        note: What is special about the inputs, for errors.

    Raises:
        ConfigError: It raises, returns something else, or changes its inputs.
    """
    given = " and ".join(str(list(x.shape)) for x in inputs) + note
    copies = [x.clone() for x in inputs]
    with _failing(what, given):
        result = function(*copies, **(weights or {}))
    check(isinstance(result, Tensor),
          f"{what} returns {type(result).__name__} for {given}; expected a tensor")
    check(tuple(result.shape) == shape and result.dtype == inputs[0].dtype,
          f"{what} returns shape {list(result.shape)} of {result.dtype} for {given}; expected "
          f"{list(shape)} of {inputs[0].dtype}")
    check(bool(result.isfinite().all()),
          f"{what} returns NaN or infinite values for {given}; expected finite ones")
    check(all(map(torch.equal, copies, inputs)),
          f"{what} changes what it is given; expected new tensors")
    return result


def try_normalization(name: object, made: Normalization) -> None:
    """Raise `ConfigError` unless a normalisation maps scores to finite codes, and masked keys to 0.
    """
    what = _checked("normalization", name, made.fn)
    scores = _numbers(MEMBERS, *SCORES)
    codes = try_function(what, made.fn, scores.shape, scores)
    try_function(what, made.fn, SCORES, scores[0])
    if made.masked is not None:
        seen = torch.ones(QUERIES, KEYS, dtype=torch.bool).tril()
        absent = torch.finfo(torch.float32).min if made.masked == "lowest" else 0.0
        hint = f"scores of {absent:.3g} for masked keys (masked={made.masked!r})"
        hidden = try_function(what, made.fn, SCORES, torch.where(seen, scores[0], absent),
                              note=f" with {hint}")[..., ~seen]
        check(not bool(hidden.any()), f"{what} returns codes up to {float(hidden.abs().max()):.3g} "
              f"for {hint}; expected 0, or another `masked`: lowest, zero or None")
    if made.renormalize is not None:
        try_function(f"renormalize of {what}", made.renormalize, SCORES, codes[0])


def try_nonlinearity(name: object, function: Function) -> None:
    """Raise `ConfigError` unless a function maps numbers to as many finite ones."""
    what = _checked("nonlinearity", name, function)
    for shape in ((KEYS, WIDTH), (KEYS * WIDTH,)):
        try_function(what, function, shape, _numbers(*shape))


def try_value_network(name: object, made: OwnValueNetwork) -> None:
    """Raise `ConfigError` unless a value network makes finite outputs, of a model and of an
    ensemble."""
    what = _checked("value network", name, made.fn)
    config = ModelConfig(n_heads=HEADS, d_head=WIDTH, d_head_v=WIDTH)
    weights = {}
    for weight, shape in made.parameters.items():
        with _failing(what, f"the shape of its parameter {weight!r}"):
            weights[weight] = _numbers(MEMBERS, *shape(config))
    extra = {"hook_hidden": lambda x: x} if made.sees_hidden else {}
    phi = nonlinearity("gelu")

    def function(code: Tensor, v: Tensor, **weights: Tensor) -> Tensor:
        return made.fn(code, v, phi, **weights, **extra)

    code, v = _numbers(MEMBERS, *SCORES), _numbers(MEMBERS, INSTANCES, KEYS, HEADS, WIDTH)
    out = (INSTANCES, QUERIES, HEADS, WIDTH)
    try_function(what, function, (MEMBERS, *out), code, v, weights=weights)
    try_function(what, function, out, code[0], v[0],
                 weights={weight: values[0] for weight, values in weights.items()})


def _checked(kind: str, name: object, function: object) -> str:
    """Return what a function is called in errors, if it is one without trainable parameters."""
    what = f"{kind} {name!r}"
    check(callable(function), f"{what} is {function!r}; expected a function")
    check(not isinstance(function, nn.Module) or not list(function.parameters()),
          f"{what} is a module with parameters, which no training would change; expected a "
          "function")
    return what


@contextmanager
def _failing(what: str, given: str) -> Iterator[None]:
    try:
        yield
    except LatentCodeError:
        raise
    except Exception as error:
        raise ConfigError(
            f"{what} fails on {given}: {type(error).__name__}: {error}") from error


def _numbers(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))
