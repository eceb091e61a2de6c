"""`latentcode zoo check` on models that were saved to a local folder."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from small_language_models import SmallModels

from latentcode.cli import main
from latentcode.models import pretrained
from latentcode.probes.model_checks import ModelCheckResult


def test_the_exit_status_says_whether_a_model_is_supported(
    small_models: SmallModels, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out = tmp_path / "result"
    main(["zoo", "check", str(small_models("llama")), "--lengths", "3", "6", "--out", str(out)])
    shown = capsys.readouterr().out
    assert "llama (LlamaForCausalLM, float32): SUPPORTED" in shown
    assert f"wrote result {out}" in shown
    assert ModelCheckResult.load(out).settings["lengths"] == [3, 6]
    assert (out / "figure.png").stat().st_size > 1_000
    main(["show", str(out)])
    assert "SUPPORTED" in capsys.readouterr().out
    monkeypatch.setattr(pretrained, "add_seam", lambda *_: False)
    with pytest.raises(SystemExit) as stopped:
        main(["zoo", "check", str(small_models("gptj")), "--lengths", "3"])
    assert stopped.value.code == 1
    shown = capsys.readouterr().out
    assert "NOT SUPPORTED in full: patch" in shown
    assert "wrote" not in shown


def test_bad_input_is_one_line(
    small_models: SmallModels, tmp_path: Path, refused: Callable[..., str]
) -> None:
    folder = small_models("gpt2")
    pickled = shutil.copytree(folder, tmp_path / "pickled")
    (pickled / "model.safetensors").rename(pickled / "pytorch_model.bin")
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.txt").touch()
    for arguments, message in (
        ([pickled], "holds no weights in safetensors"),
        ([folder, "--lengths", "1"], "expected at least 2 tokens each"),
        ([folder, "--lengths", "99"], "expected at most 64, the context of the model"),
        ([folder, "--out", tmp_path / "thesis"], "exists already"),
        ([small_models("mamba")], "shows no attention"),
    ):
        assert message in refused("zoo", "check", *arguments)
    assert [path.name for path in (tmp_path / "thesis").iterdir()] == ["chapter.txt"]
