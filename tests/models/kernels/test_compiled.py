"""The kernels in Triton compile, and fit an H100, which need not be there.

Run as a script, without TRITON_INTERPRET, whose interpreter compiles nothing: one JSON object per
case and program. A program that asks for more shared memory than a multiprocessor has cannot start.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("triton", reason="Triton is for Linux alone")

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from latentcode.models.kernels.fused import SERVED_NONLINEARITIES, SERVED_NORMALIZATIONS, Kind
from latentcode.models.kernels.gpu import programs
from latentcode.models.kernels.gpu.launch import Tiles, constants, most_heads

HOPPER = 90
"""Compute capability 9.0: H100 and H200."""
SHARED_MEMORY = 227 * 1024
"""Bytes that one program may have there, and registers of a thread."""
REGISTERS = 255

HYLA, MOST = Kind("rms_head", "hyla", "relu"), Kind("softmax_rms_head", "hyla", "gelu")
TABLES: dict[str, Any] = {"tables": True}
CASES: tuple[tuple[Kind, int, int, str, dict[str, Any]], ...] = (
    (HYLA, 16, 8, "float32", TABLES),  # SRAVEN
    (Kind("none", "linear"), 16, 8, "float32", TABLES),
    (HYLA, 8, 64, "float32", {"causal": True}),  # language; needs the most shared memory
    (MOST, 1, 2, "bfloat16", TABLES),  # the smallest; the last is the largest
    (MOST, most_heads(torch.float32), 128, "float32", {**TABLES, "precision": "ieee"}))
"""Kind, heads, features of a head, type, and what else `resources` is told. No other case has a
branch that none of these has, or needs more than all of them."""

_WHOLE = ("B", "GROUPS", "Q", "K")
_FLOAT32 = ("lse", "delta", "dbias", "bias", "kept")
_TYPES = {torch.float32: "fp32", torch.bfloat16: "bf16"}


def resources(
    kind: Kind, heads: int, d: int, dtype: torch.dtype, *, causal: bool = False,
    tables: bool = False, precision: str = "tf32",
) -> Iterator[dict[str, Any]]:
    """Compile the three programs and yield what each needs.

    tables     with a bias and its gradient, and with dropout
    precision  of products of float32: ieee, or tf32
    """
    tiles = Tiles.of(heads, d, d, dtype)
    options = (SERVED_NORMALIZATIONS[kind.normalization], int(kind.value_network != "linear"),
               SERVED_NONLINEARITIES.index(kind.phi), int(causal))
    fixed = {**constants(options, heads, d, d, tables, tables, precision, tiles),
             "WANTS_BIAS": tables}
    for program in (programs.forward, programs.backward_queries, programs.backward_keys):
        known = {name: value for name, value in fixed.items() if name in program.arg_names}
        source = ASTSource(program, {name: _type(name, known, dtype)
                                     for name in program.arg_names}, constexprs=known)
        made = triton.compile(source, target=GPUTarget("cuda", HOPPER, 32),
                              options=tiles.launched())
        yield {"program": program.__name__, "shared_memory": made.metadata.shared,
               "registers": _registers(made.asm["cubin"])}


def _type(name: str, known: dict[str, Any], dtype: torch.dtype) -> str:
    if name in known:
        return "constexpr"
    if name == "scale":
        return "fp32"
    return "i32" if name in _WHOLE else "*fp32" if name in _FLOAT32 else f"*{_TYPES[dtype]}"


def _registers(binary: bytes) -> int:
    """Return the registers of a thread, by the tool that Triton brings."""
    tool = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(binary)
        file.flush()
        said = subprocess.run([str(tool), "--dump-resource-usage", file.name],
                              capture_output=True, text=True, check=True).stdout
    found = re.search(r"REG:(\d+) STACK:\d+", said)
    assert found is not None, said
    return int(found[1])


@pytest.mark.slow
def test_the_kernels_fit_a_gpu_that_is_not_there() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    printed = subprocess.run([sys.executable, __file__], check=True, text=True,
                             env=environment, stdout=subprocess.PIPE).stdout
    found = [json.loads(line) for line in printed.splitlines()]
    assert {each["case"][-1] for each in found} == {"float32", "bfloat16"}
    assert {each["program"] for each in found} == {"forward", "backward_queries", "backward_keys"}
    for needed in found:
        assert 0 < needed["shared_memory"] <= SHARED_MEMORY, needed
        assert needed["registers"] <= REGISTERS, needed


if __name__ == "__main__":
    for kind, heads, d, dtype, options in CASES:
        for needed in resources(kind, heads, d, getattr(torch, dtype), **options):
            print(json.dumps({"case": [kind, heads, d, dtype], **needed}))
