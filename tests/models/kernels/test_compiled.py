"""The kernels in Triton compile, and fit a GPU that is not there."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("triton", reason="Triton is for Linux alone")

import compiled_kernels


@pytest.mark.slow
def test_the_kernels_fit_a_gpu_that_is_not_there() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    printed = subprocess.run([sys.executable, compiled_kernels.__file__], check=True, text=True,
                             env=environment, stdout=subprocess.PIPE).stdout
    found = [json.loads(line) for line in printed.splitlines()]
    assert {each["case"][-1] for each in found} == {"float32", "bfloat16"}
    assert {each["program"] for each in found} == {"forward", "backward_queries", "backward_keys"}
    for needed in found:
        assert 0 < needed["shared_memory"] <= compiled_kernels.SHARED_MEMORY, needed
        assert needed["registers"] <= compiled_kernels.REGISTERS, needed
