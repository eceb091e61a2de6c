"""Are texts read from files as they stand there, and lines that are none named?"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import latentcode.sweep
from latentcode.config import RunConfig, load_config, to_yaml
from latentcode.errors import ArtifactError
from latentcode.prompts import Prompts
from latentcode.prompts.texts import read_texts
from latentcode.sweep.grid import load_grid

GRIDS = Path(latentcode.sweep.__file__).with_name("grids")
ROWS = [{"kind": "a", "text": "naïve café"}, {"text": " two\u2028lines", "kind": "b"}]


def test_lines_are_texts(tmp_path: Path) -> None:
    path = tmp_path / "some.txt"
    path.write_bytes("\ufefffirst \r\n\n  second\u2028still the second\n \n".encode())
    assert read_texts(path)["text"].tolist() == ["first ", "  second\u2028still the second"]


@pytest.mark.parametrize(("name", "text", "read"), [
    ("p.jsonl", '{"prompt": "a b", "query": -1, "key": 0}', Prompts.read),
    ("t.jsonl", '{"text": "a b"}', read_texts), ("t.txt", "a b", read_texts),
    ("c.yaml", to_yaml(RunConfig()), load_config),
    ("g.yaml", (GRIDS / "paper_logic.yaml").read_text(), load_grid),
])
def test_a_byte_order_mark_is_none_of_a_file(
    name: str, text: str, read: Callable[[Path], Any], tmp_path: Path
) -> None:
    plain, marked = tmp_path / name, tmp_path / f"marked-{name}"
    plain.write_text(text, encoding="utf-8")
    marked.write_text(text, encoding="utf-8-sig")
    assert repr(read(marked)) == repr(read(plain))


def test_objects_keep_their_columns(tmp_path: Path) -> None:
    path = tmp_path / "some.jsonl"
    path.write_text("\n".join(json.dumps(row, ensure_ascii=False) for row in ROWS))
    table = read_texts(path)
    assert list(table) == ["text", "kind"]
    assert table.to_dict("records") == [{"text": row["text"], "kind": row["kind"]} for row in ROWS]


@pytest.mark.parametrize(("name", "content", "said"), [
    ("some.csv", b"text\na\n", r"'\.csv'; expected \.txt or \.jsonl"),
    ("some.txt", b" \n\n", "no text"),
    ("some.txt", b"\xff\xfe", "line 1 is not UTF-8"),
    ("some.jsonl", b'{"text": "a"}\n{"text": \n', "line 2 is not JSON"),
    ("some.jsonl", b'{"prompt": "a"}\n', "line 1 .* expected an object such as"),
    ("some.jsonl", b'{"text": "a", "kind": 1}\n{"text": "b"}\n', r"line 2 .*\['kind', 'text'\]"),
])
def test_what_is_no_text_is_named(tmp_path: Path, name: str, content: bytes, said: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ArtifactError, match=said):
        read_texts(path)
