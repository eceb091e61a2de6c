"""Prompt tasks: texts, the (query, key) pairs to read in each, and what is known of them.

    {"prompt": "The capital of France is", "query": -1, "key": "France", "label": "capital"}

A line of a JSONL file, or a row of a DataFrame, is one prompt. Needs pandas only.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from latentcode.codes.latent_codes import check_label_names
from latentcode.devices import checked_seed
from latentcode.errors import ArtifactError, SplitError, check, check_choice, check_text
from latentcode.files.storage import rows_in
from latentcode.prompts.messages import check_messages
from latentcode.tasks.pairs import Pair

Position = int | str
"""A token by its index (negative from the end), or the last token of a piece of the prompt."""

SINGLE = "query->key"
"""Name of the pair that the columns `query` and `key` give."""
SPLITS = ("train", "ood")
INFINITE = float("inf"), -float("inf")
PLACES = ("query", "key", "pairs")
ANSWERS = ("answer", "source_answer")
TEXTS = ("prompt", "source", "control")
OBJECTS = (*PLACES, *ANSWERS, *TEXTS, "messages")
READ_OFF = ("query_position", "key_position", "query_token", "key_token", "next_token")
"""Labels that the extraction adds; `query_token_0` and so on where there are several pairs."""


@dataclass(frozen=True)
class Prompts:
    """N prompts, the pairs to read in each of them, and their labels.

    labels     one row per prompt: `prompt`, `combination`, label columns, possibly `split`
    positions  name of a pair -> its (query, key) in every prompt

    `combination` says which prompts belong together: none of them is held out while another is
    trained on, and the bootstrap resamples them as one. By default prompts of equal text do, or, of
    prompts with the columns `operation` and `operands`, those of the same operands; and to a model
    those that have the same tokens (`same_tokens`), whatever their characters. The
    label cannot be what they share, because a held-out label could not be decoded; where prompts
    share a template or a subject, give that, or the intervals come out too narrow.

    chat  whether prompts are lists of messages, kept as JSON, which a model renders (`rendered`)
    """

    labels: pd.DataFrame
    positions: Mapping[str, tuple[tuple[Position, Position], ...]]
    chat: bool = False

    def __len__(self) -> int:
        return len(self.labels)

    @classmethod
    def read(cls, path: str | Path) -> Prompts:
        """Read a JSONL file, one object with the columns of `from_frame` on each line.

        Raises what `from_frame` raises, and `ArtifactError` for a line that is no such object.
        """
        rows = read_rows(Path(path), ".jsonl", '{"prompt": ..., "query": -1, "key": ...}')
        return cls.from_frame(pd.DataFrame(
            # Positions, pairs and answers stay the objects that they are in the file.
            {column: pd.Series([row[column] for row in rows],
                               dtype=object if column in OBJECTS else None)
             for column in (rows[0] if rows else {})}))

    @classmethod
    def from_frame(cls, frame: pd.DataFrame) -> Prompts:
        """Take prompts from a DataFrame with these columns.

        prompt       the text, or messages, [{"role": "user", "content": ...}, ...]; these also in
                     a column `messages`, and `source` and `control` likewise
        query, key   the pair to read: an index of a token as the model's tokenizer counts
                     them (negative from the end), or a piece of the prompt, whose last token counts
        pairs        instead, several pairs by name: {"last->subject": [-1, "France"], ...}
        combination  what belongs together, see `Prompts`
        split        `train` or `ood`; see also `split`
        others       labels: text, whole numbers, or measurements; an `answer` or `source_answer`
                     can be a list, any of which is right, and is kept as JSON

        Raises:
            ConfigError: Names the column or the row that cannot be used.
            SplitError: Prompts of one combination are in different splits.
        """
        check(len(frame) > 0, "there are no prompts; expected at least one")
        frame = frame.reset_index(drop=True)
        frame.columns = frame.columns.map(str)
        if "messages" in frame and "prompt" not in frame:
            frame = frame.rename(columns={"messages": "prompt"})
        check("prompt" in frame, f"prompts have no column 'prompt'; they have "
              f"{list(frame.columns)}")
        given = [column for column in PLACES if column in frame]
        check(given in (["query", "key"], ["pairs"]), f"prompts say with columns {given} which "
              "pairs to read; expected query and key, or pairs")
        chat = isinstance(frame["prompt"][0], list | tuple)
        for column in [name for name in TEXTS if chat and name in frame]:
            frame[column] = [json.dumps(check_messages(messages, f"{column} of row {i}"))
                             for i, messages in enumerate(frame[column])]
        for i, text in enumerate(frame["prompt"]):
            check(isinstance(text, str) and bool(text), f"prompt of row {i} is {text!r}; expected "
                  "text")
            check_text(f"prompt of row {i}", text)
        called = [row_name(i, text) for i, text in enumerate(frame["prompt"])]
        labels = frame.drop(columns=given)
        for answers in [name for name in ANSWERS if name in labels]:
            labels[answers] = [_stored_answer(value, f"{answers} of {name}")
                              for value, name in zip(labels[answers], called, strict=True)]
        check_label_names(labels.columns)
        for label in labels:
            _check_label(str(label), labels[label])
        if "combination" not in labels:
            shared = "operands" if {"operation", "operands"} <= {*labels} else "prompt"
            labels["combination"] = pd.Series(frame.index).groupby(
                labels[shared].to_numpy()).transform("min")
        if "split" in labels:
            for name, split in zip(called, labels["split"], strict=True):
                check_choice(f"split of {name}", split, SPLITS)
            firsts = labels.drop_duplicates(["combination", "split"])
            for combination, alike in firsts[firsts.duplicated("combination", keep=False)].groupby(
                    "combination", sort=False):
                check(False, f"{' and '.join(called[i] for i in alike.index)} are one combination, "
                      f"{combination!r}, and in splits {', '.join(alike['split'])}; expected each "
                      "in one, so that what is held out was never trained on", SplitError)
        pairs = frame["pairs"].tolist() if given == ["pairs"] else [
            {SINGLE: place} for place in zip(frame["query"], frame["key"], strict=True)]
        return cls(labels, _named_pairs(pairs, called), chat)

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """The named pairs. Of several, pair p resolves a label `name` to the column `name_p`."""
        single = len(self.positions) == 1
        return tuple(Pair(name, f"{name} of each prompt", None if single else p)
                     for p, name in enumerate(self.positions))

    @property
    def names(self) -> list[str]:
        """What errors call the prompts: their rows in what was given, from 0, and their texts."""
        return [row_name(row, text) for row, text in self.labels["prompt"].items()]

    def same_tokens(self, ids: Sequence[Sequence[int]]) -> Prompts:
        """Return the prompts, of which those of the same tokens are one combination.

        Args:
            ids: The tokens of each prompt.

        Raises:
            SplitError: Two prompts of the same tokens are in different splits.
        """
        given = self.labels["combination"].tolist()
        together = joined(given, map(tuple, ids))
        if together == given:
            return self
        if "split" in self.labels:
            first: dict[tuple[int, ...], int] = {}
            names, splits = self.names, self.labels["split"].tolist()
            for i, tokens in enumerate(ids):
                j = first.setdefault(tuple(tokens), i)
                check(splits[i] == splits[j], f"{names[j]} and {names[i]} are the same tokens to "
                      f"the model, and in splits {splits[j]} and {splits[i]}; expected them in "
                      "one, so that what is held out was never trained on", SplitError)
        return replace(self, labels=self.labels.assign(combination=together))

    def rendered(self, model: Any) -> Prompts:
        """Return the prompts as text: lists of messages by a `LanguageModel`'s chat template."""
        if not self.chat:
            return self
        return replace(self, chat=False, labels=self.labels.assign(**{
            name: [model.chat(json.loads(messages)) for messages in self.labels[name]]
            for name in TEXTS if name in self.labels}))

    def for_model(self, model: Any, prepend_bos: bool | None = None) -> Prompts:
        """Return the prompts as a model is given them, before they are divided: `same_tokens` of
        its tokens, all of which and whose positions can be read (`tokenize`)."""
        from latentcode.prompts.language_models import as_language_model

        prompts = self.rendered(as_language_model(model))
        return prompts.same_tokens(prompts.tokenize(model, prepend_bos).ids)

    def split(self, heldout: float = 0.3, seed: int = 0, label: str = "label") -> Prompts:
        """Return the prompts with a column `split`: whole combinations are held out as `ood`.

        Args:
            heldout: Share of the combinations.
            seed: Of the draw.
            label: A column, if there is one, of which every value that is held out also occurs in
                training.

        Raises:
            SplitError: Too few can be held out.
        """
        check("split" not in self.labels, "these prompts have a column 'split' already; expected "
              "to divide them by one of the two")
        check(0.0 < heldout < 1.0, f"heldout is {heldout}; expected a number between 0 and 1")
        groups, combinations = pd.factorize(self.labels["combination"])
        values = self.labels[label] if label in self.labels else pd.Series(0, self.labels.index)
        table = pd.crosstab(groups, values.to_numpy()).to_numpy() > 0
        wanted = max(1, round(heldout * len(combinations)))
        left = table.sum(axis=0)
        chosen: list[int] = []
        for group in np.random.default_rng(checked_seed(seed)).permutation(len(combinations)):
            if len(chosen) < wanted and (left - table[group] > 0).all():
                left = left - table[group]
                chosen.append(int(group))
        check(len(chosen) == wanted, f"{wanted} of {len(combinations)} combinations cannot be held "
              f"out (heldout {heldout}) with every {label} left in training, only {len(chosen)}; "
              "hold out fewer, or give more prompts", SplitError)
        split = np.where(np.isin(groups, chosen), "ood", "train")
        return replace(self, labels=self.labels.assign(split=split))

    def rows(self, split: str) -> np.ndarray:
        """Return which prompts a split holds, all where there is no column `split`; `SplitError`
        for a split that none of them is of."""
        if "split" not in self.labels:
            return np.arange(len(self))
        splits = self.labels["split"]
        rows = np.flatnonzero(splits == split)
        check(len(rows) > 0, f"no prompt is of split {split!r}; they are of "
              f"{', '.join(sorted(set(splits)))}", SplitError)
        return rows

    def subset(self, rows: np.ndarray, pairs: Sequence[str] | None = None) -> Prompts:
        """Return some of the prompts, and some of their pairs; `UnknownNameError` for another.

        In errors they keep the numbers of their rows.
        """
        names = tuple(self.positions) if pairs is None else tuple(pairs)
        for name in names:
            check_choice("pair", name, self.positions)
        return Prompts(self.labels.iloc[rows], {
            name: tuple(self.positions[name][row] for row in rows) for name in names}, self.chat)

    def digest(self) -> str:
        """Return a SHA-256 of everything, by which an interrupted extraction knows its prompts."""
        content = repr([self.labels.to_dict("list"), dict(self.positions)])
        return hashlib.sha256(content.encode()).hexdigest()

    def tokenize(self, model: Any, prepend_bos: bool | None = None) -> Tokens:
        """Return the tokens of every prompt, and where its pairs are.

        Args:
            model: A `LanguageModel`, or a bridge.
            prepend_bos: Whether the BOS token is put before them; default: as the tokenizer does.

        Raises:
            ConfigError: A position does not exist, its text is missing or ambiguous, a key comes
                after its query, which a causal model masks, or a prompt is longer than the model's
                context.
        """
        # Imported here, as whoever reads prompts alone needs no torch.
        from latentcode.models.pretrained import is_causal
        from latentcode.prompts.language_models import as_language_model

        model = as_language_model(model)
        if self.chat:
            return self.rendered(model).tokenize(model, prepend_bos)
        model.begins(prepend_bos)
        limit, causal = model.context, is_causal(model.model)
        tokens, places = [], []
        for i, (where, text) in enumerate(zip(self.names, self.labels["prompt"], strict=True)):
            ids, spans = model.encode(text, prepend_bos)
            check(limit is None or len(ids) <= limit, f"{where} has {len(ids)} tokens; expected at "
                  f"most {limit}, the context of the model")
            tokens.append(ids)
            places.append([[_locate(position, text, spans, name, where) for position in pairs[i]]
                           for name, pairs in self.positions.items()])
            for name, (query, key) in zip(self.positions, places[-1], strict=True):
                check(key <= query or not causal, f"pair {name!r} of {where} has key {key} after "
                      f"query {query}; expected a key that the query can see")
        return Tokens(tokens, *np.moveaxis(np.asarray(places, dtype=np.int64), 2, 0))


@dataclass(frozen=True)
class Tokens:
    """Token ids of each prompt, and its query and key positions, int64 [N, P]."""

    ids: Sequence[Sequence[int]]
    query: np.ndarray
    key: np.ndarray


def as_prompts(prompts: Prompts | pd.DataFrame | str | Path) -> Prompts:
    """Return prompts given as such, as a DataFrame or as the path of a JSONL file."""
    if isinstance(prompts, Prompts):
        return prompts
    return (Prompts.from_frame(prompts) if isinstance(prompts, pd.DataFrame)
            else Prompts.read(prompts))


def read_rows(
    path: Path, suffix: str, example: str, text: str | None = None
) -> list[dict[str, Any]]:
    """Return the lines of a file that are not empty (`rows_in`).

    `ArtifactError` for a line that is no object such as `example`, lacks the column `text`, or has
    other columns than the first.
    """
    rows: list[dict[str, Any]] = []
    for where, row, _ in rows_in(path, suffix):
        check(isinstance(row, dict) and (text is None or (
            isinstance(row.get(text), str) and bool(row[text]))), f"{where} is {str(row)[:60]!r}; "
              f"expected an object such as {example}", ArtifactError)
        rows.append(row)
        check(set(row) == set(rows[0]), f"{where} has the columns {sorted(row)}; expected "
              f"{sorted(rows[0])}, those of the first", ArtifactError)
    return rows


def joined(groups: Iterable[Hashable], *identities: Iterable[Hashable]) -> list[Any]:
    """Return the group of each row: the first of those that share an identity, however far.

    Args:
        groups: Of each row.
        identities: Of each row what rows of other groups can have, too, such as its tokens.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    groups = list(groups)
    kinds = [pd.factorize(pd.Series(list(values), dtype=object))[0]
             for values in (groups, *identities)]
    n = len(groups)  # nodes are the rows, and then the values of each kind
    nodes = np.concatenate([n * kind + codes for kind, codes in enumerate(kinds, start=1)])
    rows = np.tile(np.arange(n), len(kinds))
    graph = coo_array((np.ones(len(rows)), (rows, nodes)), shape=(n * (len(kinds) + 1),) * 2)
    _, components = connected_components(graph, directed=False)
    first: dict[int, Any] = {}
    return [first.setdefault(component, group)
            for component, group in zip(components.tolist(), groups, strict=False)]


def row_name(index: object, text: str, kind: str = "row") -> str:
    """Return what errors call a row of prompts or texts."""
    return f"{kind} {index} ({text if len(text) <= 40 else text[:37] + '...'!r})"


def _stored_answer(answer: Any, where: str) -> Any:
    """Return an answer as a label: of a set its members, a list, as JSON."""
    if not isinstance(answer, list | tuple):
        return answer
    check(len(answer) > 0 and all(isinstance(member, str | Integral) for member in answer)
          and len({*answer}) == len(answer), f"{where} is {answer!r:.60}; expected text or ids of "
          "tokens, at least one and none twice")
    return json.dumps([member if isinstance(member, str) else int(member) for member in answer])


def alternatives(answer: Any) -> list[Any]:
    """Return the members of an answer: itself, or those of a list, also one kept as JSON."""
    if isinstance(answer, str) and answer.startswith("["):
        with suppress(ValueError):
            members = json.loads(answer)
            if isinstance(members, list) and members:
                return members
    return list(answer) if isinstance(answer, list | tuple) else [answer]


def _check_label(column: str, values: pd.Series) -> None:
    """Raise `ConfigError` for a column that cannot be a label."""
    check(column.rstrip("0123456789").removesuffix("_") not in READ_OFF, f"a column of "
          f"the prompts is called {column!r}, as what the extraction adds; rename it")
    missing = values.isna().to_numpy()
    check(not missing.any(), f"label {column!r} of row {missing.argmax()} is missing; expected a "
          "value in every row")
    kinds = {type(value).__name__ for value in values}
    check(len(kinds) == 1 and not kinds & {"list", "dict", "tuple"},
          f"label {column!r} has values of type {', '.join(sorted(kinds))}; expected text, whole "
          "numbers or measurements throughout")
    for i, value in enumerate(values):
        if isinstance(value, str):
            check_text(f"label {column!r} of row {i}", value)
        check(not (isinstance(value, Integral) and abs(int(value)) >= 2**63)
              and value not in INFINITE, f"label {column!r} of row {i} is {str(value)[:40]}, which "
              "64 bits cannot say; expected a smaller number, or text")


def _named_pairs(
    pairs: Sequence[Any], called: Sequence[str]
) -> dict[str, tuple[tuple[Position, Position], ...]]:
    """Return the (query, key) of every prompt by the name of the pair."""
    def is_position(value: object) -> bool:
        return bool(value) if isinstance(value, str) else (
            isinstance(value, Integral) and not isinstance(value, bool))

    names = list(pairs[0]) if isinstance(pairs[0], Mapping) else []
    places: dict[str, Any] = {name: [] for name in names}
    for given, where in zip(pairs, called, strict=True):
        check(isinstance(given, Mapping) and bool(given) and set(given) == set(names),
              f"pairs of {where} are {given!r}; expected (query, key) by name"
              + (f", the names {names} as in row 0" if names else ""))
        for name in names:
            pair = given[name]
            check(isinstance(pair, (list, tuple)) and len(pair) == 2 and all(
                map(is_position, pair)), f"pair {name!r} of {where} is {pair!r}; expected [query, "
                "key], each the index of a token, or a piece of the prompt")
            places[name].append(tuple(
                value if isinstance(value, str) else int(value) for value in pair))
    return {name: tuple(placed) for name, placed in places.items()}


def _locate(
    position: Position, text: str, spans: Sequence[tuple[int, int]], name: str, where: str
) -> int:
    """Return the index of a token from 0; a piece of the text means its last token."""
    n = len(spans)
    if isinstance(position, int):
        check(-n <= position < n, f"pair {name!r} of {where} names token {position}; expected "
              f"{-n} to {n - 1}, as it has {n} tokens")
        return position % n
    begin = text.find(position)
    check(begin >= 0, f"pair {name!r} of {where} names the text {position!r}, which does not occur "
          "in the prompt")
    check(text.find(position, begin + 1) < 0, f"pair {name!r} of {where} names the text "
          f"{position!r}, which occurs more than once; give more of the text around it, or the "
          "index of a token")
    last = begin + len(position)
    touching = [t for t, (start, end) in enumerate(spans) if start < last <= end]
    if not touching:  # trailing white space may belong to no token
        touching = [t for t, (start, end) in enumerate(spans) if begin < end <= last]
    check(bool(touching), f"pair {name!r} of {where} names the text {position!r}, for which there "
          "is no token")
    return touching[-1]
