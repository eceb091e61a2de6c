"""Does the command say what the function says, and save its codes?"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from small_language_models import SmallModels

import latentcode as lc
from latentcode.cli import main

PROMPT = "The capital of France is"


def test_the_command_says_what_the_function_says(
    small_models: SmallModels, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, out = small_models("gpt2"), tmp_path / "codes"
    model = lc.load_pretrained(folder)
    plain = lc.generate(model, PROMPT, max_new_tokens=5, logits=True)
    cut = lc.generate(model, PROMPT, max_new_tokens=5, logits=True, patches=[
        lc.Patch("zero_ablation", layers=0, heads=3, queries="prompt"),
        lc.Patch("zero_ablation", layers=1, queries="prompt")])
    assert not np.allclose(plain.logits, cut.logits, atol=1e-4)
    main(["generate", str(folder), PROMPT, "--max-new-tokens", "5", "--without", "L0H3", "1",
          "--at", "prompt", "--out", str(out)])
    said = capsys.readouterr().out.splitlines()
    assert said[:3] == [PROMPT, f"the model: {plain.text!r}", f"without L0H3 1: {cut.text!r}"]
    assert said[-1] == f"wrote codes {out}"
    codes = lc.LatentCodes.load(out)
    np.testing.assert_array_equal(codes.scores, cut.codes().scores)
    assert codes.labels["text"].tolist() == cut.table["text"].tolist()
    main(["generate", str(folder), PROMPT, "--max-new-tokens", "5", "--temperature", "1.0",
          "--seed", "3", "--dtype", "bfloat16", "--prepend-bos", "no"])
    drawn = lc.generate(lc.load_pretrained(folder, dtype="bfloat16"), PROMPT, max_new_tokens=5,
                        temperature=1.0, seed=3, prepend_bos=False)
    assert f"the model: {drawn.text!r}" in capsys.readouterr().out


def test_what_the_command_does_not_take(
    small_models: SmallModels, refused: Callable[..., str], tmp_path: Path
) -> None:
    folder = small_models("gpt2")
    for options, message in (
        (["--without", "head"],
         "without is 'head'; expected LAYER.HEAD, such as 5.3, or a LAYER"),
        (["--without", "0.4"],
         "head 4 at site 'code'; expected 0 to 3, heads of codes, values, messages or z"),
        (["--max-new-tokens", "0"], "max_new_tokens is 0; expected a whole number of at least 1"),
        (["--revision", "step1"], f"revision is 'step1', and {str(folder)!r} is a folder here, "
         "which has none; expected a name on the Hugging Face hub, or the folder of that revision"),
        (["--device", "gpu"], "device is 'gpu'; expected cpu, cuda or cuda:N"),
        (["--dtype", "int8"], "unknown dtype 'int8'; expected one of: float32, bfloat16, float16, "
         "float64"),
    ):
        assert refused("generate", folder, PROMPT, *options) == f"error: {message}"
    assert "PROMPT" in refused("generate", folder)


def test_heads_that_are_none_are_refused_before_it_says_anything(
    small_models: SmallModels, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["generate", str(small_models("gpt2")), PROMPT, "--without", "7.1"])
    printed = capsys.readouterr()
    assert "unknown layer 7" in printed.err
    assert not printed.out
