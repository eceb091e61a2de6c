"""Is local text read in an order that a seed determines, each token once, and held out for good?"""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import torch
from disk import fails
from text_files import sentences, write_documents

from latentcode.config import LanguageConfig
from latentcode.errors import ArtifactError, ConfigError, LatentCodeError
from latentcode.tasks.text.sources import (
    about_packages,
    cut,
    local_documents,
    open_text,
    plain_documents,
)

T = 16


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LanguageConfig:
    monkeypatch.setenv("LATENTCODE_CACHE", str(tmp_path / "cache"))
    folder = write_documents(tmp_path / "text")
    return LanguageConfig(text=str(folder), n_vocabulary=300, n_tokens=T)


def test_every_token_of_an_epoch_is_predicted_once(config: LanguageConfig) -> None:
    data = open_text(config)
    stream = data.stream(3)
    n = 4 * stream.per_epoch // T  # a few epochs, whose ends lie inside of sequences
    sequences = stream[0:n]
    assert torch.equal(sequences[1:, 0], sequences[:-1, -1])
    flat = torch.cat([sequences[:1, 0], sequences[:, 1:].flatten()])
    orders = set()
    for epoch in range(3):
        start = epoch * stream.per_epoch
        text = data.tokenizer.decode(flat[start:start + stream.per_epoch].tolist())
        documents = text.removesuffix("<|endoftext|>").split("<|endoftext|>")
        held_out = {0, 10, 20, 30}
        # The files of `first` come first: every tenth document of the sorted list is held out.
        files = sorted(Path(config.text).rglob("*.txt"))
        kept = [file.read_text() for i, file in enumerate(files) if i not in held_out]
        assert sorted(documents) == sorted(kept)
        orders.add(tuple(documents))
    assert len(orders | {tuple(kept)}) == 4


def test_the_order_depends_on_the_seed_and_not_on_how_it_is_read(config: LanguageConfig) -> None:
    data = open_text(config)
    stream = data.stream(0)
    whole = stream[0:600]
    assert torch.equal(whole[400:450], data.stream(0)[400:450])
    assert torch.equal(whole[:9], torch.cat([stream[i:i + 1] for i in range(9)]))
    assert not torch.equal(whole, data.stream(1)[0:600])
    stream.go_to(json.loads(json.dumps(stream.cursor(5))))
    with pytest.raises(ArtifactError, match="stopped in the text of revision 'other'"):
        stream.go_to({"revision": "other"})


def test_excerpts_are_of_their_split_and_know_their_documents(config: LanguageConfig) -> None:
    data = open_text(config)
    assert data.splits == ("train", "test", "ood")
    names = {}
    for split in data.splits:
        excerpts = data.excerpts(split)
        assert excerpts.tokens.shape[1] == T + 1
        names[split] = set(excerpts.documents["name"])
        row = excerpts.documents.iloc[int(excerpts.document[0, 0])]
        text = (Path(config.text) / row["name"]).read_text()
        assert text.startswith(data.tokenizer.decode(excerpts.tokens[0].tolist()))
        assert row["source"] == row["name"].split("/")[0]
        assert row["kind"] == "txt"
    assert names["test"] == {"first/000.txt", "second/001.txt"}
    assert not names["test"] & names["ood"] | names["train"] & (names["test"] | names["ood"])


def test_a_source_that_is_held_out_is_the_split_ood(config: LanguageConfig) -> None:
    data = open_text(replace(config, held_out_sources=("second",)))
    assert set(data.excerpts("ood").documents["source"]) == {"second"}
    assert set(data.excerpts("train").documents["source"]) == {"first"}
    with pytest.raises(ConfigError, match=r"names 'third'; the text has first, second"):
        open_text(replace(config, held_out_sources=("third",)))


def test_the_excerpts_are_found_again_and_a_changed_text_is_noticed(config: LanguageConfig) -> None:
    data = open_text(config)
    full = data.config
    assert full == replace(config, revision=full.revision)
    (Path(config.text) / "first" / "000.txt").write_text("changed")
    assert open_text(config).config.revision != full.revision
    again = open_text(full)
    assert torch.equal(again.excerpts("test").tokens, data.excerpts("test").tokens)
    with pytest.raises(ConfigError, match=rf"now; expected '{full.revision}'"):
        again.stream(0)


def test_tables_are_read_with_what_they_say(tmp_path: Path) -> None:
    rows = {"text": ["One.", "  ", "Two."], "name": ["a", "b", "c"], "kind": ["md", "", "py"]}
    (tmp_path / "hub" / "data").mkdir(parents=True)
    (tmp_path / "hub" / "README.md").write_text("not a document")
    pd.DataFrame(rows).to_parquet(tmp_path / "hub" / "data" / "train-0.parquet")
    found = list(local_documents(tmp_path / "hub", "text"))
    assert [(d.text, d.name, d.source, d.kind) for d in found] == [
        ("One.", "a", "", "md"), ("Two.", "c", "", "py")]
    lines = tmp_path / "lines" / "web"
    lines.mkdir(parents=True)
    (lines / "x.jsonl").write_text('{"body": "One."}\n\n{"body": "Two.", "name": "two"}\n')
    (lines / "picture.png").write_bytes(b"\x89PNG\0\xff")
    (lines / "__init__.py").touch()
    found = list(local_documents(tmp_path / "lines", "body"))
    assert [(d.text, d.name, d.source) for d in found] == [
        ("One.", "web/x.jsonl#1", "web"), ("Two.", "two", "web")]


@pytest.mark.parametrize(("said", "known"), [
    ('{"packages": []}', {"packages": []}), ('{"mine": 1}', {}), ("[1]", {}), ("oh", {})])
def test_a_file_of_ones_own_is_not_taken_for_ours(
    said: str, known: dict[str, object], tmp_path: Path
) -> None:
    (tmp_path / "about.json").write_text(said)
    assert about_packages(tmp_path) == known


def test_a_long_file_is_cut_and_nothing_is_lost(tmp_path: Path) -> None:
    text = sentences(3_000, 0).replace(". The", ".\n\nThe")
    for longest in (50, 1_000, 2**15):
        pieces = cut(text, longest)
        assert "".join(pieces) == text
        assert max(map(len, pieces)) <= longest
    assert cut("", 5) == []
    assert cut("x" * 11, 5) == ["xxxxx", "xxxxx", "x"]
    (tmp_path / "a.txt").write_text("One. Two.")
    assert [d.name for d in plain_documents(tmp_path / "a.txt", "a", "", 8)] == ["a#0", "a#1"]


def test_a_single_short_file_is_enough(config: LanguageConfig, tmp_path: Path) -> None:
    file = tmp_path / "alone.md"
    file.write_text(sentences(120, 0))
    data = open_text(replace(config, text=str(file)))
    assert data.splits == ("train", "test", "ood")
    assert len(list(local_documents(file, "text"))) >= 40


@pytest.mark.parametrize("word", ["The", "Мир"])
def test_a_folder_of_few_files_is_cut_so_that_some_can_be_held_out(
    word: str, config: LanguageConfig, tmp_path: Path
) -> None:
    folder = tmp_path / "few"
    folder.mkdir()
    for number in range(8):
        (folder / f"{number}.md").write_text(sentences(40, number).replace("The", word), "utf-8")
    (folder / "picture.png").write_bytes(b"\x89PNG\0" * 1_500_000)
    for number in range(40):
        (folder / f"small{number}.png").write_bytes(b"\x89PNG\0")
    assert open_text(replace(config, text=str(folder))).splits == ("train", "test", "ood")
    found = list(local_documents(folder, "text"))
    assert len(found) >= 40
    whole = "".join(d.text for d in found if d.name.startswith("3.md"))
    assert whole == (folder / "3.md").read_text("utf-8")
    for number in range(8, 40):
        (folder / f"{number}.md").write_text("One.")
    assert [d.text for d in local_documents(folder, "text") if d.name.startswith("3.md")] == [whole]
    (folder / "a.jsonl").write_text('{"text": "One."}')
    assert [d.text for d in local_documents(folder, "text") if d.name == "3.md"] == [whole]


@pytest.mark.parametrize(("files", "message"), [
    ({"text": b""}, "text holds no text: every file in it is empty or binary"),
    ({"text": b"\x80abc"}, "text holds no text: every"),
    ({"text/a.bin": b"\0\0"}, "holds no text: every file in it is empty or binary"),
    ({"text/.hidden": b"x"}, "text holds no files"),
    ({"text/a.jsonl": b'{"text": "x"}\n{"body": "x"}'}, "a.jsonl#2 has columns body; exp"),
    ({"text/a.jsonl": b"[1]"}, "a.jsonl line 1 is .1.; expected an object"),
    ({"text/a.jsonl": b'{"text": 3}'}, "a.jsonl#1 has text 3; expected text"),
    ({"text/a.jsonl": b"oh"}, "a.jsonl line 1 is not JSON"),
    ({"text/a.parquet": b"oh"}, "a.parquet' cannot be read"),
    ({"text/a.jsonl": b'{"text": "' + b"x " * 900 + b'"}'},
     "too little text for split train; expected at least 17"),
    ({"text/a.txt": b"x " * 4, "text/b.txt": b"y " * 3}, "too little text for split t"),
])
def test_text_that_cannot_be_used_is_named(
    files: dict[str, bytes], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LATENTCODE_CACHE", str(tmp_path / "cache"))
    for name, data in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(data)
    with pytest.raises(LatentCodeError, match=message) as error:
        open_text(LanguageConfig(text=str(tmp_path / "text"), n_vocabulary=300, n_tokens=T))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["tokenizer", "excerpts.safetensors"])
def test_a_full_disk_leaves_nothing_half_written(config: LanguageConfig, name: str) -> None:
    cache = Path(os.environ["LATENTCODE_CACHE"])
    endings = {"tokenizer": ".json"}
    with fails(os, "fsync", lambda path: path.endswith(endings.get(name, name))), pytest.raises(
            ArtifactError, match="No space left"):
        open_text(config)
    assert not [file for file in cache.rglob("*") if ".tmp-" in file.name]
    assert open_text(config).splits == ("train", "test", "ood")
