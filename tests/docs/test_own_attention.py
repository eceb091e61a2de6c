"""Does the page about attention of one's own do what it shows, as it is written?"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from places import ROOT, environment

import latentcode as lc
from latentcode.models.attention import normalize

PAGE = (ROOT / "docs" / "own_attention.md").read_text(encoding="utf-8")
EXAMPLE, USE = re.findall(r"^```python\n(.*?)^```$", PAGE, re.M | re.S)


def test_the_example_is_sparsemax(own_names: Callable[[], None]) -> None:
    exec(EXAMPLE, {"__name__": "my_attention"})
    scores = torch.tensor([[1.0, 0.9, -3.0], [5.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    code = normalize(scores.expand(1, 1, 3, 3), "sparsemax")[0, 0]
    torch.testing.assert_close(code, torch.tensor(
        [[0.55, 0.45, 0.0], [1.0, 0.0, 0.0], [1 / 3, 1 / 3, 1 / 3]]))
    assert lc.preset("smoke", "logic", "sparse_hyla").model.normalization == "sparsemax"


@pytest.mark.slow
def test_the_page_runs_as_it_is_written(tmp_path: Path) -> None:
    (tmp_path / "my_attention.py").write_text(EXAMPLE, encoding="utf-8")
    done = subprocess.run([sys.executable, "-c", USE], capture_output=True, text=True,
                          check=False, cwd=tmp_path, env=environment())
    assert done.returncode == 0, done.stderr
    share, _, rest = done.stdout.partition("\n")
    assert 0.1 < float(share) < 0.9
    assert "DecodingResult" in rest
    shown = [sys.executable, "-m", "latentcode", "show", "runs/sparse_python"]
    for imports, status, said in (
            (["--import", "my_attention.py"], 0, "sparse_hyla on logic"),
            ([], 2, "normalization 'sparsemax', which is not registered here; expected `import "
             "my_attention` first, or --import my_attention.py")):
        done = subprocess.run([*shown, *imports], capture_output=True, text=True, check=False,
                              cwd=tmp_path, env=environment())
        assert done.returncode == status
        assert said in done.stdout + done.stderr
