"""The outcome of a probe: tidy tables, a figure, a folder. It holds nothing that was fitted."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from html import escape
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import pandas as pd

from latentcode.errors import ArtifactError, check, check_choice
from latentcode.files.provenance import git_commit, header, read_checked, software
from latentcode.files.storage import (
    checksums,
    read_json,
    read_table,
    replace_folder,
    write_json,
    write_table,
)
from latentcode.probes.common.statistics import NONE, Contrasts, no_null

if TYPE_CHECKING:
    from latentcode.figures.style import Figure

FIGURE = "figure.png"
CONTROLS = "residual", "untrained"
"""Features that stand beside the code unless the caller leaves them out."""
BAG = "bag"
"""What the tokens of whole texts are called (`probes.common.harness`), a control of their own."""
MODELS = ("trained", "untrained", "shuffled")
"""Models that features are read from: the model, the same with its initial weights, and the model
with labels of other problems."""
META_KEYS = {"format", "format_version", "provenance", "sha256", "settings"}
RESULTS: Mapping[str, tuple[str, str]] = {
    "alignment": ("alignment", "AlignmentResult"),
    "attribution": ("attribution", "AttributionResult"),
    "subspaces": ("das", "DASResult"),
    "decoding": ("decoding", "DecodingResult"),
    "heads": ("heads", "HeadsResult"),
    "interventions": ("interventions", "InterventionResult"),
    "separation": ("knn_purity", "KNNPurityResult"),
    "model_checks": ("model_checks", "ModelCheckResult"),
    "probe": ("registered", "ProbeResult"),
    "projection": ("projection", "ProjectionResult"),
    "similarity": ("similarity", "SimilarityResult"),
    "topography": ("topography", "TopographyResult"),
    "value_networks": ("value_networks", "ValueNetworksResult")}
"""Kind of result, by the name of its format -> the probe's module, which is imported for a folder
of that kind, and the class."""


class TableResult(ABC):
    """Tidy tables and everything else that determines their numbers.

    A subclass is a `@dataclass(frozen=True, repr=False)` whose fields are the tables of `COLUMNS`,
    then `settings`; last, where the question has controls, `contrasts`, which is in `COLUMNS`, too.
    In a folder each table is `{field}.parquet`, with its types, and for people `{field}.csv`, which
    is not read; beside them `figure.png` and `{kind}.json` of the format `latentcode.{kind}`.
    """

    FORMAT: ClassVar[str]
    CAPTION: ClassVar[str] = ""
    """What the summary shows, for the title."""
    COLUMNS: ClassVar[Mapping[str, tuple[str, ...]]]
    """Field -> the columns of its table."""
    OPEN: ClassVar[tuple[str, ...]] = ()
    """Fields whose tables may have further columns, labels of instances."""
    BEST_PER: ClassVar[tuple[str, ...]] = ("layer",)
    """Columns of contrasts of whose places the best is said in words."""
    HEADLINE_ROWS: ClassVar[Mapping[str, Sequence[Any]]] = {}
    """Column of contrasts -> the entries that are said in words."""

    settings: Mapping[str, Any]
    contrasts: Contrasts = NONE
    """What was found less each control, paired over the same problems."""

    @classmethod
    def from_rows(cls, rows: Mapping[str, Sequence[Any]], settings: Mapping[str, Any]) -> Self:
        """Return a result from the rows of each table: mappings, or tables of several each."""
        fields: dict[str, Any] = {}
        for name, columns in cls.COLUMNS.items():
            frames = [part for part in rows[name] if isinstance(part, pd.DataFrame)]
            if frames:
                table = pd.concat([frame for frame in frames if len(frame)] or frames,
                                  ignore_index=True)
                further = [column for column in table if column not in columns]
                table = table.reindex(columns=[*columns, *(further if name in cls.OPEN else ())])
            else:
                table = pd.DataFrame(list(rows[name]), columns=list(columns))
            fields[name] = Contrasts(table) if name == "contrasts" else table
        result: Any = cls  # the subclass knows its fields
        return result(**fields, settings=settings)

    def tables(self) -> dict[str, pd.DataFrame]:
        """Return all tables by the names of `COLUMNS`, that of the contrasts, too."""
        return {name: self.contrasts.table if name == "contrasts" else getattr(self, name)
                for name in self.COLUMNS}

    @abstractmethod
    def summary(self) -> pd.DataFrame:
        """Return what a reader wants first, a few columns wide."""

    @abstractmethod
    def figure(self) -> Figure:
        """Return the picture of the tables."""

    def figures(self) -> dict[str, Figure]:
        """Return every picture that a saved folder holds, by file name."""
        return {FIGURE: self.figure()}

    @property
    def name(self) -> str:
        """What it is called where it is printed."""
        return type(self).__name__

    @property
    def title(self) -> str:
        """One line that says what the summary shows."""
        return f"{type(self).__name__}: {self.CAPTION}" if self.CAPTION else type(self).__name__

    @property
    def caveats(self) -> tuple[str, ...]:
        """What a reader of these numbers must know, one sentence each."""
        return ()

    @property
    def missing_controls(self) -> tuple[str, ...]:
        """The controls of a probe that were left out on request."""
        of_texts = self.settings.get("whole_texts")
        return tuple(name for name in (*CONTROLS, *((BAG,) if of_texts else ()))
                     if name not in self.settings["controls"]
                     and name not in self.settings.get("features", ()))

    def controls_caveat(self) -> list[str]:
        """Return the caveats that controls were left out, or cannot be."""
        missing = self.missing_controls
        return [*([f"Without controls: {', '.join(missing)}."] if missing else []),
                *map(no_null, self.settings.get("no_null", ()))]

    def first_pair(self, pair: str | None = None) -> str:
        """Return a pair, or else the first that the result is about."""
        return str(self.settings["pairs"][0]) if pair is None else pair

    @classmethod
    def _files(cls) -> tuple[str, ...]:
        return tuple(f"{name}.parquet" for name in cls.COLUMNS)

    @classmethod
    def marker(cls) -> str:
        """Return the name of the JSON that makes a folder one of this kind."""
        return f"{cls.FORMAT.removeprefix('latentcode.')}.json"

    def save(
        self, folder: str | Path, *, overwrite: bool = False, figures: bool = True
    ) -> Path:
        """Write the tables as parquet and CSV, `figure.png` and a JSON of settings, all or nothing.

        figures  False leaves the pictures out: `figure()` of the loaded result draws them again
        """
        folder = Path(folder)
        with replace_folder(folder, overwrite=overwrite, marker=self.marker()) as temporary:
            for name, table in self.tables().items():
                write_table(temporary / f"{name}.parquet", table)
                table.to_csv(temporary / f"{name}.csv", index=False)
            for name, figure in self.figures().items() if figures else ():
                figure.savefig(temporary / name, dpi=150)
            write_json(temporary / self.marker(), {
                **header(self.FORMAT), "provenance": {**software(), "git_commit": git_commit()},
                "sha256": checksums(temporary, self._files()), "settings": dict(self.settings)})
        return folder

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Read a saved folder; `ArtifactError` names what is missing, damaged or of another
        version."""
        folder = Path(folder)
        meta = read_checked(folder / cls.marker(), cls.FORMAT, META_KEYS, "settings", cls._files())
        fields: dict[str, Any] = {"settings": meta["settings"]}
        for name, columns in cls.COLUMNS.items():
            path = folder / f"{name}.parquet"
            table = read_table(path)
            further = set(table) - set(columns)
            check(set(columns) <= set(table) and (name in cls.OPEN or not further), f"{path} has "
                  f"columns {list(table)}; expected {list(columns)}", ArtifactError)
            fields[name] = Contrasts(table) if name == "contrasts" else table
        result: Any = cls  # the subclass knows its fields
        return result(**fields)

    def said(self) -> list[str]:
        """Say what was found above its controls, by how much and where."""
        return self.contrasts.sentences(self.BEST_PER, self.HEADLINE_ROWS)

    def __repr__(self) -> str:
        sentences = "\n".join(self.said())
        notes = "".join(f"\n{note}" for note in self.caveats)
        return f"{self.name}: {sentences}\n{self.summary().to_string(index=False)}{notes}"

    def _repr_html_(self) -> str:
        sentences = "".join(f"<p>{escape(sentence)}</p>" for sentence in self.said())
        notes = "".join(f"<p><b>{escape(note)}</b></p>" for note in self.caveats)
        return (f"<b>{escape(self.title)}</b>{sentences}{notes}"
                f"{self.summary().to_html(index=False)}{self.figure().to_html(self.title)}")


def named(features: str, model: str = "trained") -> str:
    """Return `row`, `untrained row` or `shuffled row`; of the code the control's name alone."""
    if model == "trained":
        return features
    return model if features == "code" else f"{model} {features}"


def parted(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table with column `model`, one of `MODELS`, and `features` without it."""
    model = table["features"].str.extract(f"^({'|'.join(MODELS[1:])})(?: |$)")[0]
    bare = [features if name not in MODELS else features.removeprefix(name).strip() or "code"
            for features, name in zip(table["features"], model, strict=True)]
    return table.assign(features=bare, model=model.fillna(MODELS[0]))


def where(table: pd.DataFrame, **values: object) -> pd.DataFrame:
    """Return the rows of a table whose columns have these values."""
    for column, value in values.items():
        table = table[table[column] == value]
    return table


def distinct(table: pd.DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    """Return the combinations of values that some columns have, in order of appearance."""
    return list(table[list(columns)].drop_duplicates().itertuples(index=False, name=None))


def blocks(
    table: pd.DataFrame, columns: Sequence[str]
) -> Iterator[tuple[dict[str, Any], pd.DataFrame]]:
    """Yield the rows of each combination of values of some columns, after these values."""
    for key, block in table.groupby(list(columns), sort=False):
        yield dict(zip(columns, key, strict=True)), block


def with_interval(row: Any, column: str = "value", digits: int = 2) -> str:
    """Return a value of a row with its interval, as summaries show it: `0.50 [0.40, 0.60]`.

    The value alone where there is no interval, as of fewer than `LEAST_CLUSTERS` combinations.
    """
    value, low, high = (f"{getattr(row, name):.{digits}f}" for name in (column, "low", "high"))
    return value if low == "nan" else f"{value} [{low}, {high}]"


def load_result(folder: str | Path) -> TableResult:
    """Open a saved result of any kind.

    Args:
        folder: The folder that `save` or `--out` wrote.

    Raises:
        ArtifactError: The folder holds no result, or a damaged one.
        UnknownNameError: It holds a result of a kind that is not known.
    """
    kind = result_kind(folder)
    if kind is None:
        raise ArtifactError(
            f"{folder} holds no result; expected a folder that a result was saved in")
    return kind.load(folder)


def result_kind(folder: str | Path) -> type[TableResult] | None:
    """Return the class of the result that a folder holds, known by its JSON; None without one.

    `UnknownNameError` for a result of a kind that is not known.
    """
    folder = Path(folder)
    for kind in RESULTS:
        if (folder / f"{kind}.json").is_file():
            return result_class(kind)
    for path in sorted(folder.glob("*.json")):
        with suppress(ArtifactError):  # a damaged JSON is no result
            described = read_json(path)
            if isinstance(described, dict) and set(described) == META_KEYS:
                check_choice(f"result in {path}, of format", described["format"],
                             [f"latentcode.{kind}" for kind in RESULTS])
    return None


def result_class(kind: str) -> type[TableResult]:
    """Return the class of a kind of result, one of `RESULTS`."""
    module, name = RESULTS[kind]
    result: type[TableResult] = getattr(import_module(f"latentcode.probes.{module}"), name)
    return result
