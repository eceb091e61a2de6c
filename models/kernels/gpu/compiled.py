"""What do the programs need of a GPU? Compiled for one that need not be there.

A program that asks for more shared memory than a multiprocessor has cannot start; numbers that do
not fit its 255 registers a thread are spilled to slower memory.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from latentcode.errors import check
from latentcode.models.kernels.fused import SERVED_NONLINEARITIES, SERVED_NORMALIZATIONS, Kind
from latentcode.models.kernels.gpu.launch import Tiles, constants

HOPPER = 90
"""Compute capability 9.0: H100 and H200."""
SHARED_MEMORY = 227 * 1024
"""Bytes that one program may have there, and registers of a thread."""
REGISTERS = 255

_WHOLE = ("B", "GROUPS", "Q", "K")
_FLOAT32 = ("lse", "delta", "dbias", "bias", "kept")
_TYPES = {torch.float32: "fp32", torch.bfloat16: "bf16"}


@dataclass(frozen=True)
class Resources:
    """Of one program: bytes of shared memory; registers of a thread and bytes that it spills; and
    instructions of the tensor cores, and other multiplications with an addition."""

    program: str
    shared_memory: int
    registers: int
    spilled: int
    tensor_core_instructions: int
    multiply_adds: int

    @property
    def fits(self) -> bool:
        return self.shared_memory <= SHARED_MEMORY and self.registers <= REGISTERS


def resources(
    kind: Kind, heads: int, d: int, dv: int, dtype: torch.dtype, *, causal: bool = False,
    tables: bool = False, precision: str = "tf32", capability: int = HOPPER,
) -> Iterator[Resources]:
    """Compile the three programs and yield what each needs.

    tables     with a bias and its gradient, and with dropout
    precision  of products of float32: ieee, or tf32
    """
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from latentcode.models.kernels.gpu import programs

    check(hasattr(programs.forward, "arg_names") and hasattr(programs.forward, "cache_key"),
          "TRITON_INTERPRET is set, and the interpreter compiles nothing; expected it not to be")
    tiles = Tiles.of(heads, d, dv, dtype)
    options = (SERVED_NORMALIZATIONS[kind.normalization], int(kind.value_network != "linear"),
               SERVED_NONLINEARITIES.index(kind.phi), int(causal))
    fixed = {**constants(options, heads, d, dv, tables, tables, precision, tiles),
             "WANTS_BIAS": tables}
    for program in (programs.forward, programs.backward_queries, programs.backward_keys):
        known = {name: value for name, value in fixed.items() if name in program.arg_names}
        source = ASTSource(program, {name: _type(name, known, dtype)
                                     for name in program.arg_names}, constexprs=known)
        made = triton.compile(source, target=GPUTarget("cuda", capability, 32),
                              options=tiles.launched())
        registers, spilled = _registers(made.asm["cubin"])
        text = made.asm["ptx"]
        yield Resources(program.__name__, made.metadata.shared, registers, spilled,
                        len(re.findall(r"\bw?g?mma\.", text)), len(re.findall(r"\bfma\.", text)))


def _type(name: str, known: dict[str, Any], dtype: torch.dtype) -> str:
    if name in known:
        return "constexpr"
    if name == "scale":
        return "fp32"
    return "i32" if name in _WHOLE else "*fp32" if name in _FLOAT32 else f"*{_TYPES[dtype]}"


def _registers(binary: bytes) -> tuple[int, int]:
    """Return the registers of a thread and the bytes that it spills, by the tool Triton brings."""
    import triton

    tool = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(binary)
        file.flush()
        said = subprocess.run([str(tool), "--dump-resource-usage", file.name],
                              capture_output=True, text=True, check=True).stdout
    found = re.search(r"REG:(\d+) STACK:(\d+)", said)
    assert found is not None, said
    return int(found[1]), int(found[2])
