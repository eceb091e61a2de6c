"""Does an alignment of runs say what they have in common from the start?"""

from __future__ import annotations

import pytest

import latentcode as lc
from latentcode.probes.alignment.alignment import align


@pytest.mark.slow
def test_runs_that_began_alike_are_not_summarised(runs: list[lc.Run]) -> None:
    found = align(runs, labels=["rule"], n_train=100, n_heldout=80, layers=[1], n_bootstrap=100)
    assert found.settings["initial_seeds"] == {"softmax0": 0, "hyla0": 0, "softmax1": 1}
    assert (found.settings["n_train"], found.settings["n_heldout"]) == (100, 80)
    assert any("the same seed" in note and note.endswith(": softmax0 and hyla0.")
               for note in found.caveats)
