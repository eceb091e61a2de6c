"""Files of rows: a line each, plain text or JSON."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from latentcode.errors import ArtifactError, reason
from latentcode.files.storage import parse_json


def rows_in(path: Path) -> Iterator[tuple[str, Any, int]]:
    """Yield what errors call a line, what it holds, and the byte behind it, of lines not empty.

    What a line of a `.txt` holds is `{"text": line}`, of any other file what its JSON says. Memory:
    one line. `ArtifactError` for a file that cannot be read, and for a line that is not UTF-8 or
    not JSON, when it is reached.
    """
    try:
        with path.open("rb") as file:
            for number, line in enumerate(iter(file.readline, b""), start=1):
                begin = file.tell() - len(line)
                where = f"{path} line {number}"
                try:
                    content = line.decode("utf-8" if begin else "utf-8-sig").rstrip("\r\n")
                    if content.strip():
                        yield (where, {"text": content} if path.suffix == ".txt"
                               else parse_json(content), file.tell())
                except UnicodeDecodeError as error:
                    raise ArtifactError(f"{where} is not UTF-8: {error}") from None
                except ValueError as error:
                    raise ArtifactError(f"{where} is not JSON: {error}") from None
    except OSError as error:
        raise ArtifactError(f"texts {path} cannot be read: {reason(error)}") from None
