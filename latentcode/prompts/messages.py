"""Messages of a chat, which a tokenizer's chat template renders as a prompt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from latentcode.errors import check

Messages = Sequence[Mapping[str, str]]
"""A conversation, {"role": ..., "content": ...} each."""


def is_messages(prompt: object) -> bool:
    """Whether a prompt is a list of messages, and not text or ids of tokens."""
    return isinstance(prompt, list | tuple) and len(prompt) > 0 and isinstance(prompt[0], Mapping)


def check_messages(messages: Any, where: str = "the prompt") -> list[dict[str, str]]:
    """Return messages as they are; `ConfigError` for anything else."""
    check(is_messages(messages) and all(
        isinstance(message, Mapping) and all(isinstance(message.get(key), str)
                                             for key in ("role", "content"))
        for message in messages), f"{where} is {messages!r:.80}; expected text, or messages: "
        "[{'role': 'user', 'content': ...}, ...]")
    return [dict(message) for message in messages]
