"""One folder, one commit: what is pushed is there whole, or not at all."""

from __future__ import annotations

import warnings
from pathlib import Path

from latentcode.errors import HubError, check
from latentcode.hub.address import Address, Kind, described
from latentcode.hub.download import hub_api, listed
from latentcode.hub.failures import Token, one_sentence
from latentcode.hub.files import PAGE, check_names, to_share
from latentcode.hub.manifest import Manifest


def push(
    folder: Path, kind: Kind, repo: str, *, page: str, private: bool = False,
    token: Token = None, commit_message: str | None = None,
) -> str:
    """Make a folder the contents of a repository, in one commit; return its address there.

    folder   a copy for this purpose: its manifest and page are put there
    repo     `user/name`; made if it does not exist. What an earlier push left there is replaced,
             and stays under its own commit
    page     the model card or data set card, Markdown
    private  whether a new repository is; one that exists must be as private as that

    Interrupted, it leaves the files of the repository as they were. `HubError` says in one sentence
    why nothing was pushed: a file that is not shared, no right to write, no network, a repository
    with other files than ours.
    """
    address, files = Address.to_push(repo, kind), to_share(kind, folder)
    Manifest.of(kind, files).write(folder)
    (folder / PAGE).write_text(page, encoding="utf-8")
    api = hub_api(token)
    with one_sentence(address, token), warnings.catch_warnings():
        # Results of a run are tables beside a model, not a data set.
        warnings.filterwarnings("ignore", "It seems that you are about to commit a data file")
        api.create_repo(repo, repo_type=address.repo_type, private=private, exist_ok=True)
        parent, present, is_private = listed(api, address)
        check(is_private or not private, f"{address} is public already; expected a private or a "
              "new repository", HubError)
        try:
            check_names(kind, present, address)
        except HubError as error:
            raise HubError(f"{error}; push to a repository of its own") from None
        done = api.upload_folder(
            repo_id=repo, folder_path=folder, repo_type=address.repo_type, parent_commit=parent,
            delete_patterns=sorted(present),
            commit_message=commit_message or f"Push {described(kind)}")
    return str(address.at(str(done.oid)))


__all__ = ["push"]
