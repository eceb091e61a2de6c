"""Attention of one's own: normalisations, value networks, nonlinearities and kinds, by name.

    a = normalization(S);   z = value_network(a, v, phi);   y_q = sum_h W_O^h z_qh + b_O

A registered name stands wherever a configuration takes one. What it stands for is computed by the
functions of `latentcode.models.attention`, never by a kernel. A run remembers the name alone;
whoever opens it later imports the file that registers it.

When it is registered, a function is tried on one small example: shape, type, finite numbers. Every
axis has a size of its own, so that none is taken for another. What else a function has to be (a
function of its arguments alone, each instance and query by itself, differentiable) is for a test of
its author's.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from latentcode.errors import ConfigError, called, check
from latentcode.models.attention import nonlinearity
from latentcode.models.config import (
    ATTENTION_KINDS,
    NONLINEARITIES,
    NORMALIZATIONS,
    TABLE_A1,
    VALUE_NETWORKS,
    Function,
    Masked,
    ModelConfig,
    Normalization,
    OwnValueNetwork,
)

WEIGHT = re.compile(r"[Wb]_[A-Za-z0-9_]+")
TAKEN = re.compile(r"[Wb]_[QKVO]|W_V2")
"""Names of an attention layer's own parameters."""
MEMBERS, INSTANCES, HEADS, QUERIES, KEYS, WIDTH = 2, 3, 4, 5, 7, 6
SCORES = (INSTANCES, HEADS, QUERIES, KEYS)
"""Sizes of the example on which a function is tried."""


def register_normalization(
    name: str,
    fn: Function,
    *,
    masked: Masked | None = "lowest",
    renormalize: Function | None = None,
    replace: bool = False,
) -> None:
    """a = fn(S): how scores become a code, under a name for `ModelConfig.normalization`.

        lc.register_normalization("sharp", lambda scores: (2 * scores).softmax(-1))

    fn       scores [*E, B, H, Q, K] -> codes of the same shape and type, differentiable. The last
             axis is that of keys and the third last that of heads; *E is nothing, or the members of
             an ensemble. Members, instances and queries are each treated by themselves, because
             models compute some of them alone: count axes from the end
    masked   what the score of a masked key is, so that its code is 0: `lowest`, the most negative
             number of its type, as for a softmax; `zero`; or None if neither does, and then causal
             models and masks are refused
    renormalize  codes [B, H, Q, K] -> codes that obey the constraint of `fn`'s, such as a sum of 1;
             what `fn` returns it leaves as it is. Without it interventions that ask to renormalise
             are refused
    replace  take the place of an earlier registration, as in a notebook whose cell runs again

    `ConfigError` for a name that is taken, and for a function that fails any of this on a small
    example, with the reason.
    """
    check(masked in ("lowest", "zero", None), f"masked is {masked!r}; expected 'lowest', 'zero' or "
          "None")
    what = _checked(f"normalization {name!r}", fn)
    scores = _numbers(MEMBERS, *SCORES)
    codes = try_function(what, fn, scores.shape, scores)
    try_function(what, fn, SCORES, scores[0])
    if masked is not None:
        seen = torch.ones(QUERIES, KEYS, dtype=torch.bool).tril()
        absent = torch.finfo(torch.float32).min if masked == "lowest" else 0.0
        hint = f"scores of {absent:.3g} for masked keys (masked={masked!r})"
        hidden = try_function(what, fn, SCORES, torch.where(seen, scores[0], absent),
                              note=f" with {hint}")[..., ~seen]
        check(not bool(hidden.any()), f"{what} returns codes up to {float(hidden.abs().max()):.3g} "
              f"for {hint}; expected 0, or another `masked`: lowest, zero or None")
    if renormalize is not None:
        try_function(f"renormalize of {what}", renormalize, SCORES, codes[0])
    NORMALIZATIONS.add(name, Normalization(fn, masked, renormalize), replace=replace)


def register_nonlinearity(name: str, fn: Function, *, replace: bool = False) -> None:
    """phi = fn: a nonlinearity of value networks, for `ModelConfig.nonlinearity`.

        lc.register_nonlinearity("square", torch.square)

    fn  numbers of any shape -> as many of the same type, each from its own number alone;
        differentiable

    `ConfigError` as for `register_normalization`.
    """
    what = _checked(f"nonlinearity {name!r}", fn)
    for shape in ((KEYS, WIDTH), (KEYS * WIDTH,)):
        try_function(what, fn, shape, _numbers(*shape))
    NONLINEARITIES.add(name, fn, replace=replace)


def register_value_network(
    name: str,
    fn: Callable[..., Tensor],
    *,
    parameters: Mapping[str, Callable[[ModelConfig], Sequence[int]]] | None = None,
    replace: bool = False,
) -> None:
    """z = fn(code, v, phi, **parameters): what a code makes of the values, by a name for
    `ModelConfig.value_network`.

        def gated(code, v, phi, W_G):        # z_qh = sum_k a_hqk v_kh phi(v_kh W_G^h)
            gates = phi(torch.einsum("...bkhd,...hde->...bkhe", v, W_G))
            return torch.einsum("...hqk,...khd->...qhd", code, v * gates)

        lc.register_value_network("gated", gated, parameters={
            "W_G": lambda config: (config.n_heads, config.d_head_v, config.d_head_v)})

    code    [*E, B, H, Q, K], normalised, masked and after dropout; *E as in
            `register_normalization`
    v       [*E, B, K, H, d], values with their biases, d = d_head_v
    phi     the nonlinearity that the configuration names
    parameters  name -> its shape in a model of a configuration: trained weights of every layer,
            which `fn` takes under these names as [*E, *shape]. They begin with `W_` (drawn with
            variance 1 / the product of all axes but the last) or `b_` (zeros)
    result  z [*E, B, Q, H, d], of the type of `v` and differentiable; the layer's output is
            sum_h W_O^h z_qh + b_O. Members, instances and queries each by themselves

    If `fn` takes `hook_hidden`, it is given a function that shows hidden units to
    `attn.hook_value_hidden` and returns them, perhaps written by a hook. Which network a code
    generates the library cannot know, so that `value_network` and what builds on it refuse such
    a model. `ConfigError` as for `register_normalization`, and for a parameter's name.
    """
    parameters = dict(parameters or {})
    for parameter in parameters:
        check(WEIGHT.fullmatch(parameter) is not None and TAKEN.fullmatch(parameter) is None,
              f"a parameter of value network {name!r} is {parameter!r}; expected W_ or b_ and a "
              "word, other than those of every attention layer (W_Q, b_Q, W_K, ..., W_V2)")
    what = _checked(f"value network {name!r}", fn)
    try:
        sees_hidden = "hook_hidden" in inspect.signature(fn).parameters
    except (TypeError, ValueError):  # built-in functions do not say
        sees_hidden = False
    config = ModelConfig(n_heads=HEADS, d_head=WIDTH, d_head_v=WIDTH)
    weights = {parameter: _numbers(MEMBERS, *called(
        f"{what}: the shape of its parameter {parameter!r}", ConfigError, shape, config))
        for parameter, shape in parameters.items()}
    phi = nonlinearity("gelu")
    extra = {"hook_hidden": lambda x: x} if sees_hidden else {}

    def function(code: Tensor, v: Tensor, **weights: Tensor) -> Tensor:
        return fn(code, v, phi, **weights, **extra)

    code, v = _numbers(MEMBERS, *SCORES), _numbers(MEMBERS, INSTANCES, KEYS, HEADS, WIDTH)
    out = (INSTANCES, QUERIES, HEADS, WIDTH)
    try_function(what, function, (MEMBERS, *out), code, v, weights=weights)
    try_function(what, function, out, code[0], v[0],
                 weights={parameter: values[0] for parameter, values in weights.items()})
    VALUE_NETWORKS.add(name, OwnValueNetwork(fn, parameters, sees_hidden), replace=replace)


def register_kind(
    name: str,
    *,
    normalization: str,
    value_network: str,
    nonlinearity: str = "identity",
    feedforward: str | None = None,
    replace: bool = False,
) -> None:
    """A name for the fields of a model that make its kind of attention, beside those of Table A1.

        lc.register_kind("sharp_hyla", normalization="sharp", value_network="hyla",
                         nonlinearity="relu")
        lc.train(lc.preset("small", "logic", "sharp_hyla"), "runs/sharp_hyla")

    feedforward  None: that of the configuration that the kind is given to

    Presets, `with_kind`, sweeps and `--kind` take it, and models with these fields are called by
    it. `ConfigError` for fields that another kind has already, and for a name that is taken.
    """
    fields: dict[str, Any] = {"normalization": normalization, "value_network": value_network,
                              "nonlinearity": nonlinearity}
    if feedforward is not None:
        fields["feedforward"] = feedforward
    ModelConfig(**fields)  # raises for what is unknown or does not fit together
    for other, its in ATTENTION_KINDS.items():
        same = its.items() <= fields.items() if other in TABLE_A1 else its == fields
        check(not same or (other == name and replace), f"kind {name!r} has the fields of "
              f"{other!r}, by which its models are called; expected fields that no kind has")
    ATTENTION_KINDS.add(name, fields, replace=replace)


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
    result = called(f"{what} given {given}", ConfigError, function, *copies, **(weights or {}))
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


def _checked(what: str, function: object) -> str:
    """Return `what` if it is a function without trainable parameters; else raise `ConfigError`."""
    check(callable(function), f"{what} is {function!r}; expected a function")
    check(not isinstance(function, nn.Module) or not list(function.parameters()),
          f"{what} is a module with parameters, which no training would change; expected a "
          "function")
    return what


def _numbers(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))
