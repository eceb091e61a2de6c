"""What lies at an address? Downloaded into the cache of `huggingface_hub`, and verified.

The names and sizes that the hub lists are checked before anything is downloaded, and checksums
before anything is read. Without a network the copy in the cache is taken, if it is whole.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from latentcode.errors import ArtifactError, HubError, check
from latentcode.files.provenance import package_version
from latentcode.hub.address import COMMIT, MAIN, Address, Kind
from latentcode.hub.failures import Token, is_refusal, one_sentence, unreachable
from latentcode.hub.files import MANIFEST, OF_THE_HUB, check_names
from latentcode.hub.manifest import Manifest, forget

if TYPE_CHECKING:
    from huggingface_hub import HfApi


def fetch(
    text: str, *, kind: Kind | None = None, revision: str | None = None, token: Token = None,
    verify: bool = True,
) -> Path:
    """Return the folder of a run or of codes on the hub, as they were pushed.

    text      `hf://user/name`, `hf://datasets/user/name`, either with `@revision`
    kind      what must lie there; None takes either
    revision  a branch, a tag or a commit, if the address names none; default: the newest commit
    token     of an account that may read it; default: the one that was saved
    verify    compare the checksums of all files

    The folder is for reading, and its path says which commit it is (`address.origin`).

    `HubError` says in one sentence that there is no such repository or revision, that it cannot be
    reached or read, or that it holds something else; `ArtifactError` names a damaged file.
    """
    address = Address.parse(text, revision)
    address.check_kind(kind)
    api, sizes = hub_api(token), None
    with one_sentence(address, token):
        try:
            sha, sizes, _ = listed(api, address)
        except unreachable() as error:
            cached = _in_cache(address)
            if is_refusal(error) or cached is None:
                raise
            folder = cached
        else:
            check(MANIFEST in sizes, f"{address} holds no {MANIFEST}; expected a run or codes that "
                  "latentcode pushed there (push_to_hub, latentcode push)", HubError)
            check_names(address.kind, sizes, address)
            # By the name of the revision, so that the cache finds it by that name, too.
            folder = Path(api.snapshot_download(
                address.repo, repo_type=address.repo_type, revision=address.revision or MAIN,
                allow_patterns=sorted(sizes)))
            check(folder.name == sha, f"{address} changed while it was read; expected nobody to "
                  "write: try again, or name a commit", HubError)
    try:
        manifest = Manifest.read(folder, address)
        present = {MANIFEST, *manifest.sha256}
        check(sizes is None or set(sizes) == present, f"{address} holds other files than its "
              f"manifest says: {', '.join(sorted(set(sizes or ()) ^ present)[:4])}", HubError)
        if verify:
            manifest.verify(folder, address)
    except (ArtifactError, HubError):
        forget(folder / MANIFEST)  # which may be the one that is damaged
        raise
    return folder


def hub_api(token: Token) -> HfApi:
    """Return a client of the hub that HF_ENDPOINT names."""
    from huggingface_hub import HfApi

    return HfApi(token=token, library_name="latentcode",
                 library_version=package_version("latentcode"))


def listed(api: HfApi, address: Address) -> tuple[str, dict[str, int], bool]:
    """Return the commit, the size of each file but the hub's own, and whether it is private."""
    info: Any = api.repo_info(address.repo, repo_type=address.repo_type, timeout=10,
                              revision=address.revision or MAIN, files_metadata=True)
    check(COMMIT.fullmatch(str(info.sha)) is not None, f"{address} is at {info.sha!r}; expected a "
          "commit", HubError)
    return info.sha, {file.rfilename: -1 if file.size is None else file.size
                      for file in info.siblings or ()
                      if file.rfilename not in OF_THE_HUB}, bool(info.private)


def _in_cache(address: Address) -> Path | None:
    """Return the folder of an earlier download, which may have been interrupted."""
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(address.repo, MANIFEST, repo_type=address.repo_type,
                                   revision=address.revision or MAIN)
    return Path(found).parent if isinstance(found, str) else None


__all__ = ["fetch", "hub_api", "listed"]
