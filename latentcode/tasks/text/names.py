"""What tokens are called: no two of a vocabulary the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Fast


def token_names(fast: Fast, ids: Iterable[int]) -> list[str]:
    """Return the name of each id of a tokenizer of the library `tokenizers`.

    Of byte-level BPE it is the token's text, in which bytes that are only a part of a character are
    written as `<0xE2>`; of any other, the token as the vocabulary has it, such as `▁re` or `##ing`;
    and of an id that the tokenizer lacks, `<id 57>`.
    """
    as_bytes = fast.decoder is not None and b'"ByteLevel"' in fast.decoder.__getstate__()
    added = fast.get_added_tokens_decoder() if as_bytes else {}
    names = []
    for number in ids:
        token = fast.id_to_token(number)
        if token is None:
            names.append(f"<id {number}>")
        else:
            names.append(_of_bytes(token) if as_bytes and number not in added else token)
    return names


def told_apart(pieces: Sequence[str]) -> tuple[str, ...]:
    """Return the texts of all ids, those of several ids, or of no characters, with their id."""
    n = Counter(pieces)
    return tuple(piece if piece and n[piece] == 1 else f"{piece}<id {number}>"
                 for number, piece in enumerate(pieces))


def _of_bytes(token: str) -> str:
    """Return the text of a token of byte-level BPE."""
    known = _bytes()
    if not all(character in known for character in token):
        return token
    text = bytes(known[character] for character in token).decode("utf-8", "surrogateescape")
    return "".join(f"<0x{ord(c) - 0xDC00:02X}>" if 0xDC80 <= ord(c) <= 0xDCFF else c for c in text)


@cache
def _bytes() -> dict[str, int]:
    """Return the bytes that byte-level BPE writes as characters: those that cannot be seen are the
    characters from U+0100 on."""
    seen = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in seen]
    return {chr(byte): byte for byte in seen} | {
        chr(0x100 + i): byte for i, byte in enumerate(others)}
