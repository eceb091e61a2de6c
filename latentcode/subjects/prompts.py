"""A language model on prompts, at pairs found in texts, or on whole texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from functools import cached_property
from typing import Any

import pandas as pd

from latentcode.codes.reader import Reader, is_code
from latentcode.devices import checked_seed
from latentcode.errors import ConfigError, SplitError, as_tuple, check
from latentcode.files.provenance import package_version
from latentcode.prompts import LanguageModel, Prompts
from latentcode.prompts.codes import PromptSource
from latentcode.prompts.pairs import PromptCounterfactuals
from latentcode.prompts.text_prompts import OWN, pattern_prompts, whole_texts
from latentcode.subjects.base import Subject, at_most, pair_names
from latentcode.tasks.counterfactuals import Counterfactuals
from latentcode.tasks.pairs import Pair

BATCH_SIZE = 32
"""Prompts of one forward pass."""
PROMPTS = "prompts"
"""What the split of prompts without splits is called."""
PROBED = ("label", "operation", "copied", "next_class", "query_class", "key_class")
"""Columns that are probed by default: `label`, or what `pattern_prompts` finds."""


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
        self.language_model = model
        if prompts is not None:
            self.prompts = prompts.for_model(model, prepend_bos)
        # Once for all, as the untrained model may have another setting of its own.
        self.prepend_bos = model.begins(prepend_bos)
        self.batch_size = self.patched_at_once = BATCH_SIZE if batch_size is None else batch_size
        self.name = str(model.settings["run"])

    @property
    def settings(self) -> dict[str, Any]:  # type: ignore[override]
        model = self.language_model
        return {**model.settings, "dtype": str(next(model.model.parameters()).dtype),
                "prompts": self.prompts.digest(), **model.beginning(self.prepend_bos),
                "latentcode_version": package_version("latentcode")}

    @property
    def pairs(self) -> Mapping[str, Pair]:  # type: ignore[override]
        return {pair.name: pair for pair in self.prompts.pairs}

    @property
    def default_pairs(self) -> tuple[str, ...]:  # type: ignore[override]
        return tuple(self.pairs)[:1] if self.whole_texts else tuple(self.pairs)

    @property
    def probe_labels(self) -> tuple[str, ...]:  # type: ignore[override]
        return tuple(name for name in PROBED if name in self.prompts.labels)

    @property
    def has_splits(self) -> bool:  # type: ignore[override]
        return "split" in self.prompts.labels

    @property
    def label_names(self) -> list[str]:
        """The labels that a reader gives: columns, `next_token`, and those of the pairs' tokens."""
        suffixes = [""] if len(self.pairs) == 1 else [f"_{p}" for p in range(len(self.pairs))]
        return [*map(str, self.prompts.labels), "next_token", *(
            f"{role}_{what}{suffix}" for suffix in suffixes
            for role in ("query", "key") for what in ("position", "token"))]

    def divided(self, heldout: float, seed: int, label: str) -> Subject:
        if self.has_splits:
            return self
        return PromptSubject(
            self.language_model, self.prompts.split(heldout, checked_seed(seed), label),
            prepend_bos=self.prepend_bos, batch_size=self.batch_size)

    def n_of(self, name: str, n: int | None, default: int, split: str) -> int:
        return at_most(name, n, len(self.prompts.rows(split)))

    def model(self, *, untrained: bool = False, seed: int = 0) -> Any:
        return self._opened(untrained, seed).model

    def _opened(self, untrained: bool, seed: int) -> LanguageModel:
        return self.language_model.untrained(seed) if untrained else self.language_model

    def reader(
        self, split: str, *, n: int, pairs: Sequence[str] | str | None = None,
        layers: Sequence[int] | int | None = None, residuals: bool = False,
        features: Sequence[str] = ("code",), untrained: bool = False, seed: int = 0,
    ) -> Reader:
        seed = checked_seed(seed)
        model = self._opened(untrained, seed)
        many = is_code(features)  # other features, of one pair, can be of the keys of all
        names = pair_names(pairs, self.pairs) if many else None
        prompts = self.prompts.subset(self.prompts.rows(split)[:n],
                                      None if names is None else as_tuple(names))
        source = PromptSource(model, prompts, features=features, prepend_bos=self.prepend_bos,
                              pair=None if many else str(pairs))
        return Reader(model.model, source, layers=layers, residuals=residuals,
                      batch_size=self.batch_size, meta={
                          **model.settings, "prompts": self.prompts.digest(),
                          **model.beginning(self.prepend_bos),
                          "latentcode_version": package_version("latentcode"),
                          "untrained": untrained, "seed": seed,
                          "split": split if self.has_splits else PROMPTS})

    def counterfactuals(
        self, *, factorial: bool = True, among: str = "vocabulary"
    ) -> Counterfactuals:
        return PromptCounterfactuals(
            self.language_model, self.prompts, factorial=factorial, among=among,  # type: ignore[arg-type]
            prepend_bos=self.prepend_bos)


class TextSubject(PromptSubject):
    """A language model on texts, in which pairs are found by pattern (`pattern_prompts`).

    Where all labels that are asked about are columns of the texts, the problems are the whole texts
    (`about`).
    """

    def __init__(
        self, model: LanguageModel, texts: pd.DataFrame, *, prepend_bos: bool | None = None,
        batch_size: int | None = None,
    ) -> None:
        super().__init__(model, None, prepend_bos=prepend_bos, batch_size=batch_size)
        self.texts, self._given_bos = texts, prepend_bos

    @cached_property
    def prompts(self) -> Prompts:  # type: ignore[override]
        return pattern_prompts(self.language_model, self.texts, prepend_bos=self._given_bos)

    def about(self, labels: Sequence[str]) -> PromptSubject:
        """Return the subject that has these labels: this one, or one on whole texts."""
        columns = [str(name) for name in self.texts if name not in OWN]
        whole = [name for name in labels if name in columns]
        if not whole:
            return self
        others = [name for name in labels if name not in columns]
        check(not others, f"labels {', '.join(whole)} are of whole texts, and {', '.join(others)} "
              f"not; expected labels of texts alone ({', '.join(columns)}), or of tokens in them",
              ConfigError)
        return WholeTextSubject(self.language_model, self.texts, whole, prepend_bos=self._given_bos,
                                batch_size=self.batch_size)


class WholeTextSubject(PromptSubject):
    """A language model on whole texts (`whole_texts`), of which labels are asked."""

    whole_texts = True

    def __init__(
        self, model: LanguageModel, texts: pd.DataFrame, labels: Sequence[str], *,
        prepend_bos: bool | None = None, batch_size: int | None = None,
    ) -> None:
        super().__init__(model, whole_texts(model, texts, prepend_bos=prepend_bos),
                         prepend_bos=prepend_bos, batch_size=batch_size)
        self.labels = tuple(labels)

    @property
    def probe_labels(self) -> tuple[str, ...]:  # type: ignore[override]
        return self.labels

    def divided(self, heldout: float, seed: int, label: str) -> Subject:
        """As `Subject.divided`; `SplitError` for a label that could not be scored: one with a class
        of a single document, and one of which what is held out has a single class."""
        labels = self.prompts.labels
        varied = [name for name in self.labels
                  if labels[name].dtype.kind != "f" and labels[name].nunique() > 1]
        if not self.has_splits:
            for name in varied:
                for value, documents in labels.groupby(name, sort=False)["combination"]:
                    check(documents.nunique() > 1, f"label {name!r}: all texts of class {value!r} "
                          f"are of one document, {documents.iloc[0]!r}; expected two documents "
                          "of each class at least, one to fit on and one to score: leave these "
                          "texts out, or give more", SplitError)
        divided = copy(self)
        divided.prompts = (self.prompts if self.has_splits
                           else self.prompts.split(heldout, seed, label))
        scored = divided.prompts.labels.iloc[divided.prompts.rows("ood")]
        for name in varied:
            values = scored[name].unique()
            check(len(values) > 1, f"label {name!r}: all {len(scored)} held-out texts are of class "
                  f"{values[0]!r} (documents {_named(scored['combination'])}); expected two "
                  "classes at least, or a constant answer is always right: hold out others "
                  "(seed=), more (heldout=), or give more documents", SplitError)
        return divided


def _named(documents: pd.Series) -> str:
    names = [str(name) for name in documents.unique()]
    return ", ".join(names[:4]) + (" and others" if len(names) > 4 else "")
