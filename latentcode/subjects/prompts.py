"""A language model on prompts, at pairs found in texts, or on whole texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from functools import cached_property
from typing import Any

import pandas as pd

from latentcode.codes.reader import Reader, is_code
from latentcode.devices import checked_seed
from latentcode.errors import ConfigError, ProbeError, SplitError, as_tuple, check
from latentcode.files.provenance import package_version
from latentcode.prompts import LanguageModel, Prompts
from latentcode.prompts.codes import PromptSource
from latentcode.prompts.pairs import FACTORS, PromptCounterfactuals
from latentcode.prompts.text_prompts import OWN, pattern_prompts, whole_texts
from latentcode.subjects.base import Subject, check_n, pair_names
from latentcode.tasks.base import Batch
from latentcode.tasks.counterfactuals import Counterfactuals
from latentcode.tasks.pairs import Pair

ANSWER = "answer"
BATCH_SIZE = 32
"""Prompts of one forward pass."""
ASKED = ("label", "operation", "copied", "next_class", "query_class", "key_class")
"""Columns that are asked about where nothing else is: `label`, or what `pattern_prompts` finds."""


class PromptSubject(Subject):
    """A language model on prompts, of which there are only so many.

    Without a column `split`, every split is all of them.
    """

    prompts: Prompts

    def __init__(
        self, model: LanguageModel, prompts: Prompts | None, *, prepend_bos: bool | None = None,
        batch_size: int | None = None,
    ) -> None:
        """prompts  None: a subclass has a property that makes them when they are needed"""
        self.of = model
        if prompts is not None:
            self.prompts = prompts.for_model(model, prepend_bos)
        # Once for all, as the untrained model may have another setting of its own.
        self.prepend_bos = model.begins(prepend_bos)
        self.batch_size = BATCH_SIZE if batch_size is None else batch_size
        self.name = str(model.settings["run"])

    @property
    def settings(self) -> dict[str, Any]:  # type: ignore[override]
        return {**self.of.settings, "dtype": str(next(self.model().parameters()).dtype),
                "prompts": self.prompts.digest(), **self.of.beginning(self.prepend_bos),
                "latentcode_version": package_version("latentcode")}

    @property
    def pairs(self) -> Mapping[str, Pair]:
        return {pair.name: pair for pair in self.prompts.pairs}

    @property
    def probe_labels(self) -> tuple[str, ...]:
        return tuple(name for name in ASKED if name in self.prompts.labels)

    def divided(self, heldout: float, seed: int, label: str) -> Subject:
        if "split" in self.prompts.labels:
            return self
        return PromptSubject(
            self.of, self.prompts.split(heldout, checked_seed(seed), label),
            prepend_bos=self.prepend_bos, batch_size=self.batch_size)

    def n_of(self, name: str, n: int | None, default: int, split: str) -> int:
        there = len(self.prompts.rows(split))
        return there if n is None else min(check_n(name, n), there)

    def model(self, *, untrained: bool = False, seed: int = 0) -> Any:
        return (self.of.untrained(seed) if untrained else self.of).model

    def reader(
        self, split: str, *, n: int, pairs: Sequence[str] | str | None = None,
        layers: Sequence[int] | int | None = None, residuals: bool = False,
        features: Sequence[str] = ("code",), untrained: bool = False, seed: int = 0,
    ) -> Reader:
        seed = checked_seed(seed)
        model = self.of.untrained(seed) if untrained else self.of
        if is_code(features):
            source = PromptSource(model, self._chosen(split, n, pairs),
                                  prepend_bos=self.prepend_bos)
        else:  # features of one pair can be of the keys of all
            source = PromptSource(model, self._chosen(split, n, None), features=features,
                                  prepend_bos=self.prepend_bos, pair=str(pairs))
        return Reader(model.model, source, layers=layers, residuals=residuals,
                      batch_size=self.batch_size, meta={
                          **model.settings, "prompts": self.prompts.digest(),
                          **model.beginning(self.prepend_bos),
                          "latentcode_version": package_version("latentcode"),
                          "untrained": untrained, "seed": seed, "split": self.split_name(split)})

    def _chosen(self, split: str, n: int, pairs: Sequence[str] | str | None) -> Prompts:
        names = pair_names(pairs, self.pairs)
        return self.prompts.subset(self.prompts.rows(split)[:n],
                                   None if names is None else as_tuple(names))

    def row_labels(self, labels: pd.DataFrame, pair: str) -> pd.DataFrame:
        known = [name for name in (*FACTORS, ANSWER) if name in labels]
        return labels[known if FACTORS[0] in known else list(self.probe_labels)].copy()

    def counted(self, n: int, seed: int) -> pd.DataFrame:
        return self.prompts.labels.iloc[self.prompts.rows("train")].reset_index(drop=True)

    def split_name(self, split: str) -> str:
        return split if "split" in self.prompts.labels else "prompts"

    def patched_at_once(self, batch_size: int | None) -> int:
        return self.batch_size if batch_size is None else batch_size

    def instances(self, split: str, n: int, *, seed: int) -> Batch:
        raise ProbeError("labels are functions of a batch, and the problems are prompts; expected "
                         "names of their columns, such as a column label")

    def known_labels(self, split: str, *, seed: int) -> list[str]:
        return [*map(str, self.prompts.labels), "next_token", *(
            f"{role}_{what}{suffix}" for suffix in (
                ("",) if len(self.pairs) == 1 else (f"_{p}" for p in range(len(self.pairs))))
            for role in ("query", "key") for what in ("position", "token"))]

    def counterfactuals(
        self, *, factorial: bool = True, among: str = "vocabulary"
    ) -> Counterfactuals:
        return PromptCounterfactuals(
            self.of, self.prompts, factorial=factorial, among=among,  # type: ignore[arg-type]
            prepend_bos=self.prepend_bos)


class TextSubject(PromptSubject):
    """A language model on texts, in which pairs are found by pattern (`pattern_prompts`).

    Where all labels that are asked about are columns of the texts, the problems are the whole texts
    (`about`).
    """

    def __init__(
        self, model: LanguageModel, texts: Sequence[str] | pd.DataFrame, *,
        prepend_bos: bool | None = None, batch_size: int | None = None,
    ) -> None:
        super().__init__(model, None, prepend_bos=prepend_bos, batch_size=batch_size)
        self.texts, self._given_bos = texts, prepend_bos

    @cached_property
    def prompts(self) -> Prompts:  # type: ignore[override]
        return pattern_prompts(self.of, self.texts, prepend_bos=self._given_bos)

    def about(self, labels: Sequence[str]) -> Subject:
        columns = ([str(name) for name in self.texts if name not in OWN]
                   if isinstance(self.texts, pd.DataFrame) else [])
        whole = [name for name in labels if name in columns]
        if not whole:
            return self
        others = [name for name in labels if name not in columns]
        check(not others, f"labels {', '.join(whole)} are of whole texts, and {', '.join(others)} "
              f"not; expected labels of texts alone ({', '.join(columns)}), or of tokens in them",
              ConfigError)
        return WholeTextSubject(self.of, self.texts, whole, prepend_bos=self._given_bos,
                                batch_size=self.batch_size)


class WholeTextSubject(PromptSubject):
    """A language model on whole texts (`whole_texts`), of which labels are asked."""

    whole_texts = True

    def __init__(
        self, model: LanguageModel, texts: Sequence[str] | pd.DataFrame, labels: Sequence[str], *,
        prepend_bos: bool | None = None, batch_size: int | None = None,
    ) -> None:
        super().__init__(model, whole_texts(model, texts, prepend_bos=prepend_bos),
                         prepend_bos=prepend_bos, batch_size=batch_size)
        self.asked = tuple(labels)

    @property
    def default_pairs(self) -> tuple[str, ...]:
        return tuple(self.pairs)[:1]

    @property
    def probe_labels(self) -> tuple[str, ...]:
        return self.asked

    def divided(self, heldout: float, seed: int, label: str) -> Subject:
        """As `Subject.divided`; `SplitError` for a label that could not be scored: one with a class
        of a single document, and one of which what is held out has a single class."""
        labels = self.prompts.labels
        varied = [name for name in self.asked
                  if labels[name].dtype.kind != "f" and labels[name].nunique() > 1]
        if "split" not in labels:
            for name in varied:
                for value, of in labels.groupby(name, sort=False)["combination"]:
                    check(of.nunique() > 1, f"label {name!r}: all texts of class {value!r} are of "
                          f"one document, {of.iloc[0]!r}; expected two documents of each class at "
                          "least, one to fit on and one to score: leave these texts out, or give "
                          "more", SplitError)
        divided = copy(self)
        divided.prompts = (self.prompts if "split" in labels
                           else self.prompts.split(heldout, seed, label))
        scored = divided.prompts.labels.iloc[divided.prompts.rows("ood")]
        for name in varied:
            values = scored[name].unique()
            check(len(values) > 1, f"label {name!r}: all {len(scored)} held-out texts are of class "
                  f"{values[0]!r} (documents {_named(scored['combination'])}); expected two "
                  "classes at least, or a constant answer is always right: hold out others "
                  "(seed=), more (heldout=), or give more documents", SplitError)
        return divided

    def tokens_of(self, split: str, *, n: int) -> Sequence[Sequence[int]]:
        return self._chosen(split, n, None).tokenize(self.of, self.prepend_bos).ids


def _named(documents: pd.Series) -> str:
    names = [str(name) for name in documents.unique()]
    return ", ".join(names[:4]) + (" and others" if len(names) > 4 else "")
