"""The normalisations, value networks and nonlinearities that a configuration can name.

Those of the library are written out in `latentcode.models.attention` and have None here; users add
theirs with the functions of `latentcode.models.registering`. This module imports no torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, get_args

from latentcode.registry import Registry

if TYPE_CHECKING:
    from torch import Tensor

Function = Callable[["Tensor"], "Tensor"]
Masked = Literal["lowest", "zero"]
"""What a masked score is before normalisation: the most negative number of its type, or 0."""


@dataclass(frozen=True)
class Normalization:
    """a = fn(S), the latent code.

    fn           scores [*E, B, H, Q, K] -> codes of the same shape
    masked       what the score of a masked key is, for its code to be 0; None if no score can say
                 so, for models without a mask
    renormalize  codes [B, H, Q, K] -> the codes nearest to them, in some sense, that `fn` could
                 have returned; None where that is not known
    """

    fn: Function
    masked: Masked | None
    renormalize: Function | None = None


@dataclass(frozen=True)
class OwnValueNetwork:
    """z = fn(code, v, phi, **parameters), for a value network that a user registered.

    parameters   name -> its shape in a model of a `ModelConfig`
    sees_hidden  whether `fn` takes `hook_hidden`, and shows its hidden units to it
    """

    fn: Callable[..., Tensor]
    parameters: Mapping[str, Callable[[Any], Sequence[int]]] = field(default_factory=dict)
    sees_hidden: bool = False


# What comes with the library: the one list of each, for type checkers and `--help` as well.
BuiltInNormalization = Literal["softmax", "rms_head", "none", "softmax_rms_head"]
BuiltInValueNetwork = Literal["linear", "hyla", "hyla_linear", "deep"]
BuiltInNonlinearity = Literal["identity", "relu", "gelu", "silu", "sigmoid", "tanh"]

NORMALIZATIONS: Registry[Normalization | None] = Registry(
    "normalization", "lc.register_normalization", dict.fromkeys(get_args(BuiltInNormalization)))
VALUE_NETWORKS: Registry[OwnValueNetwork | None] = Registry(
    "value network", "lc.register_value_network", dict.fromkeys(get_args(BuiltInValueNetwork)))
NONLINEARITIES: Registry[Function | None] = Registry(
    "nonlinearity", "lc.register_nonlinearity", dict.fromkeys(get_args(BuiltInNonlinearity)))
