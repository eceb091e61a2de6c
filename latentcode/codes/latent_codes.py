"""`LatentCodes`: the attention scores over the heads, with what is known of each instance.

A folder of codes has `codes.safetensors`, `labels.parquet` and `meta.json`. A label has one value
per instance. Names resolve: `rule` stands for `rule_0` with a pair whose response is token 0, and
the group `rules` for all of `rule_0`, `rule_1`, ...

Needs numpy, pandas and safetensors only, so that the app opens codes without importing torch.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import shorten
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from latentcode.config import convert
from latentcode.errors import (
    ArtifactError,
    ConfigError,
    UnknownNameError,
    check,
    check_choice,
    listed,
)
from latentcode.files.provenance import git_commit, header, read_checked, software
from latentcode.files.storage import (
    checksums,
    create_tensors,
    map_tensors,
    replace_file,
    replace_folder,
    write_instances,
    write_json,
)
from latentcode.hub import fetch, is_address, origin, push
from latentcode.tasks.pairs import Pair

if TYPE_CHECKING:
    import pyarrow

    from latentcode.codes.browser import CodeBrowser
    from latentcode.figures.style import Figure
    from latentcode.models.transformer import HookedTransformer
    from latentcode.runs import Run

RESERVED = ("instance", "layer", "pair", "fitted", "projection_x", "projection_y")
"""Columns that stand beside labels in tables of codes and of planes; `head_0`, `head_1`, ... are
others."""
NUMBERED = re.compile(r"(.+)_\d+")


def label_groups(columns: Iterable[object]) -> dict[str, tuple[str, ...]]:
    """Return the groups of numbered columns: {"terms": ("term_1", "term_2")}."""
    groups: dict[str, tuple[str, ...]] = {}
    for column in columns:
        match = NUMBERED.fullmatch(str(column))
        if match:
            plural = f"{match[1]}s"
            groups[plural] = (*groups.get(plural, ()), str(column))
    return groups


def check_label_names(columns: Iterable[object]) -> None:
    """Raise `ConfigError` for labels whose names repeat, or stand for columns of our tables."""
    for name, times in Counter(map(str, columns)).items():
        check(times == 1, f"label {name!r} is there {times} times; expected different names")
        check(name not in RESERVED and not re.fullmatch(r"head_\d+", name), f"label {name!r} has "
              "the name of a column of tables of codes; expected another than "
              f"{', '.join(RESERVED)} and head_0, head_1, ...")


def check_new_label(name: object, columns: Iterable[object]) -> None:
    """Raise `ConfigError` for a name that is no text, or that stands for something already.

    columns  the labels that there are; with `rule_0` also `rule`, `rules` and `rule_9` are taken
    """
    check(isinstance(name, str) and name.strip() != "", f"the name of a label is {name!r}; "
          "expected text")
    taken = [*map(str, columns), *RESERVED]
    groups = label_groups([*taken, "head_0"])
    group = NUMBERED.sub(r"\1", str(name)) + "s"  # that of `rule` and of `rule_9`
    check(not {name, group} & {*taken, *groups}, f"label {name!r} exists already, or stands for "
          f"some that do; expected another name than those of {listed(taken)}")


def label_values(name: str, values: Any, n: int) -> np.ndarray:
    """Return the values of a label, [n]: bool, whole numbers, text, or measurements.

    `ConfigError` for values that are missing, of another shape, or of another or several types.
    """
    if hasattr(values, "detach"):  # a tensor, which need not be on this device
        values = values.detach().cpu()
    try:
        # A list of numbers and text would become text.
        array = np.asarray(values, dtype=object if isinstance(values, list | tuple) else None)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ConfigError(f"label {name!r} is no array: {error}") from None
    check(array.shape == (n,), f"label {name!r} has shape {array.shape}; expected ({n},), one "
          "value per instance")
    missing = int(pd.isna(array).sum())
    check(missing == 0, f"label {name!r} has {missing} missing values (NaN or None) among {n}; "
          "expected none")
    kind = pd.api.types.infer_dtype(array, skipna=False)
    check(n == 0 or kind in ("boolean", "integer", "string", "floating"), f"label {name!r} has "
          f"values of type {kind}; expected one of bool, int, str and float")
    array = array if kind == "string" or array.dtype.kind != "O" else np.array(array.tolist())
    check(array.dtype.kind != "f" or bool(np.isfinite(array).all()),
          f"label {name!r} has infinite values; expected finite ones")
    return array


def described(labels: pd.DataFrame) -> pd.DataFrame:
    """Return what there is to know of labels at a glance, a row each: their values, and some."""
    rows = []
    for name, values in labels.items():
        if pd.api.types.is_float_dtype(values):
            kind = "measurement"
            some = f"{values.min():.4g} to {values.max():.4g}" if len(values) else ""
        else:
            distinct = values.astype(str).unique()
            kind = f"{len(distinct):,}"
            some = shorten(", ".join(distinct[:4]), 80, placeholder=" …")
            some += ", …" if len(distinct) > 4 else ""
        rows.append({"label": str(name), "values": kind, "such as": some})
    return pd.DataFrame(rows, columns=["label", "values", "such as"])


def is_measurement(values: pd.Series) -> bool:
    """Whether a label is a number on a scale rather than a name."""
    return bool(pd.api.types.is_float_dtype(values)) and values.nunique() > 2


FORMAT = "latentcode.codes"
META, TENSORS, LABELS = "meta.json", "codes.safetensors", "labels.parquet"
META_KEYS = {"format", "format_version", "provenance", "sha256", "axes", "pairs", "layers",
             "query_of_pair", "meta"}
AXES = {"scores": ["layer", "pair", "instance", "head"],
        "residuals": ["layer", "query", "instance", "d_model"]}
"""The axes on disk, where what `select` and `select_residual` read lies in one piece."""
SHARD = 16_384
"""Instances whose labels make a row group, and that an interrupted extraction keeps together."""


def write_labels(path: Path, groups: Iterable[pyarrow.Table]) -> None:
    """Write tables one after the other as the row groups of a parquet file, all or nothing."""
    from pyarrow.parquet import ParquetWriter

    groups = iter(groups)
    first = next(groups)
    with replace_file(path) as temporary, ParquetWriter(temporary, first.schema) as writer:
        for group in chain([first], groups):
            writer.write_table(group.combine_chunks(), row_group_size=SHARD)


def as_table(labels: pd.DataFrame) -> pyarrow.Table:
    """Return labels as what `write_labels` writes; an index that counts from 0 is left out."""
    from pyarrow import Table

    numbered = labels.index.equals(pd.RangeIndex(len(labels)))
    return Table.from_pandas(labels, preserve_index=not numbered)


def write_meta(
    folder: Path, pairs: Sequence[Pair], layers: Sequence[int], query_of_pair: Sequence[int],
    meta: Mapping[str, Any],
) -> None:
    """Describe a folder whose other files are all there."""
    write_json(folder / META, {
        **header(FORMAT), "provenance": {**software(), "git_commit": git_commit()},
        "sha256": checksums(folder, (TENSORS, LABELS)), "axes": AXES,
        "pairs": [asdict(p) for p in pairs], "layers": list(layers),
        "query_of_pair": list(query_of_pair), "meta": dict(meta)})


MOST_ROWS = 48
"""Values of a label that a figure shows in a row each."""


@dataclass(frozen=True)
class LatentCodes:
    """Codes a[:, q, k] of N instances at named pairs.

    scores     float32 [instance, layer, pair, head]: the code, after normalisation
    labels     one row per instance (constituents, target, combination, split, ...)
    pairs      the named pairs, in the order of the third axis
    layers     the layers of the model, in the order of the second axis
    meta       run id, config hash, split, seed, library version, task and model configuration;
               `instances` in a part of codes: which of the split's each row is, from 0
    residuals  float32 [instance, layer, query, d_model] or None: the residual stream entering
               the layer (`hook_resid_pre`) at the distinct query positions of the pairs
    query_of_pair  for each pair, its index on the third axis of `residuals`

    Raises `ConfigError` when the shapes disagree, for labels with the name of a column of our
    tables, and for codes and residual streams that are not finite; what lies on the disk is checked
    when it is selected.
    """

    scores: np.ndarray
    labels: pd.DataFrame
    pairs: tuple[Pair, ...]
    layers: tuple[int, ...]
    meta: Mapping[str, Any] = field(default_factory=dict)
    residuals: np.ndarray | None = None
    query_of_pair: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        n, n_layers, n_pairs = len(self.labels), len(self.layers), len(self.pairs)
        check(self.scores.ndim == 4 and self.scores.shape[:3] == (n, n_layers, n_pairs),
              f"scores have shape {self.scores.shape}; expected ({n}, {n_layers}, {n_pairs}, "
              "heads) for these labels, layers and pairs")
        check_label_names(self.labels.columns)
        check(self.instances().shape == (n,), f"meta names {self.instances().size} instances; "
              f"expected {n}, one per row")
        if self.residuals is not None:
            check(self.residuals.ndim == 4 and self.residuals.shape[:2] == (n, n_layers)
                  and len(self.query_of_pair) == n_pairs
                  and all(0 <= q < self.residuals.shape[2] for q in self.query_of_pair),
                  f"residuals have shape {self.residuals.shape} and query_of_pair "
                  f"{self.query_of_pair}; expected ({n}, {n_layers}, queries, d_model) and a "
                  f"query for each of {n_pairs} pairs")
        for what, values in (("codes", self.scores), ("residual streams", self.residuals)):
            if values is not None and not isinstance(values, np.memmap):
                _finite(what, values)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: Any) -> LatentCodes:
        """Return the instances that a slice, a boolean mask or an array of numbers picks.

        A single number gives the codes of that one instance, N = 1, so that no axis is ever lost.
        """
        rows = index  # a slice, of which nothing is read from the disk yet
        if not isinstance(index, slice):
            index = np.asarray(index)
            rows = np.atleast_1d(np.arange(len(self))[index if index.size else index.astype(int)])
        instances = self.instances()[rows]
        meta = {key: value for key, value in self.meta.items() if key != "instances"}
        if not np.array_equal(instances, np.arange(len(instances))):
            meta["instances"] = instances.tolist()
        return replace(self, scores=self.scores[rows], meta=meta,
                       labels=self.labels.iloc[rows].reset_index(drop=True),
                       residuals=None if self.residuals is None else self.residuals[rows])

    def instances(self) -> np.ndarray:
        """Return which of the instances of the split each row is, counted from 0: int64 [N].

        The rows of `extract` are the first; those of a slice are others.
        """
        return np.asarray(self.meta.get("instances", range(len(self))), dtype=np.int64)

    @property
    def n_heads(self) -> int:
        """Dimension of a code."""
        return int(self.scores.shape[3])

    def pair(self, name: str) -> Pair:
        """Return a pair by name."""
        return self.pairs[self._pair_index(name)]

    def select(self, *, layer: int, pair: str) -> np.ndarray:
        """Return the codes [instance, head] of one layer and pair."""
        return _finite("codes", self.scores[:, self._layer_index(layer), self._pair_index(pair)])

    def select_residual(self, *, layer: int, pair: str) -> np.ndarray:
        """Return the residual stream [instance, d_model] entering `layer` at the pair's query."""
        check(self.residuals is not None, "these codes hold no residual streams; extract them "
              "with residuals=True")
        assert self.residuals is not None
        query = self.query_of_pair[self._pair_index(pair)]
        return _finite("residual streams", self.residuals[:, self._layer_index(layer), query])

    def label(self, name: str, pair: str | None = None) -> pd.Series:
        """Return a label column; with a pair, "rule" means the rule of that pair's response.

        `UnknownNameError` lists the labels there are.
        """
        if name in self.labels:
            return self.labels[name]
        token = self.pair(pair).token if pair is not None else None
        if token is not None and f"{name}_{token}" in self.labels:
            return self.labels[f"{name}_{token}"]
        raise UnknownNameError("label", name, self.labels.columns)

    def with_labels(self, /, **values: Any) -> LatentCodes:
        """Return these codes with further labels: `codes.with_labels(even=target % 2 == 0)`.

        values  name -> one value per instance, as an array, a tensor or a list: bool, whole
                numbers or text, which probes decode, or measurements, which colour points

        Raises what `check_new_label` and `label_values` raise.
        """
        labels = self.labels.copy()
        for name, given in values.items():
            check(not callable(given), f"label {name!r} is a function; expected its values, of "
                  "the instances that latentcode.instances(run, split, n, seed=seed) draws again")
            check_new_label(name, labels.columns)
            labels[name] = label_values(name, given, len(self))
        return replace(self, labels=labels)

    def mean_by(self, label: str, *, layer: int, pair: str) -> pd.DataFrame:
        """Return the mean code of each value of a label: index label, one column per head."""
        by_value = self._heads(layer, pair).groupby(self.label(label, pair).to_numpy())
        return by_value.mean().rename_axis(label)

    def figure(
        self, label: str | None = None, *, layer: int | None = None, pair: str | None = None,
        centred: bool = True,
    ) -> Figure:
        """Which heads does the mean code of each value of a label use?

        label    default: the first label of the pair that has few values, or none
        layer    default: the last
        pair     default: the first
        centred  show by how much each mean code differs from the mean of all rows, in which every
                 value counts the same: most of a code is common to all values. False shows the
                 mean codes themselves, as does a single row

        `ConfigError` where there is no instance, or a label has more than `MOST_ROWS` values.
        """
        from latentcode.figures.panels import mean_codes_figure

        check(len(self) > 0, "these codes hold no instances; expected at least one to draw")
        layer, pair, label = self._place(layer, pair, label)
        title = f"layer {layer}, {pair}, {len(self):,} instances"
        if label is None:
            mean = self.select(layer=layer, pair=pair).mean(axis=0, keepdims=True)
            return mean_codes_figure(pd.DataFrame(mean, index=["all"]), title, "mean score")
        values = self.label(label, pair).nunique()
        check(0 < values <= MOST_ROWS, f"label {label!r} has {values} values; expected one to "
              f"{MOST_ROWS}, a row each")
        means = self.mean_by(label, layer=layer, pair=pair)
        if centred and values > 1:
            return mean_codes_figure(means - means.mean(), title, "mean score − mean of rows")
        return mean_codes_figure(means, title, "mean score")

    def browse(
        self, run: Run | str | Path | HookedTransformer | None = None, *, instance: int = 0,
        layer: int | None = None, pair: str | None = None, label: str | None = None,
    ) -> CodeBrowser:
        """Look through the problems one at a time, each beside its code.

        A notebook shows it with controls for instance, layer and pair (ipywidgets, which the extra
        `jupyter` brings), and without ipywidgets as it is at first.

        run       the run that the codes are of, its folder or a name of the zoo, or a model: it
                  answers the problems. None: nobody does
        instance  the first row to show
        label     the label whose mean code is shown; the defaults are those of `figure`

        `ConfigError` for an instance that there is not, and for a run whose codes these are not.
        """
        from latentcode.codes.browser import CodeBrowser, model_of

        return CodeBrowser(self, model_of(self, run), instance, *self._place(layer, pair, label))

    def _place(
        self, layer: int | None, pair: str | None, label: str | None
    ) -> tuple[int, str, str | None]:
        """Return the last layer, the first pair, and its first label that is text which instances
        share, in the place of those that are not given."""
        layer = self.layers[-1] if layer is None else layer
        pair = self.pairs[0].name if pair is None else pair
        if label is not None:
            return layer, pair, label
        ending = f"_{self.pair(pair).token}"
        columns = [str(column) for column in self.labels]
        of_token = [column.removesuffix(ending) for column in columns if column.endswith(ending)]
        for name in [*of_token, *columns]:
            values = self.label(name, pair)
            if name not in ("split", "combination") and (
                    pd.api.types.is_string_dtype(values)
                    and 2 <= values.nunique() <= min(MOST_ROWS, len(self) // 2)):
                return layer, pair, name
        return layer, pair, None

    def subset(self, mask: Any) -> LatentCodes:
        """Return the instances that a boolean mask or an index array picks, as `codes[mask]`."""
        return self[mask]

    def to_pandas(self) -> pd.DataFrame:
        """Return a long table: one row per instance, layer and pair; labels and `head_h`."""
        numbers, labels = np.arange(len(self)), self.labels.reset_index(drop=True)
        return pd.concat([pd.concat([
            pd.DataFrame({"instance": numbers, "layer": layer, "pair": pair.name}), labels,
            self._heads(layer, pair.name)], axis=1)
            for layer in self.layers for pair in self.pairs], ignore_index=True)

    def _heads(self, layer: int, pair: str) -> pd.DataFrame:
        """Return the codes of one layer and pair, a column `head_h` each."""
        return pd.DataFrame(self.select(layer=layer, pair=pair),
                            columns=[f"head_{h}" for h in range(self.n_heads)])

    def save(self, folder: str | Path, *, overwrite: bool = False) -> Path:
        """Write `codes.safetensors`, `labels.parquet` and `meta.json`, all or nothing."""
        folder = Path(folder)
        with replace_folder(folder, overwrite=overwrite, marker=META) as temporary:
            arrays = {name: array.transpose(1, 2, 0, 3) for name, array in (
                ("scores", self.scores), ("residuals", self.residuals)) if array is not None}
            create_tensors(temporary / TENSORS, {k: v.shape for k, v in arrays.items()})
            for name, array in arrays.items():
                write_instances(temporary / TENSORS, name, 0, array)
            labels = as_table(self.labels)
            write_labels(temporary / LABELS, (
                labels.slice(start, SHARD) for start in range(0, max(len(self), 1), SHARD)))
            write_meta(temporary, self.pairs, self.layers, self.query_of_pair, self.meta)
        return folder

    def push_to_hub(
        self, repo: str, *, private: bool = False, license: str | None = None,
        token: str | bool | None = None, commit_message: str | None = None,
    ) -> str:
        """Share the three files that `save` writes on the Hugging Face hub.

        repo     `user/name`, a repository of data sets; made if it does not exist
        private  whether a new repository is
        license  what its page says, such as `mit`; default: nothing
        token    of an account that may write; default: the one that was saved

        Returns the address of the commit, which `load` opens. It is one commit, or none. `HubError`
        says why nothing was pushed.
        """
        with TemporaryDirectory() as temporary:
            return push(self.save(Path(temporary) / "codes"), "codes", repo, private=private,
                        page=data_card(self, repo, license), token=token,
                        commit_message=commit_message)

    @classmethod
    def load(
        cls, folder: str | Path, *, verify: bool = True, revision: str | None = None,
        token: str | bool | None = None,
    ) -> LatentCodes:
        """Open a codes folder: labels are read, scores and residuals when they are used.

        So `select` reads the codes of its layer and pair alone, however large the file is. A
        change to the arrays stays in memory.

        folder    or an address on the Hugging Face hub, `hf://datasets/user/name`
        verify    compare the checksums of all files first, which reads them once: about a second
                  per gigabyte. With False, damage to the numbers themselves goes unnoticed.
        revision  of codes on the hub: a branch, a tag or a commit; default: the newest commit
        token     of an account that may read them; default: the one that was saved

        `ArtifactError` names what is missing, unknown, damaged or of another version; `HubError`
        says what is wrong with an address; `ConfigError` for a revision or a token of a folder.
        """
        if isinstance(folder, str) and is_address(folder):
            folder = fetch(folder, kind="codes", revision=revision, token=token, verify=verify)
            verify = False  # once is enough
        else:
            check(revision is None and token is None, f"revision or token is given, but {folder} "
                  "is not on the hub; expected hf://datasets/user/name")
        from pyarrow.parquet import read_metadata

        folder = Path(folder)
        check(folder.is_dir(), f"codes folder {folder} does not exist", ArtifactError)
        saved = read_checked(folder / META, FORMAT, META_KEYS, "meta", (TENSORS, LABELS),
                             verify=verify)
        tensors = map_tensors(folder / TENSORS)
        check("scores" in tensors and set(tensors) <= {"scores", "residuals"},
              f"{folder / TENSORS} holds {sorted(tensors)}; expected scores and possibly residuals",
              ArtifactError)
        try:
            arrays: dict[str, Any] = {}
            for name, array in tensors.items():
                axes = saved["axes"][name]
                layer, place, instance, component = map(axes.index, AXES[name])
                arrays[name] = array.transpose(instance, layer, place, component)
            n_rows, n = read_metadata(folder / LABELS).num_rows, len(arrays["scores"])
            # Before any of them is unpacked.
            check(n_rows == n, f"{LABELS} holds {n_rows:,} rows; expected {n:,}, one per instance")
            from_hub = origin(folder)
            numbers = {name: convert(tuple[int, ...], saved[name], name)
                       for name in ("layers", "query_of_pair")}
            return cls(
                labels=pd.read_parquet(folder / LABELS),
                pairs=convert(tuple[Pair, ...], saved["pairs"], "pairs"), **arrays, **numbers,
                meta=saved["meta"] | ({} if from_hub is None else {"loaded_from": str(from_hub)}))
        except (ConfigError, OSError, ValueError, TypeError, LookupError, AttributeError,
                NotImplementedError) as error:
            raise ArtifactError(f"codes folder {folder} is damaged: {error}") from None

    def _layer_index(self, layer: int) -> int:
        check_choice("layer", layer, self.layers)
        return self.layers.index(layer)

    def _pair_index(self, pair: str) -> int:
        names = [p.name for p in self.pairs]
        check_choice("pair", pair, names)
        return names.index(pair)

    def __repr__(self) -> str:
        return (f"LatentCodes({len(self)} instances, layers {list(self.layers)}, "
                f"{len(self.pairs)} pairs, {self.n_heads} heads"
                f"{', with residual streams' if self.residuals is not None else ''}; "
                f"run {self.meta.get('run', '?')}, split {self.meta.get('split', '?')})")

    def _repr_html_(self) -> str:
        facts = {
            "instances": f"{len(self):,}", "layers": ", ".join(map(str, self.layers)),
            "heads": self.n_heads,
            "pairs": ", ".join(p.name for p in self.pairs[:8])
            + (f" and {len(self.pairs) - 8} more" if len(self.pairs) > 8 else ""),
            **{k: self.meta[k] for k in ("run", "kind", "split", "seed") if k in self.meta}}
        table = pd.DataFrame({"": facts}).to_html(header=False)
        labels = described(self.labels).to_html(index=False)
        picture = self.figure().to_html("mean codes") if self.scores.size else ""
        return f"<b>LatentCodes</b> scores [instance, layer, pair, head]{table}{picture}{labels}"


def _finite(what: str, values: np.ndarray) -> np.ndarray:
    """Return values [instance, ...]; `ConfigError` where one is NaN or infinite."""
    whole = np.isfinite(values.reshape(len(values), -1)).all(axis=1) if len(values) else []
    bad = np.flatnonzero(~np.asarray(whole, dtype=bool))
    check(len(bad) == 0, f"the {what} of {len(bad)} of {len(values)} instances are not all finite, "
          f"the first those of instance {bad[0] if len(bad) else ''}; expected no NaN and nothing "
          "infinite")
    return values


def data_card(codes: LatentCodes, repo: str, license: str | None) -> str:
    """Return the page of codes on the hub, which shows their labels as a table."""
    from huggingface_hub import DatasetCardData

    from latentcode.figures.text import markdown_of
    from latentcode.hub import TAGS, page

    name = repo.partition("/")[2]
    facts = {key: codes.meta[key] for key in ("run", "kind", "split", "seed", "step")
             if key in codes.meta}
    body = "\n\n".join([
        f"# {name}",
        f"Latent codes, the attention scores over the heads, of {len(codes):,} instances: layers "
        f"{', '.join(map(str, codes.layers))}, {len(codes.pairs)} pairs of positions, "
        f"{codes.n_heads} heads. Made with latentcode.",
        "\n".join(f"- {key}: {value}" for key, value in facts.items()),
        "## Use", "```python\nimport latentcode as lc\n\n"
        f'codes = lc.LatentCodes.load("hf://datasets/{repo}")\n'
        f'codes.select(layer={codes.layers[-1]}, pair="{codes.pairs[0].name}")   '
        "# [instance, head]\n```",
        "## Labels", markdown_of(described(codes.labels))])
    return page(DatasetCardData(
        pretty_name=name, license=license, library_name="latentcode", tags=list(TAGS),
        configs=[{"config_name": "labels", "data_files": LABELS}]), body)
