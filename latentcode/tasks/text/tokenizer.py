"""Text into token ids and back: a tokenizer that is trained on the text, or one that is given."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from latentcode.config import LanguageConfig
from latentcode.errors import ConfigError, check
from latentcode.files.storage import write_text
from latentcode.tasks.text.cache import cache_folder, digest_of, made_once
from latentcode.tasks.text.failures import one_sentence
from latentcode.tasks.text.names import token_names

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


class FileTokenizer:
    """A tokenizer of the library `tokenizers`; see the protocol `data.Tokenizer`.

    end  the token that ends a document; None: the first of `ENDS` that it has
    name  what to call it in errors

    `ConfigError` where no token ends a document.
    """

    def __init__(self, fast: Fast, name: str, end: str | None = None) -> None:
        known = fast.get_vocab(with_added_tokens=True)
        found = next((token for token in (end, *ENDS) if token in known), None)
        if found is None:
            raise ConfigError(f"{name} has no token that ends a document; expected eos_token in "
                              f"its {SETTINGS}, or one of: {', '.join(ENDS)}")
        self.fast, self.name, self.end_token = fast, name, found
        self.end: int = known[found]
        fast.encode_special_tokens = True  # a document that says "</s>" does not end there
        fast.no_truncation()
        fast.no_padding()

    @property
    def n_tokens(self) -> int:
        return max(self.fast.get_vocab(with_added_tokens=True).values()) + 1

    @cached_property
    def pieces(self) -> tuple[str, ...]:
        return tuple(self._piece(number) for number in range(self.n_tokens))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """What every id is called, no two the same (`token_names`)."""
        return tuple(token_names(self.fast, range(self.n_tokens)))

    def _piece(self, number: int) -> str:
        token = self.fast.id_to_token(number)
        if token is None:
            return ""
        if token.startswith("\u2581"):  # SentencePiece's space, which decoding would drop
            return token.replace("\u2581", " ")
        return self.decode([number])

    def encode(self, texts: list[str]) -> list[list[int]]:
        found = self.fast.encode_batch_fast(texts, add_special_tokens=False)
        return [encoding.ids for encoding in found]

    def locate(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        found = self.fast.encode(text, add_special_tokens=False)
        return list(found.ids), list(found.offsets)

    def decode(self, ids: list[int]) -> str:
        text: str = self.fast.decode(ids, skip_special_tokens=False)
        return text

    def to_json(self) -> str:
        """Return what `from_json` reads: the tokenizer as the library writes it."""
        return self.fast.to_str(pretty=False)


def trained_tokenizer(texts: Iterable[str], n_vocabulary: int) -> FileTokenizer:
    """Train byte-level BPE of at most `n_vocabulary` tokens, the end of a document being 0."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    check(n_vocabulary >= LEAST, f"task.n_vocabulary is {n_vocabulary}; expected at least {LEAST} "
          "to train a tokenizer: all bytes, and the end of a document")
    fast = Tokenizer(models.BPE())
    fast.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    fast.decoder = decoders.ByteLevel()
    fast.train_from_iterator(_first(texts, TRAINED_ON), trainers.BpeTrainer(
        vocab_size=n_vocabulary, special_tokens=[END], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return FileTokenizer(fast, "the trained tokenizer", END)


def _first(texts: Iterable[str], characters: int) -> Iterator[str]:
    for text in texts:
        yield text
        characters -= len(text)
        if characters <= 0:
            return


def configured_tokenizer(
    config: LanguageConfig, state: Sequence[str], texts: Callable[[], Iterable[str]]
) -> FileTokenizer:
    """Return the tokenizer that a configuration names, or else one that is trained, once.

    state  says which text it is
    texts  returns the text to train it on
    """
    if config.tokenizer:
        return load_tokenizer(config.tokenizer, config.n_vocabulary)
    key = digest_of(*state, config.column, config.held_out_sources, config.n_vocabulary)
    file = made_once(cache_folder("tokenizers", f"{key}.json"), lambda path: write_text(
        path, trained_tokenizer(texts(), config.n_vocabulary).to_json()))
    return tokenizer_from(file.read_text(encoding="utf-8"), "the trained tokenizer")


def load_tokenizer(name: str, n_vocabulary: int) -> FileTokenizer:
    """Open a tokenizer's file, its folder, or one on the hub.

    `ConfigError` for what is no tokenizer, has more tokens than n_vocabulary, or none that ends a
    document; `HubError` where the hub has none of that name, or cannot be reached.
    """
    path = Path(name).expanduser()
    settings: Path | None
    if path.exists():
        file = path / FILE if path.is_dir() else path
        check(file.is_file(), f"task.tokenizer is {name!r}, a folder without {FILE}")
        settings = file.with_name(SETTINGS)
    else:
        file, settings = _fetched(name)
    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"task.tokenizer is {name!r}, whose file cannot be read: {error}"
                          ) from None
    found = tokenizer_from(text, f"tokenizer {name}", _end_of(settings))
    check_vocabulary(found, n_vocabulary)
    return found


def _fetched(name: str) -> tuple[Path, Path | None]:
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


def _end_of(settings: Path | None) -> str | None:
    """Return the token that a tokenizer itself says ends a text."""
    try:
        said = json.loads((settings or Path()).read_text(encoding="utf-8-sig")).get("eos_token")
    except (OSError, ValueError, AttributeError):
        return None
    found = said.get("content") if isinstance(said, dict) else said  # with its flags, or bare
    return found if isinstance(found, str) else None
