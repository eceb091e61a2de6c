"""How much faster than the plain functions are the attention kernels, and with how much memory?

    python -m latentcode.experiments.benchmarks.attention_kernel --device cuda

times forward and backward passes of the attention core alone, over lengths, heads and types, each
kernel that serves against the plain functions in turn. A contestant that runs out of memory is
reported as such. Beside every time is the share of the roofline: the least time that the GPU's
peak rates allow for the matrix products of the kernel's algorithm and for reading q, k, v, dz and
writing z and the gradients once. On a CPU, of which no peak is known, there is no such share.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any, Literal

import torch
import tyro

from latentcode.devices import resolve_device
from latentcode.errors import ConfigError
from latentcode.experiments.benchmarks.attention_checks import drawn
from latentcode.experiments.benchmarks.figures import bars
from latentcode.experiments.benchmarks.harness import (
    Contestant,
    Local,
    Spread,
    peak_memory,
    reset_peak_memory,
    sit,
    spreads,
)
from latentcode.experiments.benchmarks.report import Benchmark
from latentcode.experiments.benchmarks.targets import PEAKS, gpu_of
from latentcode.figures.markdown import markdown_table
from latentcode.models.attention import plain_attention
from latentcode.models.kernels.fused import PLAIN, Kind, attention_by, fused_attention
from latentcode.progress import bar

KINDS = {"hyla": Kind("rms_head", "hyla", "relu"), "softmax": Kind("softmax", "linear"),
         "linear": Kind("none", "linear")}
TYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
TARGET = {("hyla", "bfloat16", 2_048, 8, 64): 5.0}
"""(kind, type, length, heads, features) -> times faster than the plain functions."""


@dataclass(frozen=True)
class Passes:
    """Matrix products of the kernel, in multiplications of H x d numbers per query and key."""

    forward: int
    backward: int


PRODUCTS = {
    # scores, targets and outputs; then, for queries and for keys each: scores, targets, their
    # cotangent, two products of dL/dA and the gradient itself, and dL/dv.
    "hyla": Passes(3, 6 + 7), "softmax": Passes(3, 3 + 1 + 3 + 4), "linear": Passes(2, 3 + 4)}


def least_seconds(
    kind: str, dtype: str, sizes: tuple[int, int, int, int], causal: bool, gpu: str
) -> dict[str, float]:
    """Return the least seconds of the products, and of the memory, that the peak rates allow."""
    b, length, heads, d = sizes
    bandwidth, rates = PEAKS[gpu]
    rate = rates["tf32" if dtype == "float32"
                 and torch.get_float32_matmul_precision() != "highest" else dtype]
    passes = PRODUCTS[kind]
    pairs = b * length * length * (0.5 if causal else 1.0)
    operations = 2.0 * pairs * heads * d * (passes.forward + passes.backward)
    # Read q, k, v and write z; read them and dz, twice, and write dq, dk, dv.
    numbers = b * length * heads * d * (3 + 1 + 2 * 4 + 3)
    return {"products": operations / rate,
            "memory": numbers * (4 if dtype == "float32" else 2) / bandwidth}


def measure(
    kind: str, dtype: str, sizes: tuple[int, int, int, int], causal: bool, device: torch.device,
    turns: Mapping[str, Any],
) -> dict[str, Any]:
    """Return one case, the kernels that serve it and the plain functions, as plain data."""
    b, length, heads, d = sizes
    chosen = KINDS[kind]
    inputs = drawn((1, b, length, length, heads, d, d), TYPES[dtype], True, device)
    inputs = [x.detach().squeeze(0).requires_grad_() for x in inputs]
    cotangent = torch.ones_like(inputs[2])
    options: dict[str, Any] = {
        "normalization": chosen.normalization, "value_network": chosen.value_network,
        "causal": causal}

    def passes(kernel: str) -> None:
        if kernel == PLAIN:
            z = plain_attention(*inputs, **options, nonlinearity_name=chosen.phi)
        else:
            with attention_by(kernel):
                z = fused_attention(*inputs, **options, nonlinearity=chosen.phi)
        torch.autograd.grad(z, inputs, cotangent)

    kernels = (PLAIN, *(("triton", "sdpa", "linear") if device.type == "cuda" else
                        ("cpu", "sdpa", "linear")))
    memory: dict[str, float] = {}
    refused: dict[str, str] = {}
    contestants: list[Contestant] = []
    for kernel in kernels:
        reset_peak_memory(device)
        before = torch.cuda.memory_allocated(device) / 2**20 if device.type == "cuda" else 0.0
        try:
            passes(kernel)
        except ConfigError as error:
            refused[kernel] = str(error)
            continue
        except torch.OutOfMemoryError:
            refused[kernel] = "out of memory"
            continue
        memory[kernel] = peak_memory(device) - before
        contestants.append(Local(kernel, partial(passes, kernel), device))
    sitting = sit(contestants, **turns,
                  progress=bar(f"{kind}, {dtype}, T = {length}, {heads} x {d}"))
    baseline = PLAIN if PLAIN in memory else contestants[0].name
    return {"name": f"{kind}, {dtype}, {b} x {length}, {heads} heads of {d}", "kind": kind,
            "type": dtype, "instances": b, "length": length, "heads": heads, "d": d,
            "causal": causal, "peak_memory_mib": memory, "refused": refused,
            **sitting.record(baseline)}


def with_roofline(case: dict[str, Any], gpu: str | None) -> dict[str, Any]:
    """Add what the GPU's peak rates allow, and the share of it that each contestant reaches."""
    if gpu is None:
        return case
    sizes = (case["instances"], case["length"], case["heads"], case["d"])
    least = least_seconds(case["kind"], case["type"], sizes, case["causal"], gpu)
    return {**case, "gpu": gpu, "least_seconds": least, "share_of_roofline": {
        name: 1e3 * max(least.values()) / each["median"]
        for name, each in case["milliseconds"].items()}}


def verdict(case: dict[str, Any]) -> str:
    """Say whether a case reaches its target, where it has one."""
    target = TARGET.get((case["kind"], case["type"], case["length"], case["heads"], case["d"]))
    if target is None or "triton" not in case["speedup"]:
        return ""
    reached = case["speedup"]["triton"]["median"]
    return f"{'reached' if reached >= target else 'MISSED'}: {reached:.1f}x of {target:g}x"


def table(cases: Sequence[dict[str, Any]]) -> str:
    """Return the markdown table: a row per case and contestant."""
    rows = []
    for case in cases:
        for name, each in case["milliseconds"].items():
            faster = case["speedup"].get(name)
            share = case.get("share_of_roofline", {}).get(name)
            rows.append([case["name"], name, Spread(**each).text(),
                         "" if faster is None else Spread(**faster).text(),
                         f"{case['peak_memory_mib'][name]:,.0f}",
                         "" if share is None else f"{share:.1%}",
                         verdict(case) if name == "triton" else ""])
        rows += [[case["name"], name, why, "", "", "", ""]
                 for name, why in case["refused"].items() if why == "out of memory"]
    return markdown_table(
        ["case", "kernel", "forward and backward, ms", "times faster than plain",
         "peak memory, MiB", "share of the roofline", "target"], rows)


@dataclass(frozen=True, kw_only=True)
class AttentionKernel(Benchmark):
    """Time the attention core, forward and backward; write JSON, a table and a figure."""

    QUESTION = "attention_kernel"

    kinds: tuple[Literal["hyla", "softmax", "linear"], ...] = ("hyla",)
    """Attention kinds."""
    types: tuple[Literal["float32", "bfloat16"], ...] = ("bfloat16", "float32")
    """Types of q, k and v."""
    lengths: tuple[int, ...] = (36, 512, 2_048, 4_096, 16_384)
    """Tokens of a sequence."""
    heads: tuple[tuple[int, int], ...] = ((8, 64), (16, 8))
    """Heads, and features of each."""
    tokens: int = 16_384
    """Tokens of a batch; longer sequences are batches of one."""
    causal: bool = True
    """Whether a query sees no later key."""
    device: str = "cpu"
    """cpu, cuda or cuda:N."""

    def run(self) -> None:
        place = resolve_device(self.device)
        lengths, tokens = ((24,), 48) if self.smoke else (self.lengths, self.tokens)
        gpu = gpu_of(place)
        precision = torch.get_float32_matmul_precision()
        with self.report(place, threads=self.cores, causal=self.causal,
                         torch_float32_matmul_precision=precision) as report:
            cases = [with_roofline(measure(
                kind, dtype, (max(1, tokens // length), length, heads, d), self.causal, place,
                self.turns), gpu)
                for kind, dtype, (heads, d), length in product(
                    self.kinds, self.types, self.heads, lengths)
                if place.type == "cuda" or dtype == "float32"]
            report.finish(self.folder, cases, table(cases), bars(
                [case["name"] for case in cases],
                [spreads(case["milliseconds"]) for case in cases],
                "milliseconds, forward and backward (median, quartiles)"))


if __name__ == "__main__":
    tyro.cli(AttentionKernel).run()
