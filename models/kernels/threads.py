"""A few calls at once, on the threads that torch itself computes with.

Between two of torch's operations its threads stay awake for a while, spinning. A second pool,
Python's or numba's, would have to share the cores with them.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

_BODY = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def call_on_threads(function: Callable[[int], None], n: int) -> None:
    """Call function(0), ..., function(n - 1) at once, and return when all have.

    They run in parallel as far as the function releases Python's lock. The threads are those of
    the OpenMP runtime that torch brings along, if that is GNU's, and Python's own elsewhere. An
    error of a call is raised when all have ended.
    """
    openmp = find_openmp()
    if n == 1:
        function(0)
    elif openmp is not None and n <= torch.get_num_threads():
        errors: list[BaseException] = []

        def body(_: int | None) -> None:
            index = openmp.omp_get_thread_num()
            try:
                # A runtime that is short of threads gives fewer than it was asked for.
                for i in range(index, n, openmp.omp_get_num_threads()):
                    function(i)
            except BaseException as error:  # it would be lost on the way through C
                errors.append(error)

        openmp.GOMP_parallel(_BODY(body), None, n, 0)
        if errors:
            raise errors[0]
    else:
        jobs = [_pool(os.getpid(), n - 1).submit(function, i) for i in range(1, n)]
        try:
            function(0)
        finally:
            for job in jobs:
                job.result()


@lru_cache(maxsize=1)
def find_openmp() -> Any:
    """Return the GNU OpenMP runtime beside torch, which torch has loaded already, or None."""
    for path in Path(torch.__file__).with_name("lib").glob("libgomp*.so*"):
        library = ctypes.CDLL(str(path))
        if hasattr(library, "GOMP_parallel"):
            return library
    return None


@lru_cache(maxsize=1)
def _pool(process: int, threads: int) -> ThreadPoolExecutor:
    """Threads that live as long as the process; a forked one, which inherits none, gets its own."""
    return ThreadPoolExecutor(threads, thread_name_prefix="latentcode")
