"""What the first page shows: stored problems, rates and verdicts, and problems that are computed.

Reading what is stored imports neither torch nor pandas: it is what a visitor waits for first.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

import streamlit as st

from latentcode.errors import ArtifactError, LatentCodeError, check
from latentcode.files.storage import checksum, read_json
from latentcode.runs.named import zoo_folders

COMMAND = "python -m latentcode.experiments.moves"
"""What writes the stored file."""
MOST = 10_000
"""Problems of a task that can be asked for."""


def read_stored() -> dict[str, Any]:
    """Return what `COMMAND` wrote; `ArtifactError` where it is missing or something else."""
    path = Path(str(files("latentcode.experiments") / "results" / "moves.json"))
    data = read_json(path)
    check(isinstance(data, Mapping) and data.get("written by") == COMMAND,
          f"{path} was not written by {COMMAND}, which writes it anew", ArtifactError)
    return dict(data)


@st.cache_data(show_spinner=False)
def stored() -> dict[str, Any]:
    """Return the same, read once."""
    return read_stored()


@st.cache_data(show_spinner=False)
def other_weights() -> dict[str, str]:
    """Return the zoo's models whose stored answers are of other weights: name -> what is wrong."""
    found = {}
    folders = zoo_folders()
    for name, weights in stored()["weights"].items():
        if name not in folders:
            found[name] = "is not in the zoo"
            continue
        try:
            if checksum(folders[name] / weights["file"]) != weights["sha256"]:
                found[name] = "has other weights than the stored answers are of"
        except LatentCodeError as error:
            found[name] = f"cannot be read: {error}"
    return found


@st.cache_data(max_entries=64, show_spinner=False)
def computed(task: str, number: int) -> dict[str, Any]:
    """Return a problem that is not stored, with the answers of the zoo's models. Imports torch."""
    from latentcode.experiments.moves.problems import problem

    return problem(task, number)
