"""What went wrong between here and the hub, in one sentence."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from latentcode.errors import HubError, LatentCodeError
from latentcode.hub.address import Address

HOW_TO_LOG_IN = "`hf auth login`, HF_TOKEN or token="
Token = str | bool | None
"""A token of the hub; None and True stand for the one that was saved, False for none."""


@contextmanager
def one_sentence(address: Address, token: Token) -> Iterator[None]:
    """Turn the errors of `huggingface_hub`, of the network and of the disk into `HubError`."""
    try:
        yield
    except LatentCodeError:
        raise
    except Exception as error:
        # What fails in a thread that uploads is told as a RuntimeError.
        cause = error.__cause__ if isinstance(error, RuntimeError) else None
        said = _said(address, token, cause or error)
        if said is None:
            raise
        raise HubError(said) from None


def _said(address: Address, token: Token, error: BaseException) -> str | None:
    """Return what went wrong, or None for a mistake of ours."""
    from huggingface_hub import errors

    if isinstance(error, errors.HFValidationError):
        return f"{address} is no name of a repository: {_line(error)}"
    if isinstance(error, errors.LocalTokenNotFoundError):
        return f"{address}: no token is saved on this machine; expected one ({HOW_TO_LOG_IN})"
    if isinstance(error, errors.GatedRepoError):
        return (f"{address} is gated; expected the token of an account that was granted access on "
                "its page")
    if isinstance(error, errors.RevisionNotFoundError):
        return (f"{address.repo} has no revision {address.revision!r}; expected a branch, a tag or "
                "a commit")
    if isinstance(error, errors.HfHubHTTPError):
        return _refusal(address, token, error)
    if isinstance(error, unreachable()):
        return (f"{address} cannot be reached, and this machine has no whole copy of it: "
                f"{_line(error)}")
    if isinstance(error, OSError | ValueError):  # a full disk, an answer that makes no sense
        return f"{address}: {_line(error)}"
    return None


def unreachable() -> tuple[type[Exception], ...]:
    """Return the errors after which a copy in the cache is as good as it gets."""
    from huggingface_hub import errors

    # httpx or httpx2, whichever this version of huggingface_hub uses
    network: Any = vars(errors)["HTTPError"]
    return network, errors.OfflineModeIsEnabled, errors.LocalEntryNotFoundError


def is_refusal(error: Exception) -> bool:
    """Whether the hub answered, and said no."""
    from huggingface_hub import errors

    return isinstance(error, errors.HfHubHTTPError) and error.response.status_code < 500


def _refusal(address: Address, token: Token, error: Any) -> str:
    from huggingface_hub import constants, get_token

    status = error.response.status_code
    has_token = isinstance(token, str) or (token is not False and get_token() is not None)
    if status in (401, 404):
        other = "" if address.kind == "codes" else (
            f"; codes are at {Address(address.repo, 'codes', address.revision)}")
        why = (f"is not open to this token ({HOW_TO_LOG_IN})" if has_token else
               f"needs a token, and none was given ({HOW_TO_LOG_IN})")
        return f"{address} does not exist on {constants.ENDPOINT}, or {why}{other}"
    if status == 403:
        return (f"{address}: the token has no right to do this; expected one with the right to "
                f"write ({HOW_TO_LOG_IN})")
    if status == 412:
        return f"{address} changed while it was pushed to; expected nobody else to write: try again"
    return f"{address}: the hub answered {status}: {error.server_message or _line(error)}"


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__


__all__ = ["Token", "is_refusal", "one_sentence", "unreachable"]
