"""Does a function of a user's do what attention asks of it? One small example tells.

Every axis has a size of its own, so that none is taken for another.
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
Weights = Mapping[str, Tensor]
NO_WEIGHTS: Weights = {}
CLOSE = 1e-6
"""How far two ways to compute the same numbers may differ."""


class Trial:
    """Calls a function, and speaks of it in errors: `normalization 'sharp' returns NaN ...`."""

    def __init__(self, what: str, name: object, fn: Callable[..., Tensor]) -> None:
        self.what, self.fn = f"{what} {name!r}", fn
        check(callable(fn), f"{self.what} is {fn!r}; expected a function")
        if isinstance(fn, nn.Module):
            check(not list(fn.parameters()), f"{self.what} is a module with parameters, which no "
                  "training would change; expected a function")

    def expect(self, condition: bool, problem: str) -> None:
        check(condition, f"{self.what} {problem}")

    def call(
        self, shape: tuple[int, ...], *inputs: Tensor, weights: Weights = NO_WEIGHTS,
        note: str = "",
    ) -> Tensor:
        """Return what the function returns, if it is finite numbers of a shape.

        note  what is special about the inputs, for errors
        """
        given = " and ".join(str(list(x.shape)) for x in inputs) + note
        copies = [x.clone() for x in inputs]
        with self.failing(given):
            result = self.fn(*copies, **weights)
        self.expect(isinstance(result, Tensor),
                    f"returns {type(result).__name__} for {given}; expected a tensor")
        self.expect(tuple(result.shape) == shape,
                    f"returns shape {list(result.shape)} for {given}; expected {list(shape)}")
        self.expect(result.dtype == inputs[0].dtype,
                    f"returns {result.dtype} for {inputs[0].dtype}; expected the same type")
        self.expect(bool(result.isfinite().all()),
                    f"returns NaN or infinite values for {given}; expected finite ones")
        self.expect(all(map(torch.equal, copies, inputs)),
                    "changes what it is given; expected new tensors")
        return result

    def check_gradients(self, *inputs: Tensor, weights: Weights = NO_WEIGHTS) -> None:
        """The result depends on all that is given, with finite gradients."""
        leaves = [x.clone().requires_grad_() for x in (*inputs, *weights.values())]
        with self.failing("what needs a gradient"):
            given = leaves[:len(inputs)]
            result = self.fn(*given, **dict(zip(weights, leaves[len(inputs):], strict=True)))
            self.expect(result.requires_grad, "returns numbers without a gradient; expected a "
                        "differentiable function")
            gradients = torch.autograd.grad(result.square().sum(), leaves, allow_unused=True)
        self.expect(all(x is not None for x in gradients), "returns numbers that do not depend on "
                    "everything it takes; expected them to, or to take less")
        self.expect(all(bool(x.isfinite().all()) for x in gradients), "has gradients that are "
                    "not finite; expected finite ones")

    def check_same(self, one: Tensor, other: Tensor, problem: str) -> None:
        self.expect(torch.allclose(one, other, rtol=CLOSE, atol=CLOSE), problem)

    @contextmanager
    def failing(self, given: str) -> Iterator[None]:
        try:
            yield
        except LatentCodeError:
            raise
        except Exception as error:
            raise ConfigError(
                f"{self.what} fails on {given}: {type(error).__name__}: {error}") from error


def try_normalization(name: object, made: Normalization) -> None:
    """Raise `ConfigError` unless a normalisation is what `register_normalization` asks for."""
    trial = Trial("normalization", name, made.fn)
    trial.call(SCORES, _numbers(*SCORES).float())
    members = _numbers(MEMBERS, *SCORES)
    codes = trial.call((MEMBERS, *SCORES), members)
    trial.check_same(trial.call((MEMBERS, *SCORES), members), codes, "returns other numbers the "
                     "second time; expected a function of its argument alone")
    trial.check_same(trial.call(SCORES, members[1]), codes[1], "treats a member of an ensemble, "
                     "[E, B, H, Q, K], otherwise than alone, [B, H, Q, K]; expected axes counted "
                     "from the end")
    scores, codes = members[0], codes[0]
    trial.check_same(trial.call((1, *SCORES[1:]), scores[1:2]), codes[1:2], "mixes instances; "
                     "expected codes that depend on scores of their own instance alone")
    trial.check_same(trial.call((*SCORES[:2], 1, KEYS), scores[:, :, 1:2]), codes[:, :, 1:2],
                     "mixes queries; expected codes that depend on scores of their own query alone")
    trial.check_gradients(scores)
    if made.masked is not None:
        _try_masks(trial, made.masked)
    if made.renormalize is not None:
        again = Trial("renormalize of normalization", name, made.renormalize)
        again.call(SCORES, _numbers(*SCORES, seed=1).float())
        again.expect(torch.allclose(again.call(SCORES, codes), codes, rtol=1e-4, atol=1e-4),
                     "changes codes that the normalisation returned; expected it to leave them")


def _try_masks(trial: Trial, masked: str) -> None:
    """Raise `ConfigError` unless the codes of keys after a query are 0 once they are masked."""
    seen = torch.ones(QUERIES, KEYS, dtype=torch.bool).tril()
    for dtype in (torch.float32, torch.float64):
        absent = torch.finfo(dtype).min if masked == "lowest" else 0.0
        scores = torch.where(seen, _numbers(*SCORES).to(dtype), absent)
        instead = "zero" if masked == "lowest" else "lowest"
        hint = f"scores of {absent:.3g} for masked keys (masked={masked!r}; {instead!r} and None " \
               "are the others)"
        codes = trial.call(SCORES, scores, note=f" with {hint}")
        most = float(codes[..., ~seen].abs().max())
        trial.expect(most == 0.0, f"returns codes up to {most:.3g} for {hint}; expected 0")
        trial.check_gradients(scores)


def try_nonlinearity(name: object, fn: Function) -> None:
    """Raise `ConfigError` unless a function acts on each number by itself, differentiably."""
    trial = Trial("nonlinearity", name, fn)
    numbers = _numbers(KEYS, WIDTH)
    numbers[1, 1] = 0.0  # as everything that a masked code is a factor of
    trial.call((KEYS, WIDTH), numbers.float())
    values = trial.call((KEYS, WIDTH), numbers)
    for part, its in ((numbers, values), (numbers[:1], values[:1]), (numbers[:, 1:], values[:, 1:]),
                      (numbers.flatten(), values.flatten()), (numbers[0, 0], values[0, 0])):
        trial.check_same(trial.call(tuple(part.shape), part), its, "returns other numbers for a "
                         "part of what it was given; expected a function of each number by itself")
    trial.check_gradients(numbers)


def try_value_network(name: object, made: OwnValueNetwork) -> None:
    """Raise `ConfigError` unless a function is what `register_value_network` asks for."""
    trial = Trial("value network", name, made.fn)
    config = ModelConfig(n_heads=HEADS, d_head=WIDTH, d_head_v=WIDTH)
    of_all = {}
    for seed, (weight, shape) in enumerate(made.parameters.items(), 2):
        with trial.failing(f"the shape of its parameter {weight!r}"):
            of_all[weight] = _numbers(MEMBERS, *shape(config), seed=seed)
    fixed = {"hook_hidden": lambda x: x} if made.sees_hidden else {}
    phi = nonlinearity("gelu")
    trial.fn = lambda code, v, **weights: made.fn(code, v, phi, **weights, **fixed)
    code, v = _numbers(MEMBERS, *SCORES), _numbers(MEMBERS, INSTANCES, KEYS, HEADS, WIDTH, seed=1)
    out = (INSTANCES, QUERIES, HEADS, WIDTH)
    weights = {weight: x[1] for weight, x in of_all.items()}
    one = trial.call(out, code[1], v[1], weights=weights)
    trial.call(out, code[1].float(), v[1].float(),
               weights={weight: x.float() for weight, x in weights.items()})
    trial.check_same(trial.call(out, code[1], v[1], weights=weights), one, "returns other numbers "
                     "the second time; expected a function of its arguments alone")
    together = trial.call((MEMBERS, *out), code, v, weights=of_all)
    trial.check_same(together[1], one, "treats a member of an ensemble, [E, B, ...], otherwise "
                     "than alone, [B, ...]; expected axes counted from the end, and parameters "
                     "[E, ...] beside them")
    trial.check_same(trial.call((1, *out[1:]), code[1, 1:2], v[1, 1:2], weights=weights), one[1:2],
                     "mixes instances; expected each by itself")
    trial.check_same(trial.call((INSTANCES, 1, *out[2:]), code[1, :, :, 1:2], v[1],
                                weights=weights),
                     one[:, 1:2], "mixes queries; expected each by itself")
    trial.check_gradients(code[1], v[1], weights=weights)


def _numbers(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)
