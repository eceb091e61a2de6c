"""Texts as prompts: pairs found by pattern, or whole texts with labels of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch

from latentcode.devices import checked_seed
from latentcode.errors import check, check_count
from latentcode.prompts.language_models import as_language_model
from latentcode.prompts.prompts import Prompts, joined, row_name
from latentcode.tasks.text.tokens import (
    PATTERNS,
    keys_at,
    possible_queries,
    token_labels,
)

TEXT, DOCUMENT = "text", "document"
OWN = (TEXT, DOCUMENT, "split")
"""Columns that are no labels."""
PAIRS = {"last->previous": (-1, -2), "last->first": (-1, 0), "last->self": (-1, -1)}
"""Pairs of the last token, which has seen the whole text."""
LARGEST = 2**31
"""Bytes of one layer's pattern of a single text."""


def pattern_prompts(
    model: Any,
    texts: Sequence[str] | pd.DataFrame,
    *,
    pairs: Sequence[str] | None = None,
    per_text: int = 4,
    longest: int = 256,
    seed: int = 0,
    prepend_bos: bool | None = None,
) -> Prompts:
    """Make prompts of tokens that were seen before in their text.

    A prompt is a text up to a token, drawn at random among those for which every pattern has a
    key and no two the same, and which the tokenizer still ends with that token when the rest is
    left out; of texts that begin alike, a prompt that both have is taken of the first alone.
    Labels are those of `token_labels`, and `target`, the text of the token that comes next in fact.

    model     as in `as_language_model`; its tokenizer is used alone
    texts     the texts, or a DataFrame with a column `text`, whose other columns (such as `kind`
              and `source`) become labels; texts of one `document`, and those that are the same
              tokens up to `longest`, or the same but for white space, are one combination
    pairs     names of patterns (`latentcode.tasks.text.tokens.PATTERNS`); default: all
    per_text  prompts made of one text at most, which are one combination, too
    longest   tokens of a text that are read at most
    prepend_bos  as in `subject`, to be given there, too

    `ConfigError` for texts none of which has such a token; `UnknownNameError` for a pattern.
    """
    check_count("per_text", per_text)
    frame, language_model = _framed(texts), as_language_model(model)
    names = tuple(PATTERNS) if pairs is None else tuple(pairs)
    most = min(longest, language_model.context or longest)
    encoded = [language_model.encode(text, prepend_bos) for text in frame["text"]]
    documents = documents_of(frame, [ids[:most] for ids, _ in encoded])
    tokens = [torch.tensor([ids[:most + 1]], dtype=torch.int64) for ids, _ in encoded]
    document_of: dict[tuple[int, ...], Any] = {}
    rng = np.random.default_rng(checked_seed(seed))
    frames: list[pd.DataFrame] = []
    for row, (ids, (_, spans)) in enumerate(zip(tokens, encoded, strict=True)):
        text = str(frame.at[row, "text"])
        possible = possible_queries(ids[:, :-1])[0].nonzero()[:, 0].numpy()
        chosen: list[int] = []
        for query in rng.permutation(possible).tolist():
            if len(chosen) == per_text:
                break
            shorter, _ = language_model.encode(text[:spans[query][1]], prepend_bos)
            if shorter == ids[0, :query + 1].tolist() and (
                    document_of.setdefault(tuple(shorter), documents[row]) == documents[row]):
                chosen.append(query)
        if chosen:
            given = {str(name): value for name, value in frame.loc[row].items() if name != TEXT}
            query = torch.tensor(sorted(chosen))
            several = ids.expand(len(query), -1)
            places: list[Any] = [
                {name: (q, key) for name, key in zip(names, keys, strict=True)} for q, keys in zip(
                    query.tolist(), keys_at(several, query, names).tolist(), strict=True)]
            frames.append(token_labels(several, query, language_model.table).assign(
                prompt=[text[:spans[q][1]] for q in query], pairs=places,
                target=language_model.texts(ids[0, query + 1].tolist()),
                **{"combination": documents[row], **given}))
    check(len(frames) > 0, f"none of {len(frame)} texts has a token with a key of every pattern "
          f"({', '.join(PATTERNS)}); expected longer ones")
    return Prompts.from_frame(pd.concat(frames, ignore_index=True))


def whole_texts(
    model: Any, texts: pd.DataFrame | Sequence[str], *, prepend_bos: bool | None = None
) -> Prompts:
    """Make prompts of whole texts, to be read at `PAIRS`.

    The `combination` is the document; documents that share a text are one: the same tokens, or the
    same characters apart from white space.

    model     as in `as_language_model`; its tokenizer is used, and the size of its patterns
    texts     the texts, or a DataFrame with a column `text`, perhaps `document` (what it is part
              of; default: each text is a document), `split` (`train` or `ood`), and labels
    prepend_bos  as in `subject`, to be given there, too

    `ConfigError` names a text that is empty, has a single token, is longer than the model's context
    or whose pattern is larger than `LARGEST`; `SplitError` two of a document in both splits.
    """
    frame, language_model = _framed(texts), as_language_model(model)
    for column in ("combination", "prompt"):
        check(column not in frame, f"texts have a column {column!r}; expected {DOCUMENT!r} for "
              f"what belongs together, and the text in {TEXT!r}")
    heads = int(language_model.model.cfg.n_heads)
    limit = language_model.context
    tokens: list[Sequence[int]] = []
    for i, text in enumerate(frame[TEXT]):
        check(isinstance(text, str) and bool(text.strip()), f"text of row {i} is {text!r}; "
              "expected text")
        tokens.append(language_model.encode(text, prepend_bos)[0])
        n, where = len(tokens[-1]), f"text of {row_name(i, text)}"
        check(n > 1, f"{where} has a single token; expected two at least")
        check(limit is None or n <= limit, f"{where} has {n} tokens; expected at most {limit}, the "
              f"context of the model: cut it, or give its parts a row each with the same "
              f"{DOCUMENT!r}")
        size = 4 * heads * n**2
        check(size <= LARGEST, f"{where} has {n} tokens, and the pattern of a layer "
              f"{size / 2**30:.1f} GiB; expected at most {LARGEST / 2**30:.0f} GiB: give its parts "
              f"a row each with the same {DOCUMENT!r}")
    pairs: list[Any] = [PAIRS] * len(frame)
    return Prompts.from_frame(frame.rename(columns={TEXT: "prompt"}).assign(
        combination=documents_of(frame, tokens), pairs=pairs))


def _framed(texts: pd.DataFrame | Sequence[str]) -> pd.DataFrame:
    """Return texts as rows, counted from 0."""
    frame = texts if isinstance(texts, pd.DataFrame) else pd.DataFrame({TEXT: list(texts)})
    check(TEXT in frame, f"texts have no column {TEXT!r}; they have {list(frame.columns)}")
    check(len(frame) > 0, "there are no texts; expected at least one")
    return frame.reset_index(drop=True)


def documents_of(frame: pd.DataFrame, tokens: Sequence[Sequence[int]]) -> list[Any]:
    """Return the document of every text, by the name of the first of those that share a text.

    tokens  of each text, as far as a model reads it
    """
    given = frame[DOCUMENT] if DOCUMENT in frame else pd.Series(range(len(frame)))
    check(not given.isna().any(), f"the document of row {int(given.isna().argmax())} is missing; "
          "expected one for every text, or no such column")
    return joined(given, map(tuple, tokens),
                  frame[TEXT].map(lambda text: " ".join(str(text).split())))
