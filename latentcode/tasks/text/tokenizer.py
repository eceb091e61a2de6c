"""Tokenizers: trained on a text or loaded, and names of their tokens."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from latentcode.errors import ConfigError, HubError, LatentCodeError, check

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Fast

END = "<|endoftext|>"
"""The token that ends a document in tokenizers that are trained here."""
ENDS = (END, "</s>", "<eos>", "<|end_of_text|>", "[SEP]")
"""What ends a text in tokenizers that do not say it themselves."""
FILE, SETTINGS = "tokenizer.json", "tokenizer_config.json"
TRAINED_ON = 2**25
"""Characters, the first ones, that a tokenizer is trained on."""
LEAST = 257
"""All bytes, and the end of a document."""
HERE = ("a folder or file of text that is here, as task.text (`latentcode zoo text packages "
        "FOLDER` writes one)")


@runtime_checkable
class Tokenizer(Protocol):
    """Text into token ids and back.

    n_tokens  number of ids that it gives out, special ones included
    end       the id that ends a document
    pieces    the text of every id; parts of characters are shown as \\ufffd
    names     the name of every id, no two the same
    """

    @property
    def n_tokens(self) -> int: ...

    @property
    def end(self) -> int: ...

    @property
    def pieces(self) -> tuple[str, ...]: ...

    @property
    def names(self) -> tuple[str, ...]: ...

    def encode(self, texts: list[str]) -> list[list[int]]:
        """Return the ids of every text, without special ones."""

    def locate(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Return the ids of a text, and the characters (first, last + 1) that each stands for."""

    def decode(self, ids: list[int]) -> str:
        """Return the text of ids."""


class FileTokenizer:
    """A tokenizer of the library `tokenizers`; see the protocol `Tokenizer`.

    Args:
        fast: The tokenizer of the library, whose truncation and padding are switched off.
        name: Its name in errors.
        end: The token that ends a document; None: the first of `ENDS` that it has.

    Raises:
        ConfigError: No token ends a document.
    """

    def __init__(self, fast: Fast, name: str, end: str | None = None) -> None:
        ids = fast.get_vocab(with_added_tokens=True)
        end_token = next((token for token in (end, *ENDS) if token in ids), None)
        if end_token is None:
            raise ConfigError(f"{name} has no token that ends a document; expected eos_token in "
                              f"its {SETTINGS}, or one of: {', '.join(ENDS)}")
        self.fast, self.name, self.end_token = fast, name, end_token
        self.end: int = ids[end_token]
        fast.encode_special_tokens = True  # a document that says "</s>" does not end there
        fast.no_truncation()
        fast.no_padding()

    @property
    def n_tokens(self) -> int:
        return max(self.fast.get_vocab(with_added_tokens=True).values()) + 1

    @cached_property
    def pieces(self) -> tuple[str, ...]:
        tokens = [self.fast.id_to_token(number) or "" for number in range(self.n_tokens)]
        # SentencePiece's space, which decoding would drop.
        return tuple(token.replace("\u2581", " ") if token.startswith("\u2581") else
                     token and self.decode([number]) for number, token in enumerate(tokens))

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(token_names(self.fast, range(self.n_tokens)))

    def encode(self, texts: list[str]) -> list[list[int]]:
        return [encoding.ids for encoding in self.fast.encode_batch_fast(
            texts, add_special_tokens=False)]

    def locate(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        encoding = self.fast.encode(text, add_special_tokens=False)
        return list(encoding.ids), list(encoding.offsets)

    def decode(self, ids: list[int]) -> str:
        text: str = self.fast.decode(ids, skip_special_tokens=False)
        return text

    def to_json(self) -> str:
        """Return what `tokenizer_from` reads: the tokenizer as the library writes it."""
        return self.fast.to_str(pretty=False)


def trained_tokenizer(texts: Iterable[str], n_vocabulary: int) -> FileTokenizer:
    """Train byte-level BPE of at most `n_vocabulary` tokens, the end of a document being 0."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    check(n_vocabulary >= LEAST, f"task.n_vocabulary is {n_vocabulary}; expected at least {LEAST} "
          "to train a tokenizer: all bytes, and the end of a document")

    def first_texts() -> Iterator[str]:
        characters = 0
        for text in texts:
            yield text
            characters += len(text)
            if characters >= TRAINED_ON:
                return

    fast = Tokenizer(models.BPE())
    fast.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    fast.decoder = decoders.ByteLevel()
    fast.train_from_iterator(first_texts(), trainers.BpeTrainer(
        vocab_size=n_vocabulary, special_tokens=[END], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return FileTokenizer(fast, "the trained tokenizer", END)


def load_tokenizer(name: str, n_vocabulary: int) -> FileTokenizer:
    """Open a tokenizer's file, its folder, or one on the hub.

    Raises:
        ConfigError: It is no tokenizer, has more tokens than n_vocabulary, or none that ends a
            document.
        HubError: The hub has none of that name, or cannot be reached.
    """
    path = Path(name).expanduser()
    settings: Path | None
    if path.exists():
        file = path / FILE if path.is_dir() else path
        check(file.is_file(), f"task.tokenizer is {name!r}, a folder without {FILE}")
        settings = file.with_name(SETTINGS)
    else:
        file, settings = _downloaded(name)
    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"task.tokenizer is {name!r}, whose file cannot be read: {error}"
                          ) from None
    try:
        end = json.loads((settings or Path()).read_text(encoding="utf-8-sig")).get("eos_token")
    except (OSError, ValueError, AttributeError):
        end = None
    end = end.get("content") if isinstance(end, dict) else end  # with its flags, or bare
    tokenizer = tokenizer_from(text, f"tokenizer {name}", end if isinstance(end, str) else None)
    check_vocabulary(tokenizer, n_vocabulary)
    return tokenizer


def _downloaded(name: str) -> tuple[Path, Path | None]:
    """Return the file of a tokenizer on the hub, and that of its settings, if it has one."""
    from huggingface_hub import HfApi, errors, hf_hub_download

    with one_sentence(name, "tokenizer", f"a {FILE} that is here, as task.tokenizer"):
        try:
            file = Path(hf_hub_download(name, FILE, local_files_only=True))
        except errors.LocalEntryNotFoundError:
            HfApi().model_info(name)  # says at once that there is no network; a download waits
            file = Path(hf_hub_download(name, FILE))
        try:
            # Of the same commit, which the folder is named after.
            return file, Path(hf_hub_download(name, SETTINGS, revision=file.parent.name))
        except errors.EntryNotFoundError:
            return file, None


def tokenizer_from(text: str, name: str, end: str | None = None) -> FileTokenizer:
    """Return the tokenizer that JSON describes; `ConfigError` where it describes none."""
    from tokenizers import Tokenizer

    try:
        fast = Tokenizer.from_str(text)
    except Exception as error:  # the library raises no class of its own
        raise ConfigError(f"{name} is no tokenizer ({' '.join(str(error).split())[:120]}); "
                          f"expected a {FILE} of the library tokenizers") from None
    return FileTokenizer(fast, name, end)


def check_vocabulary(tokenizer: FileTokenizer, n_vocabulary: int) -> None:
    """Raise `ConfigError` for a tokenizer with more tokens than a model has."""
    check(tokenizer.n_tokens <= n_vocabulary, f"{tokenizer.name} has {tokenizer.n_tokens:,} "
          f"tokens; expected at most task.n_vocabulary = {n_vocabulary:,}")


def token_names(fast: Fast, ids: Iterable[int]) -> list[str]:
    """Return the name of each id of a tokenizer of the library `tokenizers`.

    Of byte-level BPE it is the token's text, in which bytes that are only a part of a character are
    written as `<0xE2>`; of any other, the token as the vocabulary has it, such as `▁re` or `##ing`;
    and of an id that the tokenizer lacks, `<id 57>`.
    """
    is_byte_level = fast.decoder is not None and b'"ByteLevel"' in fast.decoder.__getstate__()
    added = fast.get_added_tokens_decoder() if is_byte_level else {}
    # Byte-level BPE writes bytes that cannot be seen as the characters from U+0100 on.
    seen = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    unseen = [byte for byte in range(256) if byte not in seen]
    byte_of = {chr(byte): byte for byte in seen} | {
        chr(0x100 + i): byte for i, byte in enumerate(unseen)}
    names = []
    for number in ids:
        token = fast.id_to_token(number)
        if token is None:
            token = f"<id {number}>"
        elif is_byte_level and number not in added and all(c in byte_of for c in token):
            text = bytes(byte_of[c] for c in token).decode("utf-8", "surrogateescape")
            token = "".join(f"<0x{ord(c) - 0xDC00:02X}>" if 0xDC80 <= ord(c) <= 0xDCFF else c
                            for c in text)
        names.append(token)
    return names


@contextmanager
def one_sentence(name: str, what: str = "dataset", here: str = HERE) -> Iterator[None]:
    """Turn errors of `datasets`, the hub and the network into `HubError` or `ConfigError`.

    Args:
        name: Name of the text or tokenizer that is read.
        what: Its kind.
        here: Something on this machine that is expected in its place.
    """
    try:
        yield
    except LatentCodeError:
        raise
    except Exception as error:  # `datasets` lets out those of a dozen libraries
        from datasets.exceptions import DatasetNotFoundError
        from huggingface_hub import errors

        from latentcode.hub import unreachable

        message = shorten(str(error), 160, placeholder=" …") or type(error).__name__
        missing = (DatasetNotFoundError, errors.RepositoryNotFoundError,
                   errors.RemoteEntryNotFoundError, errors.HFValidationError)
        if isinstance(error, missing):
            raise HubError(f"{what} {name!r} is neither here nor on the hub, or needs a token "
                           f"(`hf auth login`); expected its name, or {here}") from None
        if isinstance(error, (*unreachable(), ConnectionError, TimeoutError)):
            raise HubError(f"{what} {name!r} is not here, and the hub cannot be reached "
                           f"({message}); expected a network, or {here}") from None
        raise ConfigError(f"{what} {name!r} cannot be read: {message}") from None
