"""Are the weights of the published setting as many as docs/text.md says?"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import latentcode as lc
from latentcode.models.config import with_kind
from latentcode.models.transformer import HookedTransformer

PAGE = Path(__file__).parents[3] / "docs" / "text.md"


@pytest.mark.parametrize("kind", ["softmax", "linear", "hyla"])
def test_the_page_counts_the_weights_of_every_reading(kind: str) -> None:
    rows = re.findall(
        r"^\| (per head|the sum) \| (GELU|SwiGLU) \| (.+) \|$", PAGE.read_text(), re.MULTILINE)
    assert len(rows) == 4
    published = lc.preset("paper", "language", kind).model
    table = published.d_input * published.d_model
    for width, feedforward, counts in rows:
        d_head = 64 if width == "per head" else 64 // published.n_heads
        config = replace(published, d_head=d_head, d_head_v=d_head,
                         feedforward=feedforward.lower())
        with torch.device("meta"):
            model = HookedTransformer(with_kind(config, kind))
        once = sum(weight.numel() for weight in model.parameters())
        assert [f"{n / 1e6:.1f}" for n in (once, once + table, once - table)] == [
            count.strip("* ") for count in counts.split("|")]
    assert (published.d_head, published.feedforward) == (64, "gelu")


def test_the_published_setting_sees_130_billion_tokens() -> None:
    config = lc.preset("paper", "language", "softmax")
    per_step = config.training.batch_size * config.task.n_tokens
    assert (config.training.steps - 1) * per_step < 130e9 <= config.training.steps * per_step
    assert (config.task.text, config.task.subset) == ("allenai/c4", "en")  # type: ignore[attr-defined]
