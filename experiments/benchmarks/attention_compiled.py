"""What do the attention kernels need of a GPU? Compiled for H100 and H200, which need not be there.

    python -m latentcode.experiments.benchmarks.attention_compiled

compiles the three programs for several sizes and kinds (compute capability 9.0) and tells their
shared memory, registers and what is spilled from these, with the limits beside them. Needs triton.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
import tyro

from latentcode.experiments.benchmarks.figures import bars
from latentcode.experiments.benchmarks.harness import Spread
from latentcode.experiments.benchmarks.report import RESULTS, Report
from latentcode.figures.markdown import markdown_table
from latentcode.models.kernels.fused import Kind
from latentcode.models.kernels.gpu.compiled import REGISTERS, SHARED_MEMORY, resources
from latentcode.models.kernels.gpu.launch import Tiles, most_heads

QUESTION = "attention_compiled"
HYLA, MOST = Kind("rms_head", "hyla", "relu"), Kind("softmax_rms_head", "hyla", "gelu")
CASES: tuple[tuple[str, Kind, int, int, str, dict[str, Any]], ...] = (
    ("SRAVEN, hyla", HYLA, 16, 8, "float32", {"tables": True}),
    ("SRAVEN, hyla, exact products", HYLA, 16, 8, "float32",
     {"tables": True, "precision": "ieee"}),
    ("SRAVEN, hyla", HYLA, 16, 8, "bfloat16", {"tables": True}),
    ("SRAVEN, softmax", Kind("softmax", "linear"), 16, 8, "float32", {"tables": True}),
    ("SRAVEN, linear", Kind("none", "linear"), 16, 8, "float32", {"tables": True}),
    ("fuzzy logic, hyla", HYLA, 8, 8, "float32", {"tables": True}),
    ("language, hyla", HYLA, 8, 64, "bfloat16", {"causal": True}),
    ("language, hyla", HYLA, 8, 64, "float32", {"causal": True}),
    ("smallest, softmax and RMSHead", MOST, 1, 2, "bfloat16", {"tables": True}),
    ("large heads, softmax and RMSHead", MOST, 16, 128, "bfloat16", {"tables": True}),
    ("32 large heads, softmax and RMSHead, exact products", MOST, 32, 128, "float32",
     {"tables": True, "precision": "ieee"}),
    ("largest, softmax and RMSHead", MOST, 64, 128, "bfloat16", {"tables": True}),
    ("largest, softmax and RMSHead, exact products", MOST, 64, 128, "float32",
     {"tables": True, "precision": "ieee"}))
"""Name, kind, heads, features of a head, type, and what else `resources` is told."""


def cases(wanted: Sequence[tuple[str, Kind, int, int, str, dict[str, Any]]]
          ) -> Iterator[dict[str, Any]]:
    for name, kind, heads, d, dtype, options in wanted:
        if heads > most_heads(getattr(torch, dtype)):
            continue  # refused, with older versions of Triton
        tiles = Tiles.of(heads, d, d, getattr(torch, dtype))
        yield {"name": name, "kind": list(kind), "heads": heads, "d": d, "type": dtype,
               "options": options, "tiles": asdict(tiles),
               "programs": [{**asdict(each), "fits": each.fits} for each in resources(
                   kind, heads, d, d, getattr(torch, dtype), **options)]}


def table(found: Sequence[dict[str, Any]]) -> str:
    rows = [[case["name"], f"{case['heads']} x {case['d']}", case["type"],
             "{queries} x {keys}, features {d}, {warps} warps".format(**case["tiles"]),
             each["program"], f"{each['shared_memory']:,}", f"{each['registers']}",
             f"{each['spilled']:,}", f"{each['tensor_core_instructions']}",
             "fits" if each["fits"] else "DOES NOT FIT"]
            for case in found for each in case["programs"]]
    return markdown_table(
        ["case", "heads", "type", "tile", "program", f"shared memory, bytes (of {SHARED_MEMORY:,})",
         f"registers (of {REGISTERS})", "spilled, bytes a thread", "tensor core instructions", ""],
        rows)


def main(out: Path = RESULTS / QUESTION, smoke: bool = False) -> None:
    """Compile the kernels for compute capability 9.0; write JSON, a table and a figure.

    Args:
        out: Folder of the result.
        smoke: One case alone.
    """
    report = Report(QUESTION, torch.device("cpu"), {"capability": "9.0"})
    found = list(cases(CASES[:1] if smoke else CASES))
    drawn = bars(
        [f"{case['name']}, {case['type']}" for case in found],
        [{each["program"]: Spread.of([each["shared_memory"] / 1024])
          for each in case["programs"]} for case in found],
        f"shared memory of a program, KiB (limit {SHARED_MEMORY / 1024:.0f})")
    report.finish(out, found, table(found), drawn)


if __name__ == "__main__":
    tyro.cli(main)
