"""Is it said before the server starts what cannot be shown?"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from asked_language import texts_file
from small_language_models import SmallModels

from latentcode.app.language.checking import checked
from latentcode.errors import ArtifactError, ConfigError, LatentCodeError


def test_what_can_be_shown_is_known_by_its_files(
    small_models: SmallModels, tmp_path: Path
) -> None:
    texts = texts_file(tmp_path)
    one = checked([str(small_models("gpt2"))], str(texts))
    assert one.model.short == "gpt2"
    assert one == checked([str(small_models("gpt2"))], str(texts))
    copy = shutil.copytree(small_models("gpt2"), tmp_path / "gpt2")
    assert checked([str(copy)], str(texts)).model.identity != one.model.identity


@pytest.mark.parametrize(("content", "said"), [
    ("", "holds no texts"), ("The\n" * 3, "expected at least 4"), ("x\n" * 9, "0 texts of two"),
])
def test_texts_that_are_too_few_or_too_short(
    small_models: SmallModels, tmp_path: Path, content: str, said: str
) -> None:
    path = tmp_path / "texts.txt"
    path.write_text(content)
    with pytest.raises(ConfigError, match=said):
        checked([str(small_models("gpt2"))], str(path))


def test_files_and_models_that_are_not_there(small_models: SmallModels, tmp_path: Path) -> None:
    with pytest.raises(LatentCodeError, match="which is no file"):
        checked([str(small_models("gpt2"))], str(tmp_path / "none.txt"))
    with pytest.raises(ArtifactError, match="does not exist"):
        checked([str(tmp_path / "none")], str(texts_file(tmp_path)))
    bare = shutil.copytree(small_models("gpt2"), tmp_path / "bare")
    (bare / "model.safetensors").unlink()
    with pytest.raises(ArtifactError, match="no weights"):
        checked([str(bare)], str(texts_file(tmp_path)))
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"prompt": "The capital of France is", "answer": " Paris"}\n' * 5)
    with pytest.raises(ConfigError, match="is a prompt"):
        checked([str(small_models("gpt2"))], str(prompts))


def test_several_models_and_one_token_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="2 models: a, b; expected one"):
        checked(["a", "b"], str(texts_file(tmp_path)))
    with pytest.raises(ConfigError, match="--longest is 1"):
        checked(["a"], str(texts_file(tmp_path)), longest=1)
