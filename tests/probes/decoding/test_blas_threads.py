"""A fit takes one BLAS thread and gives back what there was."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from latentcode.devices import available_cores

SCRIPT = """
import numpy as np
from threadpoolctl import threadpool_info

from latentcode.probes.common import logistic

def threads():
    return [p["num_threads"] for p in threadpool_info() if p["user_api"] == "blas"]

inside, fit = [], logistic.LogisticRegression.fit

def watched(*arguments, **settings):
    inside.append(threads())
    return fit(*arguments, **settings)

logistic.LogisticRegression.fit = watched
rng = np.random.default_rng(0)
before = threads()
logistic.fit_probe(rng.normal(size=(60, 3)), np.eye(3, dtype=bool)[np.arange(60) % 3],
                   np.arange(60) % 6, multilabel=False)
print(before, inside[0], inside[-1], threads())
"""


@pytest.mark.skipif(available_cores() < 2, reason="there is one thread in any case")
def test_a_fit_uses_one_blas_thread_and_restores_what_there_was() -> None:
    # A process of its own: those of the tests have a single thread from the start.
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "2", "OMP_NUM_THREADS": "2",
                   "MKL_NUM_THREADS": "2"}
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True,
                          text=True, check=True)
    before, first, last, after = done.stdout.strip().replace("] [", "]|[").split("|")
    assert "2" in before
    assert after == before
    assert "1" in first
    assert "2" not in first
    assert last == first
