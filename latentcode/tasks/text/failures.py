"""What went wrong between here and a text, or a tokenizer, of the hub, in one sentence."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from textwrap import shorten

from latentcode.errors import ConfigError, HubError, LatentCodeError

HERE = ("a folder or file of text that is here, as task.text (`latentcode zoo text packages "
        "FOLDER` writes one)")


@contextmanager
def one_sentence(name: str, what: str = "dataset", here: str = HERE) -> Iterator[None]:
    """Turn the errors of `datasets`, of the hub and of the network into `HubError`."""
    try:
        yield
    except LatentCodeError:
        raise
    except Exception as error:  # `datasets` lets out those of a dozen libraries
        from datasets.exceptions import DatasetNotFoundError
        from huggingface_hub import errors

        from latentcode.hub.failures import unreachable

        said = shorten(str(error), 160, placeholder=" …") or type(error).__name__
        missing = (DatasetNotFoundError, errors.RepositoryNotFoundError,
                   errors.RemoteEntryNotFoundError, errors.HFValidationError)
        if isinstance(error, missing):
            raise HubError(f"{what} {name!r} is neither here nor on the hub, or needs a token "
                           f"(`hf auth login`); expected its name, or {here}") from None
        if isinstance(error, (*unreachable(), ConnectionError, TimeoutError)):
            raise HubError(f"{what} {name!r} is not here, and the hub cannot be reached ({said}); "
                           f"expected a network, or {here}") from None
        raise ConfigError(f"{what} {name!r} cannot be read: {said}") from None
