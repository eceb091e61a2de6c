"""Runs and codes on the Hugging Face hub: pushed in one commit, fetched and verified.

Addresses are those of `huggingface_hub`: `hf://user/name` of a repository of models, where runs
lie, `hf://datasets/user/name` of one of data sets, where codes lie, either with `@revision`.

A shared folder is one commit of a repository. Data go there and come back, never code: the files of
`PATTERNS`, in formats that hold no code, and no other. `manifest.json` holds the SHA-256 of each.
The names and sizes that the hub lists are checked before anything is downloaded, and checksums
before anything is read. Without a network the copy in the cache of `huggingface_hub` is taken, if
it is whole.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from latentcode.errors import ArtifactError, HubError, LatentCodeError, check
from latentcode.files.provenance import check_format, header, package_version, software
from latentcode.files.storage import checksum, read_json, write_json

if TYPE_CHECKING:
    from huggingface_hub import CardData, HfApi

PREFIX = "hf://"
MAIN = "main"
"""The revision that is meant where none is named: the newest commit."""
NAME = r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*"
REVISION = r"(?!.*\.\.)[A-Za-z0-9_][\w./+-]*"
COMMIT = re.compile(r"[0-9a-f]{40}")

Kind = Literal["run", "codes"]
"""What a shared folder holds."""
TITLES: Mapping[Kind, str] = {"run": "a shared run", "codes": "shared codes"}
"""Kinds in words."""

FORMAT = "latentcode.manifest"
KEYS = {"format", "format_version", "provenance", "kind", "sha256"}
MANIFEST = "manifest.json"
PAGE = "README.md"
"""The page of a repository; it is made anew by each push, and not downloaded."""
OF_THE_HUB = frozenset({PAGE, ".gitattributes", "LICENSE", "LICENSE.md", "LICENSE.txt"})
"""Files that a repository may hold beside the shared ones; they are not downloaded."""
PICTURES = frozenset({".png", ".svg"})
"""Pictures of results stay where they are: their tables draw them again."""
TAGS = ("latentcode", "attention", "mechanistic-interpretability")
_NAME = r"\w[\w.,=+-]*"
PATTERNS: Mapping[Kind, re.Pattern[str]] = {
    "run": re.compile(
        r"config\.yaml|(?:provenance|card)\.json|metrics\.jsonl"
        r"|checkpoints/step_\d{7,}/(?:model\.safetensors|state\.json)"
        r"|text/(?:text\.json|tokenizer\.json|excerpts\.safetensors|documents\.parquet)"
        rf"|results/(?:{_NAME}/)+{_NAME}\.(?:json|csv|parquet|safetensors)", re.ASCII),
    "codes": re.compile(r"codes\.safetensors|labels\.parquet|meta\.json")}
"""The names of the files of each kind, from the top of its folder."""
MOST_FILES = 2_000
MOST_BYTES: Mapping[bool, int] = {False: 2**28, True: 2**36}
"""How large one file may be: text that is read at once, and tables of numbers."""
LOG_IN = "`hf auth login`, HF_TOKEN or token="
Token = str | bool | None
"""A token of the hub; None and True stand for the one that was saved, False for none."""


@dataclass(frozen=True)
class Address:
    """A repository of the hub, at a revision.

    repo      `user/name`
    kind      `codes` for a repository of data sets, `run` for one of models
    revision  a branch, a tag or a commit; None for the newest commit
    """

    repo: str
    kind: Kind = "run"
    revision: str | None = None

    @classmethod
    def parse(cls, text: str, revision: str | None = None) -> Address:
        """Read an address; `HubError` for what is none, and for two revisions that differ."""
        match = re.fullmatch(rf"{PREFIX}(datasets/)?({NAME})(?:@([^@\s]+))?", text, re.ASCII)
        if match is None:
            raise HubError(f"{text!r} is not an address on the hub; expected {PREFIX}user/name or "
                           f"{PREFIX}datasets/user/name, either with @revision")
        datasets, repo, named = match.groups()
        check(None in (revision, named) or revision == named, f"{text} names revision {named}; "
              f"expected no other, but revision is {revision!r}", HubError)
        revision = named if revision is None else revision
        # It becomes part of a path in the cache.
        check(revision is None or re.fullmatch(REVISION, revision, re.ASCII) is not None,
              f"{text} has {revision!r} as revision; expected a branch, a tag or a commit",
              HubError)
        return cls(repo, "codes" if datasets else "run", revision)

    @property
    def repo_type(self) -> str:
        """What the hub calls the kind of the repository."""
        return "dataset" if self.kind == "codes" else "model"

    def __str__(self) -> str:
        datasets = "datasets/" if self.kind == "codes" else ""
        at = "" if self.revision is None else f"@{self.revision}"
        return f"{PREFIX}{datasets}{self.repo}{at}"


def is_address(text: object) -> bool:
    """Whether a text is meant as an address on the hub."""
    return isinstance(text, str) and text.startswith(PREFIX)


def origin(folder: Path) -> Address | None:
    """Return where a folder was downloaded from, at its commit; None for any other folder.

    The cache of `huggingface_hub` says so in its paths: `models--user--name/snapshots/commit`.
    """
    parts = folder.absolute().parts[-3:]
    if len(parts) < 3 or parts[1] != "snapshots" or not COMMIT.fullmatch(parts[2]):
        return None
    match = re.fullmatch(r"(models|datasets)--(.+)", parts[0])
    repo = "" if match is None else match[2].replace("--", "/", 1)
    if match is None or not re.fullmatch(NAME, repo, re.ASCII):
        return None
    return Address(repo, "codes" if match[1] == "datasets" else "run", parts[2])


def fetch(
    text: str, *, kind: Kind | None = None, revision: str | None = None, token: Token = None,
    verify: bool = True,
) -> Path:
    """Return the folder of a run or of codes on the hub, as they were pushed, for reading.

    Args:
        text: `hf://user/name` or `hf://datasets/user/name`, either with `@revision`.
        kind: The kind that must lie there; None takes either.
        revision: A branch, a tag or a commit, if the address names none; None for the newest.
        token: Of an account that may read it; None for the one that was saved.
        verify: Compare the checksums of all files.

    Raises:
        HubError: There is no such repository or revision, it cannot be reached or read, or it
            holds something else.
        ArtifactError: A file is damaged.
    """
    address = Address.parse(text, revision)
    opens = {"run": "lc.load_run", "codes": "LatentCodes.load"}[address.kind]
    check(kind in (None, address.kind), f"{address} is the address of {TITLES[address.kind]}; "
          f"expected {TITLES[kind or address.kind]} ({opens}({text!r}) opens it)", HubError)
    sizes: Mapping[str, int] | None = None
    with one_sentence(address, token):
        try:
            folder, sizes = _download(address, token)
        except unreachable() as error:
            cached, response = _in_cache(address), getattr(error, "response", None)
            refused = response is not None and response.status_code < 500
            if cached is None or refused:
                raise
            folder = cached
    try:
        sha256 = _read_manifest(folder, address)
        strays = set() if sizes is None else set(sizes) ^ {MANIFEST, *sha256}
        check(not strays, f"{address} holds other files than its manifest says: "
              f"{', '.join(sorted(strays)[:4])}", HubError)
        for name, recorded in sha256.items() if verify else ():
            path = folder / name
            check(path.is_file(), f"{address} was downloaded without {name}; expected all files of "
                  "its manifest", ArtifactError)
            actual = checksum(path)
            if actual != recorded:
                _forget(path)
                raise ArtifactError(
                    f"{name} of {address} was damaged or changed after it was pushed: "
                    f"its SHA-256 is {actual}; expected {recorded}")
    except (ArtifactError, HubError):
        _forget(folder / MANIFEST)  # which may be the one that is damaged
        raise
    return folder


def push(
    folder: Path, kind: Kind, repo: str, *, page: str, private: bool = False,
    token: Token = None, commit_message: str | None = None,
) -> str:
    """Make a folder the contents of a repository, in one commit or none; return its address there.

    Args:
        folder: A copy for this purpose: its manifest and page are put there.
        kind: A run, or codes.
        repo: `user/name`; made if it does not exist. What an earlier push left there is replaced,
            and stays under its own commit.
        page: The model card or data set card, Markdown.
        private: Whether a new repository is; one that exists must be as private as that.
        token: Of an account that may write; None for the one that was saved.
        commit_message: None for one that says what is pushed.

    Raises:
        HubError: Why nothing was pushed: a file that is not shared, no right to write, no network,
            a repository with other files than ours.
    """
    check(re.fullmatch(NAME, repo, re.ASCII) is not None,
          f"the repository is {repo!r}; expected user/name", HubError)
    address, files = Address(repo, kind), to_share(kind, folder)
    write_json(folder / MANIFEST, {
        **header(FORMAT), "provenance": software(), "kind": kind,
        "sha256": {name: checksum(path) for name, path in files.items()}})
    (folder / PAGE).write_text(page, encoding="utf-8")
    api = _api(token)
    with one_sentence(address, token), warnings.catch_warnings():
        # Results of a run are tables beside a model, not a data set.
        warnings.filterwarnings("ignore", "It seems that you are about to commit a data file")
        api.create_repo(repo, repo_type=address.repo_type, private=private, exist_ok=True)
        parent, present, is_private = _listed(api, address)
        check(is_private or not private, f"{address} is public already; expected a private or a "
              "new repository", HubError)
        try:
            check_names(kind, present, address)
        except HubError as error:
            raise HubError(f"{error}; push to a repository of its own") from None
        done = api.upload_folder(
            repo_id=repo, folder_path=folder, repo_type=address.repo_type, parent_commit=parent,
            delete_patterns=sorted(present),
            commit_message=commit_message or f"Push {TITLES[kind]}")
    return str(replace(address, revision=str(done.oid)))


def page(facts: CardData, body: str) -> str:
    """Return the page of a repository: the YAML that the hub reads, then Markdown."""
    return f"---\n{facts.to_yaml()}\n---\n\n{body.strip()}\n"


def to_share(kind: Kind, folder: Path) -> dict[str, Path]:
    """Return the files of a folder that are pushed, by name; `HubError` for one that is refused."""
    files = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*"))
             if path.is_file()}
    check_names(kind, {name: path.stat().st_size for name, path in files.items()}, folder)
    return files


def check_names(kind: Kind, sizes: Mapping[str, int], where: object) -> None:
    """Raise `HubError` unless every file may be shared.

    Args:
        kind: A run, or codes.
        sizes: Path from the top of the folder -> bytes.
        where: The folder or the address, for messages.
    """
    check(len(sizes) <= MOST_FILES, f"{where} holds {len(sizes):,} files; expected at most "
          f"{MOST_FILES:,}", HubError)
    for name, size in sizes.items():
        check(name == MANIFEST or PATTERNS[kind].fullmatch(name) is not None, f"{where} holds "
              f"{name!r}, which is no file of {TITLES[kind]}; expected nothing else", HubError)
        most = MOST_BYTES[name.endswith((".safetensors", ".parquet"))]
        check(0 <= size <= most, f"{where} holds {name} of {size} bytes; expected "
              f"at most {most:,}", HubError)


def _api(token: Token) -> HfApi:
    from huggingface_hub import HfApi

    return HfApi(token=token, library_name="latentcode",
                 library_version=package_version("latentcode"))


def _listed(api: HfApi, address: Address) -> tuple[str, dict[str, int], bool]:
    """Return the commit, the size of each file but the hub's own, and whether it is private."""
    info: Any = api.repo_info(address.repo, repo_type=address.repo_type, timeout=10,
                              revision=address.revision or MAIN, files_metadata=True)
    check(COMMIT.fullmatch(str(info.sha)) is not None, f"{address} is at {info.sha!r}; expected a "
          "commit", HubError)
    return info.sha, {file.rfilename: -1 if file.size is None else file.size
                      for file in info.siblings or ()
                      if file.rfilename not in OF_THE_HUB}, bool(info.private)


def _download(address: Address, token: Token) -> tuple[Path, dict[str, int]]:
    """Return the folder of a download, and the size of each file that the hub lists."""
    api = _api(token)
    sha, sizes, _ = _listed(api, address)
    check(MANIFEST in sizes, f"{address} holds no {MANIFEST}; expected a run or codes that "
          "latentcode pushed there (push_to_hub, latentcode push)", HubError)
    check_names(address.kind, sizes, address)
    # By the name of the revision, so that the cache finds it by that name, too.
    folder = Path(api.snapshot_download(
        address.repo, repo_type=address.repo_type, revision=address.revision or MAIN,
        allow_patterns=sorted(sizes)))
    check(folder.name == sha, f"{address} changed while it was read; expected nobody to write: try "
          "again, or name a commit", HubError)
    return folder, sizes


def _in_cache(address: Address) -> Path | None:
    """Return the folder of an earlier download, which may have been interrupted."""
    from huggingface_hub import try_to_load_from_cache

    manifest = try_to_load_from_cache(address.repo, MANIFEST, repo_type=address.repo_type,
                                      revision=address.revision or MAIN)
    return Path(manifest).parent if isinstance(manifest, str) else None


def _read_manifest(folder: Path, address: Address) -> Mapping[str, str]:
    """Return the checksum of every file of a shared folder but the manifest, by path."""
    path = folder / MANIFEST
    data = check_format(read_json(path), FORMAT, path)
    check(set(data) == KEYS, f"{path} has keys {sorted(data)}; expected {sorted(KEYS)}",
          ArtifactError)
    kind, sha256 = data["kind"], data["sha256"]
    check(kind == address.kind, f"{path} has kind {kind!r}; expected {address.kind!r}, as at "
          f"{address}", ArtifactError)
    check(isinstance(sha256, dict) and all(isinstance(s, str) for s in sha256.values()),
          f"{path} has sha256 {sha256!r}; expected the checksum of each file", ArtifactError)
    check_names(kind, dict.fromkeys(sha256, 0), path)
    return dict(sha256)


def _forget(path: Path) -> None:
    """Remove a file from the cache of the hub, where it may be a link to the file itself, so that
    the next attempt downloads it anew."""
    path.resolve().unlink(missing_ok=True)
    path.unlink(missing_ok=True)


@contextmanager
def one_sentence(address: Address, token: Token) -> Iterator[None]:
    """Raise `HubError`, one sentence, in place of what `huggingface_hub` raises."""
    try:
        yield
    except LatentCodeError:
        raise
    except Exception as error:
        # A thread that uploads raises a RuntimeError from the cause.
        cause = error.__cause__ if isinstance(error, RuntimeError) else None
        message = _message(address, token, cause or error)
        if message is None:
            raise
        raise HubError(message) from None


def unreachable() -> tuple[type[Exception], ...]:
    """Return the errors after which a copy in the cache is as good as it gets."""
    from huggingface_hub import errors

    # httpx or httpx2, whichever this version of huggingface_hub uses
    network: Any = vars(errors)["HTTPError"]
    return network, errors.OfflineModeIsEnabled, errors.LocalEntryNotFoundError


def _message(address: Address, token: Token, error: BaseException) -> str | None:
    """Return what went wrong, or None for a mistake of ours."""
    from huggingface_hub import constants, errors, get_token

    line = " ".join(str(error).split())[:200] or type(error).__name__
    if isinstance(error, errors.RevisionNotFoundError):
        return (f"{address.repo} has no revision {address.revision!r}; expected a branch, a tag or "
                "a commit")
    if isinstance(error, errors.HfHubHTTPError):
        status = error.response.status_code
        if status in (401, 404):
            has_token = isinstance(token, str) or (token is not False and get_token() is not None)
            why = "is not open to this token" if has_token else "needs a token, and none was given"
            return f"{address} does not exist on {constants.ENDPOINT}, or {why} ({LOG_IN})"
        if status == 403:
            return f"{address}: the token has no right to do this; expected one with it ({LOG_IN})"
        if status == 412:
            return (f"{address} changed while it was pushed to; expected nobody else to write: "
                    "try again")
        return f"{address}: the hub answered {status}: {error.server_message or line}"
    if isinstance(error, unreachable()):
        return f"{address} cannot be reached, and this machine has no whole copy of it: {line}"
    # A full disk, or an answer that makes no sense.
    return f"{address}: {line}" if isinstance(error, OSError | ValueError) else None
