"""What has been found out about a model or its codes: results that were saved."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from latentcode.app.data.catalog import Entry
from latentcode.app.data.loaded import UNTIL_REPLACED, cache_folder, open_run
from latentcode.app.words import literal
from latentcode.errors import LatentCodeError
from latentcode.probes.common.results import TableResult
from latentcode.probes.saved import load_result, result_kind


def saved_results(entry: Entry) -> dict[str, TableResult]:
    """Return the saved results of an entry by name; a damaged one is left out, with a message."""
    found = {}
    for name, folder in result_folders(entry).items():
        try:
            result = load_saved(folder)
        except (LatentCodeError, OSError) as error:
            st.warning(literal(error), icon=":material/broken_image:")
            continue
        if result is not None:
            found[name] = result
    return found


def result_folders(entry: Entry) -> dict[str, Path]:
    """Return where results of an entry may lie, by name; later ones win.

    They are those that the explorer has computed, and those in `results` of the entry itself.
    """
    computed = [] if entry.kind == "codes" else _folders(computed_results(entry))
    return {folder.name: folder for folder in (*computed, *_folders(entry.path / "results"))}


def computed_results(entry: Entry) -> Path:
    """Return the folder of the cache for results of the newest weights of a run."""
    return cache_folder("results", open_run(entry.path))


def _folders(folder: Path) -> list[Path]:
    """Return the folders in a folder by name; links are not followed."""
    if not folder.is_dir():
        return []
    return [path for path in sorted(folder.iterdir()) if path.is_dir() and not path.is_symlink()]


@st.cache_resource(max_entries=48, show_spinner=False, hash_funcs=UNTIL_REPLACED)
def load_saved(folder: Path) -> TableResult | None:
    """Load a result, again when it was replaced; return None for a folder that holds none."""
    return None if result_kind(folder) is None else load_result(folder)
