"""Errors of `datasets`, of the hub and of the network, in one sentence."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from textwrap import shorten

from latentcode.errors import ConfigError, HubError, LatentCodeError

HERE = ("a folder or file of text that is here, as task.text (`latentcode zoo text packages "
        "FOLDER` writes one)")


@contextmanager
def one_sentence(name: str, what: str = "dataset", here: str = HERE) -> Iterator[None]:
    """Turn what fails where a text or tokenizer is read into `HubError` or `ConfigError`."""
    try:
        yield
    except LatentCodeError:
        raise
    except Exception as error:  # `datasets` lets out those of a dozen libraries
        from datasets.exceptions import DatasetGenerationError, DatasetNotFoundError
        from huggingface_hub import errors

        from latentcode.hub import unreachable

        cause = error.__cause__ if isinstance(error, DatasetGenerationError) else None
        if isinstance(cause, LatentCodeError):
            raise cause from None
        message = shorten(str(cause or error), 160, placeholder=" …") or type(error).__name__
        missing = (DatasetNotFoundError, errors.RepositoryNotFoundError,
                   errors.RemoteEntryNotFoundError, errors.HFValidationError)
        if isinstance(error, missing):
            raise HubError(f"{what} {name!r} is neither here nor on the hub, or needs a token "
                           f"(`hf auth login`); expected its name, or {here}") from None
        if isinstance(error, (*unreachable(), ConnectionError, TimeoutError)):
            raise HubError(f"{what} {name!r} is not here, and the hub cannot be reached "
                           f"({message}); expected a network, or {here}") from None
        raise ConfigError(f"{what} {name!r} cannot be read: {message}") from None
