"""Are the files those that were pushed? `manifest.json`: what they are, and the SHA-256 of each.

A run and codes hold checksums of their own, but not of the files in which these stand; the manifest
covers all files but itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from latentcode.errors import ArtifactError, check
from latentcode.files.formats import check_format, header
from latentcode.files.provenance import software
from latentcode.files.storage import checksum, read_json, write_json
from latentcode.hub.address import Address, Kind
from latentcode.hub.files import MANIFEST, check_names

FORMAT = "latentcode.manifest"
KEYS = {"format", "format_version", "provenance", "kind", "sha256"}


@dataclass(frozen=True)
class Manifest:
    """What a shared folder is.

    kind    a run, or codes
    sha256  path from the top of the folder -> checksum, of every file but the manifest
    """

    kind: Kind
    sha256: Mapping[str, str]

    @classmethod
    def of(cls, kind: Kind, files: Mapping[str, Path]) -> Manifest:
        """Return the manifest of files as they are now, by name."""
        return cls(kind, {name: checksum(path) for name, path in files.items()})

    @classmethod
    def read(cls, folder: Path, address: Address) -> Manifest:
        """Read the manifest of what lies at an address; `ArtifactError` says what is wrong."""
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
        return cls(kind, sha256)

    def write(self, folder: Path) -> None:
        """Write `manifest.json`."""
        write_json(folder / MANIFEST, {**header(FORMAT), "provenance": software(),
                                       "kind": self.kind, "sha256": dict(self.sha256)})

    def verify(self, folder: Path, address: Address) -> None:
        """Raise `ArtifactError` unless every file is there and is the one that was pushed.

        A damaged copy is removed from the cache, so that the next attempt downloads it anew.
        """
        for name, recorded in self.sha256.items():
            path = folder / name
            check(path.is_file(), f"{address} was downloaded without {name}; expected all files "
                  "of its manifest", ArtifactError)
            found = checksum(path)
            if found != recorded:
                forget(path)
                raise ArtifactError(f"{name} of {address} was damaged or changed after it was "
                                    f"pushed: its SHA-256 is {found}; expected {recorded}")


def forget(path: Path) -> None:
    """Remove a file from the cache of the hub, where it may be a link to the file itself."""
    path.resolve().unlink(missing_ok=True)
    path.unlink(missing_ok=True)


__all__ = ["Manifest", "forget"]
