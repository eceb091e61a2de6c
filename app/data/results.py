"""What has been found out about a model or its codes: results that were saved."""

from __future__ import annotations

import re
from pathlib import Path

import streamlit as st

from latentcode.app.data.catalog import Entry, allowed_folders, check_links, is_below
from latentcode.app.data.loaded import UNTIL_REPLACED, cache_folder, open_run
from latentcode.app.words import literal
from latentcode.errors import LatentCodeError
from latentcode.probes.common.results import TableResult
from latentcode.probes.saved import RESULTS, load_result


def saved_results(entry: Entry) -> dict[str, TableResult]:
    """Return the saved results of an entry by name; a damaged one is left out, with a message."""
    found = {}
    for name, folder in result_folders(entry).items():
        try:
            if entry.kind == "run" and folder.parent != computed_results(entry):
                check_links(folder, allowed_folders())
            result = load_saved(folder)
        except (LatentCodeError, OSError) as error:
            st.warning(literal(error), icon=":material/broken_image:")
            continue
        if result is not None:
            found[name] = result
    return found


def result_folders(entry: Entry) -> dict[str, Path]:
    """Return where results of an entry may lie, by name; later ones win.

    They are those of a study of several runs, in `results` beside the run (those that are about
    all runs, and those in `{run}-{key}`), the ones that the explorer has computed, and those in
    `results` of the entry itself.
    """
    beside, inside = entry.path.parent / "results", entry.path / "results"
    studies = (_folders(beside) if entry.kind == "run"
               and is_below(beside, allowed_folders()) else [])
    own = [folder for folder in studies
           if re.fullmatch(re.escape(entry.path.name) + "-[0-9a-f]{8}", folder.name)]
    shared = [folder for folder in studies if any((folder / kind.marker()).is_file()
                                                  for kind in RESULTS)]
    computed = [] if entry.kind == "codes" else _folders(computed_results(entry))
    return {folder.name: folder for folder in (
        *shared, *(result for study in sorted(own, key=lambda f: f.stat().st_mtime)
                   for result in _folders(study)), *computed, *_folders(inside))}


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
    return load_result(folder)
