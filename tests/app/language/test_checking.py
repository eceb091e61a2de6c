"""Is what can be shown known by its files, before the server starts?"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from asked_language import texts_file
from small_language_models import SmallModels

from latentcode.app.language.given import checked
from latentcode.errors import ConfigError


def test_what_can_be_shown_is_known_by_its_files(
    small_models: SmallModels, tmp_path: Path
) -> None:
    texts = texts_file(tmp_path)
    one = checked([str(small_models("gpt2"))], str(texts))
    assert one.model.short == "gpt2"
    assert one == checked([str(small_models("gpt2"))], str(texts))
    copy = shutil.copytree(small_models("gpt2"), tmp_path / "gpt2")
    assert checked([str(copy)], str(texts)).model.identity != one.model.identity


@pytest.mark.parametrize(("content", "named"), [("", "no texts"), ("The\n" * 3, "at least 4")])
def test_texts_that_are_too_few(
    small_models: SmallModels, tmp_path: Path, content: str, named: str
) -> None:
    path = tmp_path / "texts.txt"
    path.write_text(content)
    with pytest.raises(ConfigError, match=named):
        checked([str(small_models("gpt2"))], str(path))
