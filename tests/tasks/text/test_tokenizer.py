"""Does a tokenizer give back what it was given, and is one that does not fit refused?"""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_language_models import SmallModels
from text_files import sentences, write_documents
from tokenizers import Tokenizer, models

import latentcode as lc
from latentcode.config import LanguageConfig
from latentcode.errors import ArtifactError, ConfigError
from latentcode.tasks.text.sources import open_text
from latentcode.tasks.text.tokenizer import (
    END,
    load_tokenizer,
    tokenizer_from,
    trained_tokenizer,
)

ODD = ["", "naïve 日本\t\r\n  x", f"a document that says {END} and </s>", "🜁" * 5]


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LanguageConfig:
    monkeypatch.setenv("LATENTCODE_CACHE", str(tmp_path / "cache"))
    return LanguageConfig(text=str(write_documents(tmp_path / "text")), n_vocabulary=300,
                          n_tokens=16)


def test_training_gives_back_every_text_and_is_the_same_again() -> None:
    texts = [sentences(50, seed) for seed in range(3)]
    one, other = (trained_tokenizer(texts, 300) for _ in range(2))
    assert one.to_json() == other.to_json()
    assert (one.n_tokens, one.end, one.pieces[0]) == (300, 0, END)
    encoded = one.encode([*texts, *ODD])
    assert [one.decode(ids) for ids in encoded] == [*texts, *ODD]
    assert not any(one.end in ids for ids in encoded)
    assert "".join(one.pieces[i] for i in encoded[0]) == texts[0]
    assert "\ufffd" in {one.pieces[i] for i in encoded[-1]}
    again = tokenizer_from(one.to_json(), "it", END)
    assert again.encode(ODD) == one.encode(ODD)


def test_a_tokenizer_is_loaded_from_its_file_or_folder(
    config: LanguageConfig, small_models: SmallModels, tmp_path: Path
) -> None:
    trained = open_text(config)
    (tmp_path / "own").mkdir()
    file = tmp_path / "own" / "tokenizer.json"
    file.write_text(trained.tokenizer.to_json())
    for name in (file, file.parent):
        loaded = open_text(replace(config, tokenizer=str(name)))
        assert loaded.tokenizer.pieces == trained.tokenizer.pieces
        assert loaded.config.revision == trained.config.revision
    vocabulary = {"<begin>": 0, "<stop>": 1, "x": 2}
    Tokenizer(models.WordLevel(vocabulary, "x")).save(str(file))
    with pytest.raises(ConfigError, match="own has no token that ends a document; expected eos_to"):
        load_tokenizer(str(file.parent), 300)
    for said in ("<stop>", {"content": "<stop>", "lstrip": False}):
        (file.parent / "tokenizer_config.json").write_text(json.dumps({"eos_token": said}))
        assert load_tokenizer(str(file.parent), 300).end == 1


def test_a_tokenizer_that_does_not_fit_is_named(config: LanguageConfig, tmp_path: Path) -> None:
    file = tmp_path / "tokenizer.json"
    file.write_text(open_text(config).tokenizer.to_json())
    with pytest.raises(ConfigError, match=r"tokenizer.json has 300 tokens; expected at most task.n"
                       r"_vocabulary = 299"):
        open_text(replace(config, tokenizer=str(file), n_vocabulary=299))
    with pytest.raises(ConfigError, match="n_vocabulary is 256; expected at least 257 to train"):
        open_text(replace(config, n_vocabulary=256))
    file.write_text("{}")
    with pytest.raises(ConfigError, match=r"tokenizer\.json is no tokenizer"):
        open_text(replace(config, tokenizer=str(file)))
    with pytest.raises(ConfigError, match=r"a folder without tokenizer\.json"):
        open_text(replace(config, tokenizer=config.text))


@pytest.mark.slow
def test_training_does_not_go_on_with_another_tokenizer(
    config: LanguageConfig, tmp_path: Path
) -> None:
    file = tmp_path / "tokenizer.json"
    file.write_text(open_text(config).tokenizer.to_json())
    start = lc.preset("smoke", "language", "softmax")
    start = replace(start, task=replace(config, tokenizer=str(file)), model=replace(
        start.model, d_input=300, d_output=300, n_buckets=16, max_distance=16))
    run = lc.train(start, tmp_path / "run", progress=False)
    text = [sentences(50, 7)]
    file.write_text(trained_tokenizer(text, 290).to_json())
    with pytest.raises(ConfigError, match=rf"now; expected '{run.config.task.revision}'") as error:
        lc.train(start, run.path, resume=True, progress=False)
    assert "text or its tokenizer has changed" in str(error.value)
    stored = run.path / "text" / "tokenizer.json"
    shutil.copyfile(file, stored)
    with pytest.raises(ArtifactError, match=r"text/tokenizer.json was damaged or changed"):
        lc.make_task(lc.Run.open(run.path).config.task)


@given(st.text(st.sampled_from("the value code é🙂\n\t"), max_size=20))
def test_tokens_are_located_in_their_text(text: str) -> None:
    tokenizer = trained_tokenizer(["the value of a code is the code of a value\n"] * 3, 280)
    ids, spans = tokenizer.locate(text)
    assert ids == tokenizer.encode([text])[0]
    covered = [False] * len(text)
    for number, (first, last) in zip(ids, spans, strict=True):
        assert first < last
        covered[first:last] = [True] * (last - first)
        piece = tokenizer.pieces[number]
        assert "\ufffd" in piece or piece == text[first:last]
    assert all(covered)
    assert [first for first, _ in spans] == sorted(first for first, _ in spans)
