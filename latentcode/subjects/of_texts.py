"""A language model on texts: at pairs found in them, or on each as a whole."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from functools import cached_property

import pandas as pd

from latentcode.errors import ConfigError, SplitError, check
from latentcode.prompts import LanguageModel, Prompts
from latentcode.prompts.patterns import pattern_prompts
from latentcode.prompts.whole_texts import OWN, whole_texts
from latentcode.subjects.base import Subject
from latentcode.subjects.of_prompts import PromptSubject


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
