"""How far are the attention kernels from float64? Every kind, at several shapes, in every type.

    python -m latentcode.experiments.benchmarks.attention_checks

computes z and the gradients for q, k, v and bias by the kernel in Triton, on a GPU where there is
one and by Triton's interpreter otherwise, and by the plain functions in float64 from the same
inputs. An error is the root mean square of the difference as a share of that of the result. The
interpreter multiplies float32 in float32: what TF32 loses on a GPU it does not see.

Rounding a code to bfloat16 moves hidden units next to 0 across the corner of a ReLU, whose slope
jumps there, however right the rest is. For those kinds the code in float64 is rounded, too.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import torch
import tyro
from torch import Tensor

from latentcode.experiments.benchmarks.figures import bars
from latentcode.experiments.benchmarks.harness import Spread
from latentcode.experiments.benchmarks.report import RESULTS, Report
from latentcode.figures.markdown import markdown_table
from latentcode.models.attention import plain_attention
from latentcode.models.kernels.fused import (
    SERVED_NORMALIZATIONS,
    SERVED_VALUE_NETWORKS,
    Kind,
    attention_by,
    fused_attention,
)
from latentcode.progress import bar

QUESTION = "attention_checks"
KINDS: tuple[Kind, ...] = tuple(
    Kind(normalization, value_network, phi)
    for normalization, value_network in product(SERVED_NORMALIZATIONS, SERVED_VALUE_NETWORKS)
    for phi in (("identity",) if value_network == "hyla_linear" else ("identity", "relu", "gelu")))
SHAPES: dict[str, tuple[int, ...]] = {
    "SRAVEN": (2, 1, 36, 36, 16, 8, 8), "fuzzy logic": (2, 2, 18, 18, 8, 8, 8),
    "last token": (1, 3, 1, 41, 4, 16, 12), "language": (1, 1, 50, 50, 8, 64, 64)}
"""Members, instances, queries, keys, heads, and features of a query and of a value."""
TYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
TARGETS = {"float32": 1e-5, "bfloat16": 5e-3}
OUTPUTS = ("z", "dq", "dk", "dv", "dbias")


def drawn(shape: Sequence[int], dtype: torch.dtype, causal: bool, device: torch.device
          ) -> list[Tensor]:
    """Return q, k, v, bias and kept (a language model's have neither of the latter two)."""
    members, b, n_query, n_key, heads, d, dv = shape
    generator = torch.Generator().manual_seed(0)

    def normal(*size: int) -> Tensor:
        return torch.randn(size, generator=generator).to(dtype).to(device).requires_grad_()

    inputs = [normal(members, b, n_query, heads, d), normal(members, b, n_key, heads, d),
              normal(members, b, n_key, heads, dv)]
    if causal:
        return inputs
    kept = torch.rand(members, 1, 1, n_query, n_key, generator=generator) >= 0.1
    return [*inputs, normal(members, 1, heads, n_query, n_key), (kept / 0.9).to(dtype).to(device)]


def computed(function: Callable[..., Tensor], inputs: Sequence[Tensor], **options: Any
             ) -> list[Tensor]:
    """Return z and the gradients of what has one, for a cotangent drawn by chance."""
    z = function(*inputs, **options)
    generator = torch.Generator().manual_seed(1)
    cotangent = torch.randn(z.shape, generator=generator).to(z.dtype).to(z.device)
    return [z.detach(), *torch.autograd.grad(z, [x for x in inputs if x.requires_grad], cotangent)]


def share(got: Tensor, wanted: Tensor) -> float:
    """Return the root mean square of got - wanted as a share of that of wanted."""
    return float((got.double() - wanted).norm() / wanted.norm())


def rounded(code: Tensor) -> Tensor:
    """Return a code rounded to bfloat16, with the gradient as if it were not."""
    return code + (code.to(torch.bfloat16).to(code.dtype) - code).detach()


def has_corner(kind: Kind, dtype: torch.dtype) -> bool:
    """Whether rounding the code makes the slope of hidden units jump."""
    return dtype == torch.bfloat16 and kind.value_network == "hyla" and kind.phi == "relu"


def errors(kind: Kind, shape: Sequence[int], dtype: torch.dtype, causal: bool,
           device: torch.device) -> dict[str, float]:
    """Return how far from float64 each output of the kernel is."""
    inputs = drawn(shape, dtype, causal, device)
    exact = [x.detach().double().requires_grad_(x.requires_grad) for x in inputs]
    names = {"normalization": kind.normalization, "value_network": kind.value_network}
    wanted = computed(plain_attention, exact, **names, nonlinearity_name=kind.phi, causal=causal,
                      **({"hook_code": rounded} if has_corner(kind, dtype) else {}))
    with attention_by("triton"):
        got = computed(fused_attention, inputs, **names, nonlinearity=kind.nonlinearity,
                       causal=causal)
    return dict(zip(OUTPUTS, map(share, got, wanted), strict=False))


def cases(shapes: Sequence[str], device: torch.device) -> Iterator[dict[str, Any]]:
    todo, show = list(product(shapes, TYPES, KINDS)), bar("check")
    for done, (shape, dtype, kind) in enumerate(todo):
        show(done, len(todo))
        causal = shape == "language"
        found = errors(kind, SHAPES[shape], TYPES[dtype], causal, device)
        yield {"shape": shape, "sizes": SHAPES[shape], "type": dtype, "kind": list(kind),
               "causal": causal, "code_rounded": has_corner(kind, TYPES[dtype]), "error": found,
               "ok": max(found.values()) <= TARGETS[dtype]}
    show(len(todo), len(todo))


def table(found: Sequence[dict[str, Any]]) -> str:
    """Return the worst error of every output over the kinds, per shape and type."""
    rows = []
    for shape, dtype in dict.fromkeys((case["shape"], case["type"]) for case in found):
        here = [case for case in found if (case["shape"], case["type"]) == (shape, dtype)]
        worst = [max((case["error"][name] for case in here if name in case["error"]),
                     default=None) for name in OUTPUTS]
        rows.append([shape, " x ".join(map(str, SHAPES[shape])), dtype,
                     *("" if x is None else f"{x:.1e}" for x in worst), f"{TARGETS[dtype]:.0e}",
                     f"{sum(case['ok'] for case in here)} of {len(here)}"])
    return markdown_table(
        ["shape", "members x instances x queries x keys x heads x d x dv", "type", *OUTPUTS,
         "target", "kinds within"], rows)


def main(shapes: tuple[str, ...] = tuple(SHAPES), out: Path = RESULTS / QUESTION,
         smoke: bool = False) -> None:
    """Check every kind of attention; write JSON, a table and a figure.

    Args:
        shapes: Which shapes, of SRAVEN, fuzzy logic, last token and language.
        out: Folder of the result.
        smoke: The smallest shape alone.
    """
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device.type == "cpu":
        os.environ["TRITON_INTERPRET"] = "1"  # read when triton is imported, which it is later
    report = Report(QUESTION, device, {"interpreted": device.type == "cpu"})
    found = list(cases(("last token",) if smoke else shapes, device))
    groups = list(dict.fromkeys((case["shape"], case["type"]) for case in found))
    spread = [{name: Spread.of([case["error"][name] for case in found
                                if (case["shape"], case["type"]) == group
                                and name in case["error"]] or [0.0]) for name in OUTPUTS}
              for group in groups]
    report.finish(out, found, table(found), bars([", ".join(group) for group in groups], spread,
                       "error as a share of the result (median over kinds, quartiles)"))


if __name__ == "__main__":
    tyro.cli(main)
