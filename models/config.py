"""What a hooked transformer is made of: one frozen dataclass, and the named attention kinds.

This module imports neither torch nor any task, so that the command line can show its help
at once. Every variant of the paper's Table A1 is a combination of the same few fields
(normalisation x value network x nonlinearity x feed-forward), not a class of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, get_args

from latentcode.errors import MOST, check, check_choice, check_whole
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


# Any name that is registered; those of the library are here for readers and for `--help`.
NormalizationName = str | BuiltInNormalization
ValueNetworkName = str | BuiltInValueNetwork
NonlinearityName = str | BuiltInNonlinearity
Feedforward = Literal["gelu", "swiglu", "moe"]
Positions = Literal["t5", "rotary", "none"]

OWN: dict[str, Registry[Any]] = {
    "normalization": NORMALIZATIONS, "value_network": VALUE_NETWORKS,
    "nonlinearity": NONLINEARITIES}
"""The fields of a model whose names users add to."""
FEEDFORWARDS: tuple[str, ...] = get_args(Feedforward)
POSITIONS: tuple[str, ...] = get_args(Positions)


@dataclass(frozen=True)
class ModelConfig:
    """Architecture of a hooked transformer; the defaults are the paper's fuzzy-logic model.

    Raises `ConfigError` that names the field, its value and what was expected.
    """

    d_input: int = 5
    """Width of an input vector (embedding `dense`) or size of the vocabulary (`token`)."""
    d_output: int = 1
    """Width of the read-out; with readout `tied` it must equal the vocabulary."""
    n_layers: int = 2
    """Number of blocks (paper, Table A3)."""
    d_model: int = 128
    """Width of the residual stream (`emb_dim` in Table A3)."""
    n_heads: int = 8
    """Number of heads H, which is the dimension of a latent code."""
    d_head: int = 2
    """Query and key dimension per head (`kqv_dim / num_heads` in Table A3)."""
    d_head_v: int = 2
    """Value dimension per head."""
    d_mlp: int = 256
    """Hidden width of the feed-forward layer, of each expert for `moe` (Table A3)."""
    normalization: NormalizationName = "rms_head"
    """How scores become a code: over keys (softmax), over heads (rms_head, Eq. 7), or not; or as
    `lc.register_normalization` was told."""
    value_network: ValueNetworkName = "hyla"
    """What a code generates: Eq. 5 (linear), Eq. 6 (hyla), Eq. 6 without nonlinearity
    (hyla_linear), Eq. 10 (deep), or what `lc.register_value_network` was told."""
    nonlinearity: NonlinearityName = "relu"
    """Nonlinearity of the value network. For `linear` it acts on each head's value before
    aggregation (Table A1, "nonlinear value") and `identity` is the ordinary layer."""
    feedforward: Feedforward = "gelu"
    """State mixer: one hidden layer with tanh-approximated GELU, SwiGLU, or experts (A.1)."""
    n_experts: int = 5
    """Number of experts of `moe` (paper, A.1)."""
    top_k: int = 2
    """Number of experts that each token is routed to (paper, A.1)."""
    positions: Positions = "t5"
    """T5-style relative bias (own table per layer), rotary queries and keys, or none."""
    n_buckets: int = 32
    """Buckets of the T5 bias; the official code sets it to the sequence length."""
    max_distance: int = 32
    """Distance in tokens beyond which all keys share the last T5 bucket."""
    causal: bool = False
    """Mask keys after the query (language modelling only; paper, C)."""
    cross_attention: bool = False
    """Add to every block an attention layer over a second sequence, the `context`."""
    attention_dropout: float = 0.1
    """Probability of dropping an attention edge in training. The official code has 0.1
    silently on; it is stated with every result here."""
    attention_dropout_form: Literal["shared", "independent"] = "shared"
    """`shared`: one mask over batch and heads, as official; `independent`: one per score."""
    embedding: Literal["dense", "token"] = "dense"
    """Input map: a dense layer on vectors, or a table on token ids."""
    readout: Literal["dense", "tied"] = "dense"
    """Output map: a dense layer, or the transposed embedding divided by sqrt(d_model)."""

    def __post_init__(self) -> None:
        for name, registry in OWN.items():
            registry.find(getattr(self, name))
        for name, valid in (
            ("feedforward", FEEDFORWARDS),
            ("positions", POSITIONS),
            ("attention_dropout_form", ("shared", "independent")),
            ("embedding", ("dense", "token")),
            ("readout", ("dense", "tied")),
        ):
            check_choice(f"model.{name}", getattr(self, name), valid)
        for name in ("d_input", "d_output", "n_layers", "d_model", "n_heads", "d_head", "d_head_v",
                     "d_mlp", "n_experts", "top_k", "n_buckets", "max_distance"):
            check_whole(f"model.{name}", getattr(self, name), 1,
                        most=10_000 if name == "n_layers" else MOST)
        for name in ("causal", "cross_attention"):
            value = getattr(self, name)
            check(type(value) is bool, f"model.{name} is {value!r}; expected True or False")
        check(type(self.attention_dropout) in (int, float) and 0.0 <= self.attention_dropout < 1.0,
              f"model.attention_dropout is {self.attention_dropout!r}; expected 0 <= p < 1")
        check(self.top_k <= self.n_experts,
              f"model.top_k is {self.top_k}; expected at most n_experts = {self.n_experts}")
        check(self.positions != "rotary" or self.d_head % 2 == 0,
              f"model.d_head is {self.d_head}; expected an even number for rotary positions")
        check(self.positions != "t5" or 2 <= self.n_buckets <= self.max_distance,
              f"model.n_buckets is {self.n_buckets}; expected 2 <= n_buckets <= max_distance "
              f"= {self.max_distance}")
        check(self.value_network != "hyla_linear" or self.nonlinearity == "identity",
              f"model.nonlinearity is {self.nonlinearity!r}; expected 'identity' for the "
              "hyla_linear value network (use value_network 'hyla' for a nonlinear one)")
        own = NORMALIZATIONS[self.normalization]
        check(not self.causal or own is None or own.masked is not None,
              f"model.causal is True; expected False for normalization {self.normalization!r}, "
              "which was registered with masked=None")
        if self.readout == "tied":
            check(self.embedding == "token",
                  f"model.embedding is {self.embedding!r}; expected 'token' for a tied read-out")
            check(self.d_output == self.d_input,
                  f"model.d_output is {self.d_output}; expected d_input = {self.d_input} for a "
                  "tied read-out")


_MOE: dict[str, Any] = {"feedforward": "moe"}
_SOFTMAX: dict[str, Any] = {
    "normalization": "softmax", "value_network": "linear", "nonlinearity": "identity"}
_LINEAR: dict[str, Any] = {**_SOFTMAX, "normalization": "none"}
_HYLA: dict[str, Any] = {
    "normalization": "rms_head", "value_network": "hyla", "nonlinearity": "relu"}

TABLE_A1: dict[str, dict[str, Any]] = {
    "softmax": _SOFTMAX,
    "linear": _LINEAR,
    "hyla": _HYLA,
    "linear_rms_head": {**_LINEAR, "normalization": "rms_head"},
    "linear_rms_head_relu": {**_LINEAR, "normalization": "rms_head", "nonlinearity": "relu"},
    "hyla_no_rms_head": {**_HYLA, "normalization": "none"},
    "hyla_linear": {**_HYLA, "value_network": "hyla_linear", "nonlinearity": "identity"},
    "hyla_linear_no_rms_head": {
        "normalization": "none", "value_network": "hyla_linear", "nonlinearity": "identity"},
    "hyla_softmax": {**_HYLA, "normalization": "softmax"},
    "hyla_deep": {**_HYLA, "value_network": "deep"},
    "hyla_softmax_rms_head": {**_HYLA, "normalization": "softmax_rms_head"},
    "softmax_moe": {**_SOFTMAX, **_MOE},
    "linear_moe": {**_LINEAR, **_MOE},
    "hyla_moe": {**_HYLA, **_MOE},
}
"""The 14 rows of the paper's Table A1, in its order of meaning.

`hyla_softmax` is the row "HYLA - RMSHead + softmax" (softmax in place of RMSHead) and
`hyla_softmax_rms_head` the row "HYLA + softmax" (softmax over keys, then RMSHead over heads;
the paper does not state the order). `linear_rms_head_relu` is "nonlinear value", read as
sum_k a relu(v_k).
"""


ATTENTION_KINDS: Registry[dict[str, Any]] = Registry(
    "attention kind", "lc.register_kind", TABLE_A1)
"""Named kinds and their fields: the rows of Table A1, and what users registered."""


def with_kind(config: ModelConfig, kind: str) -> ModelConfig:
    """Return `config` with the fields of a named attention kind; the rest is untouched."""
    # A kind that does not speak of the feed-forward leaves an `moe` of the config alone.
    return replace(config, **ATTENTION_KINDS.find(kind))


def kind_of(config: ModelConfig) -> str:
    """Return the name of the attention kind of `config`, or its fields where none fits.

    Where several fit it is the one that says most: `softmax_moe` rather than `softmax`.
    """
    fitting = [name for name, fields in ATTENTION_KINDS.items()
               if all(getattr(config, field) == value for field, value in fields.items())]
    if fitting:
        return max(fitting, key=lambda name: len(ATTENTION_KINDS[name]))
    return f"{config.normalization}/{config.value_network}/{config.nonlinearity}"


def own_parts(config: ModelConfig) -> dict[str, str]:
    """Return the fields of a model, with their names, that a user registered."""
    return {field: getattr(config, field) for field, registry in OWN.items()
            if registry.file(getattr(config, field)) is not None}
