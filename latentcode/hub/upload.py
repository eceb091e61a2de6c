"""One folder, one commit: what is pushed is there whole, or not at all."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from latentcode.errors import HubError, check
from latentcode.hub.address import Address, Kind
from latentcode.hub.download import hub_api, listed
from latentcode.hub.failures import Token, is_missing, one_sentence, unreachable
from latentcode.hub.files import MANIFEST, PAGE, check_names, described, to_share
from latentcode.hub.manifest import Manifest

if TYPE_CHECKING:
    from huggingface_hub import HfApi


def push(
    folder: Path, kind: Kind, repo: str, *, page: str, private: bool = False,
    token: Token = None, commit_message: str | None = None,
) -> str:
    """Make a folder the contents of a repository, in one commit; return its address there.

    repo     `user/name`; made if it does not exist. What an earlier push left there is replaced,
             and stays under its own commit
    page     the model card or data set card, Markdown
    private  whether a new repository is; one that exists must be as private as that

    Interrupted, it leaves the files of the repository as they were. `HubError` says in one sentence
    why nothing was pushed: a file that is not shared, no right to write, no network, a repository
    with other files than ours.
    """
    address, files = Address.to_push(repo, kind), to_share(kind, folder)
    api = hub_api(token)
    with TemporaryDirectory() as beside, one_sentence(address, token):
        files[MANIFEST] = Manifest.of(kind, files).write(Path(beside))
        parent, present = _ready(api, address, private)
        commit = _commit(api, address, files, page, parent, present,
                         commit_message or f"Push {described(kind)}")
    return str(address.at(commit))


def _ready(api: HfApi, address: Address, private: bool) -> tuple[str, set[str]]:
    """Return the commit to follow and the files it has, in a repository made if need be."""
    try:
        parent, sizes, is_private = listed(api, address)
    except unreachable() as error:
        if not is_missing(error):
            raise
        api.create_repo(address.repo, repo_type=address.repo_type, private=private)
        parent, sizes, is_private = listed(api, address)
    check(is_private or not private, f"{address} is public already; expected a private or a new "
          "repository", HubError)
    try:
        check_names(address.kind, sizes, address)
    except HubError as error:
        raise HubError(f"{error}; push to a repository of its own") from None
    return parent, set(sizes)


def _commit(
    api: HfApi, address: Address, files: Mapping[str, Path], page: str, parent: str,
    present: set[str], message: str,
) -> str:
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete

    with warnings.catch_warnings():
        # Results of a run are tables beside a model, not a data set.
        warnings.filterwarnings("ignore", "It seems that you are about to commit a data file")
        done = api.create_commit(
            address.repo,
            [CommitOperationAdd(PAGE, page.encode()),
             *(CommitOperationAdd(name, path) for name, path in files.items()),
             *(CommitOperationDelete(name) for name in sorted(present - set(files)))],
            repo_type=address.repo_type, commit_message=message, parent_commit=parent)
    return str(done.oid)


__all__ = ["push"]
