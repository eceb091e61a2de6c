"""The folder of a run: making it, opening it, clearing it up.

    config.yaml        the configuration that determines the run
    provenance.json    versions, commit, device, threads, configuration hash, format version
    metrics.jsonl      one line per step, split and metric; no wall-clock time
    timing.jsonl       how long it took; the one file that differs between equal runs
    text/              of a language model, see `latentcode.tasks.text.stored`
    checkpoints/step_0001000/   see `latentcode.runs.checkpoints`
    results/           what was found with it, for whoever shares it
    card.json          of a model of the zoo, see `latentcode.zoo.card`

Whatever is here is whole: files and folders are written under a temporary name, flushed and
renamed.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from contextlib import nullcontext
from glob import escape
from pathlib import Path
from typing import Any

from latentcode.config import RunConfig, config_hash, load_config, to_yaml
from latentcode.config.run import check_registered, registered_in
from latentcode.errors import ArtifactError, ConfigError, RunError, check
from latentcode.files.formats import check_format, header
from latentcode.files.locks import exclusive
from latentcode.files.provenance import check_provenance
from latentcode.files.storage import (
    TEMPORARY,
    check_writable,
    read_json,
    replace_folder,
    write_json,
    write_text,
)
from latentcode.hub.address import origin
from latentcode.runs.checkpoints import CHECKPOINTS
from latentcode.runs.metric_file import METRICS
from latentcode.tasks.text.cache import keep_with, make_known

FORMAT = "latentcode.run"
CONFIG, PROVENANCE, TIMING, TEXT, LOCK, RESULTS, CARD = (
    "config.yaml", "provenance.json", "timing.jsonl", "text", ".lock", "results", "card.json")
LOADED_FROM = "loaded_from"
"""The key of a run's provenance that says where on the hub it was downloaded from."""


def make_folder(
    path: Path, config: RunConfig, *, overwrite: bool, imported: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Make the folder of a run without checkpoints and return its provenance; see `Run.create`."""
    from latentcode.files.provenance import environment, new_id, now

    check_writable(path)
    occupied = path.exists() and not (path.is_dir() and not any(path.iterdir()))
    if occupied:
        check(_is_run(path), f"{path} exists and is not a run of ours; expected a new or an "
              "empty folder", RunError)
        check(overwrite, f"{path} already holds a run; resume it (--resume, "
              "resume=True), choose another folder, or overwrite it (--overwrite, "
              "overwrite=True)", RunError)
    provenance = {
        **header(FORMAT), "id": new_id(), "created": now(),
        "config_hash": config_hash(config), **environment(config.training.device),
        "resumed": []}
    if imported is not None:
        provenance["imported"] = dict(imported)
    if names := registered_in(config):
        provenance["registered"] = names
    path.parent.mkdir(parents=True, exist_ok=True)
    with exclusive(path / LOCK) if occupied else nullcontext():
        for ending in ("", "-old"):
            remove_stale(path.parent, f"????????-{escape(path.name)}{ending}")
        with replace_folder(path, overwrite=overwrite, marker=PROVENANCE) as folder:
            (folder / CHECKPOINTS).mkdir()
            (folder / METRICS).touch()
            write_text(folder / CONFIG, to_yaml(config))
            write_json(folder / PROVENANCE, provenance)
            keep_with(config.task, folder / TEXT)
    make_known(config.task, path / TEXT)
    return provenance


def read_folder(path: Path) -> tuple[RunConfig, dict[str, Any]]:
    """Return the configuration and the provenance of a run's folder; see `Run.open`."""
    check(path.is_dir(), f"{path} is a file; expected a run folder" if path.exists()
          else f"run folder {path} does not exist", RunError)
    for name in (CONFIG, PROVENANCE, METRICS):
        check((path / name).is_file(),
              f"{path} is not a complete run folder: {name} is missing", RunError)
    provenance = check_format(read_json(path / PROVENANCE), FORMAT, path, RunError)
    check_provenance(path / PROVENANCE, provenance)
    check_registered(provenance.get("registered", {}), path)
    try:
        config = load_config(path / CONFIG)
    except ConfigError as error:
        raise ArtifactError(str(error)) from None
    mine, wanted = config_hash(config), provenance.get("config_hash")
    check(mine == wanted, f"{path / CONFIG} was changed after the run was created: its hash "
          f"is {mine}; expected {wanted}", ArtifactError)
    if from_hub := origin(path):
        provenance[LOADED_FROM] = str(from_hub)
    make_known(config.task, path / TEXT)
    return config, provenance


def with_name(path: str | Path) -> Path:
    """Return a path that ends in the folder's name, also for "." and ".."."""
    path = Path(path)
    return path if path.name not in ("", "..") else path.resolve()


def remove_stale(folder: Path, pattern: str) -> None:
    """Delete what a process that was killed left under a temporary name."""
    for path in folder.glob(f"{TEMPORARY}{pattern}"):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _is_run(path: Path) -> bool:
    """Whether a folder was made by `make_folder`, of whatever version."""
    if not (path / PROVENANCE).is_file():
        return False
    provenance = read_json(path / PROVENANCE)
    return isinstance(provenance, dict) and provenance.get("format") == FORMAT
