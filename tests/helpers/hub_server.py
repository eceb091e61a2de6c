"""A small stand-in of the Hugging Face hub: what `huggingface_hub` asks of it, on this machine.

Repositories with commits, large files by LFS, tokens, private repositories. A test may reach into
`repos` to do what no client could, and set `broken` to let the next request of a kind fail.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

WRITER, READER = "hf_writer", "hf_reader"
"""Tokens that may write, and only read what `user` has."""
LARGE = (".safetensors", ".parquet")
HIDDEN = b"*.safetensors filter=lfs\n"


@dataclass
class Repo:
    """A repository: its commits, the newest last, each with all its files.

    refs   branches beside main -> the number of their commit
    gated  whether its files are for those alone who were granted access
    """

    private: bool = False
    messages: list[str] = field(default_factory=lambda: ["initial commit"])
    commits: list[dict[str, bytes]] = field(default_factory=lambda: [{".gitattributes": HIDDEN}])
    refs: dict[str, int] = field(default_factory=dict)
    gated: bool = False

    def oid(self, number: int) -> str:
        known = [sorted((name, data.hex()) for name, data in files.items())
                 for files in self.commits[:number + 1]]
        return hashlib.sha1(json.dumps(known).encode()).hexdigest()

    def find(self, revision: str) -> tuple[str, dict[str, bytes]] | None:
        oids = [self.oid(number) for number in range(len(self.commits))]
        oid = (oids[-1] if revision == "main" else
               oids[self.refs[revision]] if revision in self.refs else revision)
        return (oid, self.commits[oids.index(oid)]) if oid in oids else None


@dataclass
class Hub:
    """The state of the stand-in, and where it listens.

    repos    (`models` or `datasets`, `user/name`) -> repository
    uploads  SHA-256 -> what was uploaded by LFS
    broken   kind of request -> status with which it fails: `info`, `commit`, `file`, `lfs`
    damaged  names of files of which a byte changes on the way
    asked    every request, such as `GET /api/models/...`
    """

    url: str = ""
    repos: dict[tuple[str, str], Repo] = field(default_factory=dict)
    uploads: dict[str, bytes] = field(default_factory=dict)
    broken: dict[str, int] = field(default_factory=dict)
    damaged: set[str] = field(default_factory=set)
    asked: list[str] = field(default_factory=list)

    def files(self, repo: str, kind: str = "models") -> dict[str, bytes]:
        """The files of the newest commit."""
        return self.repos[kind, repo].commits[-1]


@contextmanager
def hub_server() -> Iterator[Hub]:
    """Serve a hub without repositories on a free port of this machine."""
    hub = Hub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (Handler,), {"hub": hub}))
    server.daemon_threads = True
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def blob(name: str, data: bytes) -> dict[str, Any]:
    """What the hub tells of a file."""
    told = {"size": len(data), "oid": hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()}
    sha256 = hashlib.sha256(data).hexdigest()
    return told | ({"lfs": {"oid": sha256, "sha256": sha256, "size": len(data),
                            "pointerSize": 130}} if name.endswith(LARGE) else {})


class Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        path, self.query = urlsplit(self.path).path, parse_qs(urlsplit(self.path).query)
        self.body = self._read()
        self.hub.asked.append(f"{self.command} {path}")
        for pattern, answer in ROUTES:
            match = re.fullmatch(pattern, path)
            if match is not None:
                return answer(self, *(None if g is None else unquote(g) for g in match.groups()))
        self.say(404, {"error": "no such page"})

    do_HEAD = do_POST = do_PUT = do_GET

    def _read(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        parts = []
        while size := int(self.rfile.readline(), 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def say(self, status: int, data: object, **headers: str) -> None:
        content = data if isinstance(data, bytes) else json.dumps(data).encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(content)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    @property
    def token(self) -> str | None:
        return self.headers.get("Authorization", "").removeprefix("Bearer ") or None

    def fails(self, kind: str) -> bool:
        """Answer with the status that `broken` says, once, if it does."""
        status = self.hub.broken.pop(kind, None)
        if status is not None:
            self.say(status, {"error": "out of order"})
        return status is not None

    def writes(self) -> bool:
        """Whether the token may write; the answer is given if not."""
        if self.token != WRITER:
            self.say(403 if self.token == READER else 401, {"error": "no right to write"})
        return self.token == WRITER

    def repo(self, kind: str, name: str) -> Repo | None:
        """Return a repository that the token may read, or answer as the hub does."""
        found = self.hub.repos.get((kind, name))
        if found is not None and (not found.private or self.token in (WRITER, READER)):
            return found
        self.say(404 if self.token in (WRITER, READER) else 401,
                 {"error": "Repository not found"}, X_Error_Code="RepoNotFound")
        return None

    def commit_of(self, kind: str, name: str, revision: str) -> tuple[str, dict[str, bytes]] | None:
        repo = self.repo(kind, name)
        found = None if repo is None else repo.find(revision)
        if repo is not None and found is None:
            self.say(404, {"error": "Invalid rev id"}, X_Error_Code="RevisionNotFound")
        return found

    def info(self, kind: str, name: str, revision: str | None) -> None:
        if self.fails("info"):
            return
        found = self.commit_of(kind, name, revision or "main")
        if found is not None:
            oid, files = found
            siblings = [{"rfilename": path, "blobId": told.pop("oid"), **told}
                        for path, told in ((p, blob(p, data)) for p, data in files.items())]
            self.say(200, {"id": name, "sha": oid, "siblings": siblings, "tags": [],
                           "private": self.hub.repos[kind, name].private})

    def branches(self, kind: str, name: str) -> None:
        repo = self.repo(kind, name)
        if repo is not None:
            numbers = {"main": len(repo.commits) - 1, **repo.refs}
            self.say(200, {"tags": [], "converts": [], "branches": [
                {"name": branch, "ref": f"refs/heads/{branch}", "targetCommit": repo.oid(number)}
                for branch, number in numbers.items()]})

    def tree(self, kind: str, name: str, revision: str) -> None:
        found = self.commit_of(kind, name, revision)
        if found is not None:
            self.say(200, [{"type": "file", "path": path, **blob(path, data)}
                           for path, data in found[1].items()])

    def create(self) -> None:
        asked = json.loads(self.body)
        if self.writes():
            kind = f"{asked.get('type') or 'model'}s"
            name = f"{asked.get('organization') or 'user'}/{asked['name']}"
            private = bool(asked.get("private")) or asked.get("visibility") == "private"
            self.hub.repos.setdefault((kind, name), Repo(private))
            self.say(200, {"url": f"{self.hub.url}/{name}"})

    def validate(self) -> None:
        self.say(200, {"errors": [], "warnings": []})

    def preupload(self, kind: str, name: str, _: str) -> None:
        if self.writes():
            self.say(200, {"files": [
                {"path": file["path"], "shouldIgnore": False,
                 "uploadMode": "lfs" if file["path"].endswith(LARGE) else "regular"}
                for file in json.loads(self.body)["files"]]})

    def batch(self, *_: str) -> None:
        if self.writes() and not self.fails("lfs"):
            self.say(200, {"transfer": "basic", "objects": [
                {"oid": one["oid"], "size": one["size"], "actions": {
                    "upload": {"href": f"{self.hub.url}/lfs/{one['oid']}"}}}
                for one in json.loads(self.body)["objects"]]})

    def upload(self, oid: str) -> None:
        right = hashlib.sha256(self.body).hexdigest() == oid
        if right:
            self.hub.uploads[oid] = self.body
        self.say(200 if right else 400, {})

    def commit(self, kind: str, name: str, _: str) -> None:
        if not self.writes() or self.fails("commit"):
            return
        repo = self.hub.repos[kind, name]
        head, *operations = map(json.loads, self.body.splitlines())
        if head["value"].get("parentCommit") not in (None, repo.oid(len(repo.commits) - 1)):
            return self.say(412, {"error": "the branch has moved"})
        files = dict(repo.commits[-1])
        for value, key in ((operation["value"], operation["key"]) for operation in operations):
            if key == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif key == "lfsFile":
                files[value["path"]] = self.hub.uploads[value["oid"]]
            else:
                del files[value["path"]]
        repo.commits.append(files)
        repo.messages.append(head["value"]["summary"])
        oid = repo.oid(len(repo.commits) - 1)
        self.say(200, {"commitUrl": f"{self.hub.url}/{name}/commit/{oid}", "commitOid": oid})

    def file(self, datasets: str | None, name: str, revision: str, path: str) -> None:
        found = self.commit_of("datasets" if datasets else "models", name, revision)
        if found is None or (self.command == "GET" and self.fails("file")):
            return
        oid, files = found
        if not datasets and self.hub.repos["models", name].gated:
            return self.say(403, {"error": "gated"}, X_Error_Code="GatedRepo")
        if path not in files:
            return self.say(404, {}, X_Error_Code="EntryNotFound", X_Repo_Commit=oid)
        told = blob(path, files[path])
        etag = told.get("lfs", {}).get("sha256", told["oid"])
        data = files[path]
        if path in self.hub.damaged:
            data = data[:-3] + bytes([data[-3] ^ 1]) + data[-2:]
        self.say(200, data, ETag=f'"{etag}"', X_Repo_Commit=oid, Accept_Ranges="bytes")


NAMED = r"/api/(models|datasets)/([^/]+(?:/(?!revision/)[^/]+)?)"
ROUTES = (
    (r"/api/repos/create", Handler.create),
    (r"/api/validate-yaml", Handler.validate),
    (rf"{NAMED}(?:/revision/([^/]+))?", Handler.info),
    (rf"{NAMED}/refs", Handler.branches),
    (rf"{NAMED}/tree/([^/]+)", Handler.tree),
    (rf"{NAMED}/preupload/([^/]+)", Handler.preupload),
    (rf"{NAMED}/commit/([^/]+)", Handler.commit),
    (r"/(?:datasets/)?[^/]+/[^/]+\.git/info/lfs/objects/batch", Handler.batch),
    (r"/lfs/(\w+)", Handler.upload),
    (r"/(datasets/)?([^/]+/[^/]+)/resolve/([^/]+)/(.+)", Handler.file))
