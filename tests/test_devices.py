"""Who may use how many threads?"""

from __future__ import annotations

import json
import os
import subprocess
import sys

from latentcode.devices import available_cores

SCRIPT = """
import json
from threading import Barrier, Thread

import numpy as np
from threadpoolctl import threadpool_info

from latentcode.devices import one_blas_thread

np.ones((2, 2)) @ np.ones((2, 2))
seen, meeting = {}, Barrier(2)

def note(when):
    seen[when] = [p["num_threads"] for p in threadpool_info() if p["user_api"] == "blas"]

def first():
    with one_blas_thread:
        meeting.wait()  # the second may enter
        meeting.wait()  # both are inside
    meeting.wait()

def second():
    meeting.wait()
    with one_blas_thread:
        meeting.wait()
        meeting.wait()  # the first has left
        note("second alone inside")

note("before")
with one_blas_thread:
    with one_blas_thread:
        note("inside twice")
    note("inside once")
note("between")
threads = [Thread(target=first), Thread(target=second)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
note("after")
print(json.dumps(seen))
"""


def test_the_first_to_enter_limits_and_the_last_to_leave_restores() -> None:
    # A process of its own: those of the tests have a single thread from the start.
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "2", "OMP_NUM_THREADS": "2",
                   "MKL_NUM_THREADS": "2"}
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True,
                          text=True, check=True)
    seen = {when: set(counts) for when, counts in json.loads(done.stdout).items()}
    wanted = min(2, available_cores())
    assert seen == {"before": {wanted}, "inside twice": {1}, "inside once": {1},
                    "between": {wanted}, "second alone inside": {1}, "after": {wanted}}
