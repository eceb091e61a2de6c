"""The tokens of a prompt beside another, and of what comes after it."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from typing import Any

from latentcode.errors import check
from latentcode.prompts import LanguageModel


def matching(
    model: LanguageModel, column: str, text: object, ids: Sequence[int], name: str,
    prepend_bos: bool | None,
) -> list[int]:
    """Return the tokens of a prompt that goes with another, of which it has as many."""
    check(isinstance(text, str) and bool(text), f"{column} of {name} is {text!r}; expected text")
    other, _ = model.encode(str(text), prepend_bos)
    check(len(other) == len(ids), f"{column} of {name} has {len(other)} tokens "
          f"{model.texts(other)}, the prompt {len(ids)} {model.texts(ids)}; expected as many")
    check(list(other) != list(ids), f"{column} of {name} is the prompt itself; expected another")
    return list(other)


def next_token(
    model: LanguageModel, column: str, answer: Any, prompt: str, ids: list[int], name: str,
    prepend_bos: bool | None,
) -> int:
    """Return the token that an answer is after a prompt."""
    size = model.vocabulary
    if isinstance(answer, Integral) and not isinstance(answer, bool):
        check(0 <= int(answer) < size, f"{column} of {name} is token {answer}; expected 0 to "
              f"{size - 1}")
        return int(answer)
    check(isinstance(answer, str) and bool(answer), f"{column} of {name} is {answer!r}; expected "
          "text, or the id of a token")
    longer, _ = model.encode(prompt + answer, prepend_bos)
    check(longer[:len(ids)] == ids, f"{column} {answer!r} of {name} changes the tokens of the "
          f"prompt that it follows, {model.texts(ids)}, into {model.texts(longer)}; expected "
          "an answer that begins with the space before it, or the id of a token")
    after = longer[len(ids):]
    check(len(after) == 1, f"{column} {answer!r} of {name} is {len(after)} tokens "
          f"{model.texts(after)}; expected one, or the id of a token")
    return after[0]
