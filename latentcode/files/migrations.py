"""How is data that an older version wrote brought to the present format?

Whatever latentcode writes says its `format` and its `format_version`. Reading goes through
`upgrade`, which lifts plain data one version at a time with the functions of `MIGRATIONS`. The
files on disk stay as they are. A version that is newer, or that no row leads on from, is refused.

To change a format: raise its version here, add the row that leads to it, and freeze a small
example of the old version in tests/golden/.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from latentcode.errors import ArtifactError, LatentCodeError, check
from latentcode.files.storage import check_checksum, read_json

CURRENT: dict[str, int] = {
    "latentcode.run": 1,
    "latentcode.checkpoint": 4,
    "latentcode.codes": 3,
    "latentcode.card": 1,
    "latentcode.manifest": 1,
    "latentcode.decoding": 5,
    "latentcode.separation": 3,
    "latentcode.similarity": 3,
    "latentcode.topography": 3,
    "latentcode.alignment": 3,
    "latentcode.interventions": 6,
    "latentcode.attribution": 4,
    "latentcode.subspaces": 4,
    "latentcode.projection": 1,
    "latentcode.cached_projection": 1,
    "latentcode.value_networks": 2,
    "latentcode.heads": 1,
    "latentcode.model_checks": 1,
    "latentcode.probe": 1,
    "latentcode.reproduction": 3,
    "latentcode.text": 1,
}
"""The version in which each format is written today."""

FORMER: dict[str, int] = {"latentcode.rows": 2}
"""Formats that are not written any more, and their last version, which leads to another format."""

ABSENT = "absent"
"""In place of the checksum of a file that the version that was read did not have yet."""

Data = dict[str, Any]


def _without_checksums(*files: str) -> Callable[[Data], Data]:
    """Version 1 recorded neither what wrote it nor the checksums of its files: null."""
    return lambda data: {**data, "provenance": None, "sha256": dict.fromkeys(files)}


def _without_classes(data: Data) -> Data:
    """Version 1 knew minimal pairs alone: no classes of answers, and no comparisons of them."""
    return {**data, "sha256": {**data["sha256"], "classes.csv": ABSENT,
                               "comparisons.csv": ABSENT}}


def _with_instances_first(data: Data) -> Data:
    """Version 2 had the instances on the first axis of every array, and did not say so."""
    return {**data, "axes": {"scores": ["instance", "layer", "pair", "head"],
                             "residuals": ["instance", "layer", "query", "d_model"]}}


FORMER_PATCHES = {
    "donor": "interchange", "same": "control", "transplant": "resample", "zero": "zero_ablation",
    "mean": "mean_ablation", "set": "class_mean", "set_same": "class_mean_base",
    "set_shuffled": "class_mean_shuffled", "set_third": "class_mean_third",
    "set_group": "class_mean_group", "set_pooled": "class_mean_pooled",
    "set_same_pooled": "class_mean_base_pooled", "set_third_pooled": "class_mean_third_pooled",
    "set_group_pooled": "class_mean_group_pooled",
    **{f"{other}context": f"{other}rest" for other in (
        "", "operation+", "operands+", "operation+operands+")}}
"""Patches as earlier versions called them, and what they are called now."""
FORMER_CLASSES = {"instance": "base", "copied": "answer"}
"""Classes of answers, likewise: A(x) and B(x')."""
FORMER_METRICS = {
    "switch": "flip", "stay": "unchanged", "p_source": "p_base_answer",
    "p_target": "p_source_answer", "error_source": "error_base_answer",
    "error_target": "error_source_answer",
    **{f"{old}{window}": f"{new}{window}" for old, new in FORMER_CLASSES.items()
       for window in ("", "@0.025", "@0.1")}}
"""Metrics of interventions, likewise; their source and target were the base and the source."""


def _with_patches(data: Data) -> Data:
    """Version 3 called a patch a write, and most of them otherwise; so do its settings."""
    def renamed(one: Data) -> Data:
        patch = one["write"]
        return {"patch": FORMER_PATCHES.get(patch, patch),
                **{name: value for name, value in one.items() if name != "write"}}

    settings = data["settings"]
    return {**data, "settings": {
        **settings, "interventions": [renamed(one) for one in settings["interventions"]]}}


def _with_source(data: Data) -> Data:
    """Version 1 of attribution called the source the donor."""
    settings = {name: value for name, value in data["settings"].items() if name != "donor"}
    source, rate = data["settings"]["donor"], data["settings"]["rate"]
    return {**data, "settings": {**settings, "source": FORMER_PATCHES.get(source, source),
                                 "rate": FORMER_METRICS.get(rate, rate)}}


def _features_of(row: Mapping[str, Any]) -> Data:
    """What a probe read was called its source, which is now what an intervention puts in."""
    return {"features" if key == "source" else key: value for key, value in row.items()}


def _with_features_of_zeros(data: Data) -> Data:
    """Version 1 said of which source codes are zero; `TableResult.FORMERLY` knows the columns."""
    settings = data["settings"]
    return {**data, "settings": {**settings, "zero": [_features_of(z) for z in settings["zero"]]}}


def _with_rate(data: Data) -> Data:
    """Version 2 of attribution called the source's own answer `copied`."""
    settings = data["settings"]
    rate = settings["rate"]
    return {**data, "settings": {**settings, "rate": FORMER_CLASSES.get(rate, rate)}}


def _with_features_in_tables(data: Data) -> Data:
    """Version 1 had columns `source` and `write` in its tables, now `features` and `patch`; the
    `source` of a claim is where it stands."""
    def renamed(row: Data) -> Data:
        if "write" not in row:
            return _features_of(row)
        named = {"patch" if key == "write" else key: value for key, value in row.items()}
        return {key: FORMER_PATCHES.get(value, value) if key in ("patch", "against") else value
                for key, value in named.items()}

    return {**data, "tables": {name: [renamed(row) for row in rows]
                               for name, rows in data["tables"].items()}}


def _with_features_asked(data: Data) -> Data:
    """Version 3 read codes alone, in all dimensions, and asked for nothing beyond the answer."""
    return {**data, "sha256": {**data["sha256"], "given.csv": ABSENT}, "settings": {
        **data["settings"], "features": ["code"], "widths": None, "beyond_answer": False,
        "metrics": ["accuracy", "macro_f1"]}}


def _without_contrasts(data: Data) -> Data:
    """Older versions had no differences from controls in a table of their own."""
    return {**data, "sha256": {**data["sha256"], "contrasts.csv": ABSENT}}


def _with_contrasts(data: Data) -> Data:
    """Version 5 of interventions kept its contrasts as `comparisons`."""
    return {**data, "sha256": {
        {"comparisons.csv": "contrasts.csv"}.get(file, file): digest
        for file, digest in data["sha256"].items()}}


def _as_decoding(data: Data) -> Data:
    """What rows say has become features of decoding; `DecodingResult` knows the columns."""
    old = dict(data["settings"])
    about = {name: old.pop(name) for name in ("run", "run_id", "kind", "step", "task")}
    parts = {name: {"n": old.pop(f"n_{name}"), **about, "split": split, "seed": old["seed"]}
             for name, split in (("train", "train"), ("heldout", "ood"))}
    return {**data, "format": "latentcode.decoding", "format_version": 4,
            "sha256": {**data["sha256"], "per_class.csv": ABSENT}, "settings": {
                "features": None, "beyond_answer": True, "metrics": [
                    "accuracy", "balanced_accuracy", "macro_f1", "log_loss"],
                "allow_overlap": "nothing", "shared_combinations": 0, "n_shuffles": 1,
                "penalties": [1.0, 0.1, 1e-2, 1e-3], "n_folds": 3, "selection_instances": 2_000,
                **old, **parts}}


def _with_classes_in_tables(data: Data) -> Data:
    """Version 2 of whose answer came out had the former names of its classes."""
    if data.get("name") != "causal":
        return data
    return {**data, "tables": {table: [
        {key: FORMER_CLASSES.get(value, value) if key in ("metric", "class") else value
         for key, value in row.items()} for row in rows] for table, rows in data["tables"].items()}}


MIGRATIONS: dict[tuple[str, int], Callable[[Data], Data]] = {
    ("latentcode.checkpoint", 1): _without_checksums(
        "model.safetensors", "optimizer.safetensors", "rng.safetensors"),
    # The stream of training batches is no longer kept: a batch depends on the seed and the step.
    ("latentcode.checkpoint", 2): dict,
    # A published checkpoint has the model alone, and no checksums of the other two files.
    ("latentcode.checkpoint", 3): dict,
    ("latentcode.codes", 1): _without_checksums("codes.safetensors", "labels.parquet"),
    ("latentcode.codes", 2): _with_instances_first,
    ("latentcode.interventions", 1): _without_classes,
    # Columns of tables have other names, which `TableResult.FORMERLY` knows.
    ("latentcode.interventions", 2): dict,
    ("latentcode.interventions", 3): _with_patches,
    # Classes of answers have other names, which `TableResult.RENAMED` knows.
    ("latentcode.interventions", 4): dict,
    # Its table of comparisons is called contrasts.
    ("latentcode.interventions", 5): _with_contrasts,
    ("latentcode.attribution", 1): _with_source,
    ("latentcode.attribution", 2): _with_rate,
    ("latentcode.attribution", 3): _without_contrasts,
    ("latentcode.subspaces", 1): dict,
    ("latentcode.subspaces", 2): dict,
    ("latentcode.subspaces", 3): _without_contrasts,
    ("latentcode.decoding", 1): _without_checksums("table.csv", "per_class.csv"),
    ("latentcode.decoding", 2): dict,
    ("latentcode.decoding", 3): _with_features_asked,
    ("latentcode.decoding", 4): _without_contrasts,
    ("latentcode.rows", 1): dict,
    ("latentcode.rows", 2): _as_decoding,
    ("latentcode.separation", 1): dict,
    ("latentcode.separation", 2): _without_contrasts,
    ("latentcode.similarity", 1): dict,
    ("latentcode.similarity", 2): _without_contrasts,
    ("latentcode.topography", 1): _with_features_of_zeros,
    ("latentcode.topography", 2): _without_contrasts,
    ("latentcode.alignment", 1): dict,
    ("latentcode.alignment", 2): _without_contrasts,
    ("latentcode.value_networks", 1): dict,
    ("latentcode.reproduction", 1): _with_features_in_tables,
    ("latentcode.reproduction", 2): _with_classes_in_tables,
}
"""(format, version) -> what turns its data into those of the next version, or of another format
and its version."""


def header(name: str) -> dict[str, Any]:
    """Return the two keys that every file of the format `name` begins with."""
    return {"format": name, "format_version": CURRENT[name]}


def upgrade(
    data: object, name: str, where: object, error: type[LatentCodeError] = ArtifactError
) -> Data:
    """Return the data of the format `name` in its present version.

    data   what was read, of any version; it is not changed
    where  the file or folder it comes from, for messages

    Raises `error` that names the format and the version for what is of another format, of a
    newer version, or of one that no migration starts from.
    """
    current = CURRENT[name]
    found = (data.get("format"), data.get("format_version")) if isinstance(data, Mapping) else None
    message = f"{where} is of format and version {found}; expected {(name, current)}"
    if (found is None or type(found[1]) is not int or found[1] < 1
            or found[0] not in (name, *FORMER)):
        raise error(message)
    assert isinstance(data, Mapping)
    upgraded = dict(data)
    kind, version = str(found[0]), found[1]
    check(version <= FORMER.get(kind, current), f"{message} or older: a newer latentcode wrote it",
          error)
    while (kind, version) != (name, current):
        check((kind, version) in MIGRATIONS, f"{message}, or a version that leads to it", error)
        try:
            upgraded = {**MIGRATIONS[kind, version](upgraded)}
        except (AttributeError, KeyError, TypeError, ValueError) as reason:
            raise error(f"{message}, and not all that it has ({type(reason).__name__}: {reason})"
                        ) from None
        if upgraded["format"] == kind:
            upgraded["format_version"] = version + 1
        kind, version = upgraded["format"], upgraded["format_version"]
    return upgraded


def present(path: Path, formerly: Mapping[str, str]) -> Path:
    """Return a file, or the one of its former name where only that is there."""
    older = path.with_name(formerly.get(path.name, path.name))
    return older if older.exists() and not path.exists() else path


def read_checked(
    path: Path, name: str, keys: set[str], mapping: str, files: tuple[str, ...], *,
    verify: bool = True, formerly: Mapping[str, str] | None = None,
) -> Data:
    """Return the JSON that describes a folder, brought up to date, with its files verified.

    keys     all that the present version holds
    mapping  the key whose value must be a mapping
    files    the files beside it whose SHA-256 it records
    verify   compare them; False leaves the files unread
    formerly  file -> what it was called in older versions, where it is not there

    `ArtifactError` names what is missing, unknown, of another type or changed.
    """
    data = upgrade(read_json(path), name, path)
    check(set(data) == keys, f"{path} has keys {sorted(data)}; expected {sorted(keys)}",
          ArtifactError)
    check(isinstance(data[mapping], dict),
          f"{path} has {mapping} {data[mapping]!r}; expected a mapping", ArtifactError)
    check(isinstance(data["sha256"], dict) and set(data["sha256"]) == set(files),
          f"{path} has sha256 {data['sha256']!r}; expected those of {' and '.join(files)}",
          ArtifactError)
    for file, recorded in data["sha256"].items() if verify else ():
        if recorded != ABSENT:
            check_checksum(present(path.with_name(file), formerly or {}), recorded)
    return data


__all__ = ["ABSENT", "CURRENT", "MIGRATIONS", "header", "present", "read_checked", "upgrade"]
