"""Are the instances that are drawn again those that the codes were extracted from?"""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from small_extraction import draw_at_once

import latentcode as lc
import latentcode.codes.reader as instances_module
from latentcode.codes.reader import TaskSource
from latentcode.errors import ConfigError, SplitError, UnknownNameError


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> lc.Run:
    """Of a model that was never trained, as far as instances need one."""
    folder = tmp_path_factory.mktemp("run") / "untrained"
    return lc.Run.create(folder, lc.preset("smoke", "sraven", "softmax"))


@pytest.mark.parametrize("n", [5, 8, 21])
def test_they_are_those_that_are_extracted(
    run: lc.Run, n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw_at_once(monkeypatch, 8)
    codes = lc.extract(run, split="test", n=n, seed=3, untrained=True)
    task = lc.make_task(run.config.task)
    for source in (run, run.path, str(run.path), task, run.config.task):
        batch = lc.instances(source, "test", n, seed=3)
        labels = task.labels(batch)
        pd.testing.assert_frame_equal(labels, codes.labels[list(labels)])
    few = lc.instances(run, "test", [n - 1, 0, 2], seed=3)
    assert torch.equal(few.inputs, batch.inputs[[n - 1, 0, 2]])
    for given in (np.array([n - 1, 0, 2]), torch.tensor([n - 1, 0, 2])):
        assert torch.equal(lc.instances(run, "test", given, seed=3).inputs, few.inputs)
    assert torch.equal(lc.instances(run, "test", np.int64(n), seed=3).inputs, batch.inputs)


def test_defaults_are_those_of_extract(run: lc.Run) -> None:
    ours, theirs = (inspect.signature(f).parameters for f in (lc.instances, lc.extract))
    for name in ("split", "seed"):
        assert ours[name].default == theirs[name].default


@pytest.mark.parametrize(("arguments", "error", "message"), [
    (("ood", 0), ConfigError, "n is 0; expected at least 1"),
    (("odd",), UnknownNameError, "unknown split 'odd'"),
    (("unknown",), SplitError, "has no split 'unknown'"),
])
def test_what_cannot_be_drawn_is_said(
    run: lc.Run, arguments: tuple[Any, ...], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        lc.instances(run, *arguments)


def test_fewer_pass_at_once_where_logits_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    source = TaskSource(lc.make_task(lc.SravenConfig()), "ood", n=20)  # 36 tokens, 8 logits
    for limit, expected in ((2**28, 16), (10 * 36 * 8 * 4 + 3, 10), (1, 1)):
        monkeypatch.setattr(instances_module, "LOGIT_BYTES", limit)
        block, = source.blocks(0, layers=(0,), most=64, batch_size=16)
        assert len(next(block.batches)) == expected
