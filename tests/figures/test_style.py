"""Do figures show themselves in a notebook?"""

from __future__ import annotations

import subprocess
import sys


def test_figures_show_themselves_without_pyplot() -> None:
    code = ("import sys; from latentcode.figures.style import Figure; "
            "figure = Figure(figsize=(1, 1)); "
            "figure.subplots(); sys.stdout.buffer.write(figure._repr_png_()); "
            "sys.exit('matplotlib.pyplot' in sys.modules)")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert done.stdout.startswith(b"\x89PNG")
