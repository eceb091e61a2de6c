"""Extraction to a folder: the bytes of `save`, in bounded memory, whatever interrupts it."""

from __future__ import annotations

import json
import tracemalloc
from contextlib import nullcontext
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest
import torch
from disk import contents, names
from small_extraction import MODEL, TASK, N, draw_at_once, interrupt_at, make_small, reader

import latentcode as lc
from latentcode.cli import main
from latentcode.codes import LatentCodes
from latentcode.codes import latent_codes as codes
from latentcode.codes import reader as reading
from latentcode.codes import resume as partial_codes
from latentcode.errors import ArtifactError, RunError
from latentcode.models.transformer import HookedTransformer
from latentcode.subjects import extract
from latentcode.tasks import make_task


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    make_small(monkeypatch)


# --- What is written ------------------------------------------------------------------------------


def test_the_real_sizes_fit_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert codes.SHARD % reading.DRAW == 0
    assert codes.SHARD == partial_codes.SHARD


@pytest.mark.parametrize(("n", "residuals"), [(1, False), (15, True), (16, True), (N, True),
                                              (N, False)])
def test_the_folder_is_what_save_would_write(tmp_path: Path, n: int, residuals: bool) -> None:
    memory = reader(n=n, residuals=residuals).read()
    memory.save(tmp_path / "saved")
    streamed = reader(n=n, residuals=residuals).read(tmp_path / "streamed")
    assert names(tmp_path) == ["saved", "streamed"]
    assert contents(tmp_path / "streamed") == contents(tmp_path / "saved")
    np.testing.assert_array_equal(streamed.scores, memory.scores)
    pd.testing.assert_frame_equal(streamed.labels, memory.labels)
    assert (streamed.pairs, streamed.layers, streamed.meta, streamed.query_of_pair) == (
        memory.pairs, memory.layers, memory.meta, memory.query_of_pair)
    assert (streamed.residuals is None) == (memory.residuals is None) == (not residuals)
    if streamed.residuals is not None and memory.residuals is not None:
        np.testing.assert_array_equal(streamed.residuals, memory.residuals)
    LatentCodes.load(tmp_path / "streamed")  # checksums and all


def test_a_folder_of_codes_is_replaced_on_request_alone(tmp_path: Path) -> None:
    model, task, out = HookedTransformer(MODEL).eval(), make_task(TASK), tmp_path / "codes"
    old = extract(model, task, split="ood", n=5, out=out)
    with pytest.raises(RunError, match="codes exists already"):
        extract(model, task, split="ood", n=6, out=out)
    assert len(LatentCodes.load(out)) == len(old) == 5
    assert len(extract(model, task, split="ood", n=6, out=str(out), overwrite=True)) == 6
    assert len(LatentCodes.load(out)) == 6
    assert names(tmp_path) == ["codes"]


def test_what_cannot_be_extracted_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(lc.LatentCodeError):
        reader(pairs=["q->k"]).read(tmp_path / "codes")
    (tmp_path / "file").write_text("")
    for place in ("file", "file/codes"):
        with pytest.raises((ArtifactError, RunError)):
            reader().read(tmp_path / place)
    assert names(tmp_path) == ["file"]


# --- Memory ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("to_folder", [True, False])
def test_memory_does_not_grow_with_the_number_of_instances(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, to_folder: bool
) -> None:
    """In memory, a further instance costs the 200 bytes of its codes and labels; on the way to a
    folder, what is noted of each draw and shard, here of no more than 256 and 512 instances."""
    draw_at_once(monkeypatch, 256)
    for module in (codes, partial_codes):
        monkeypatch.setattr(module, "SHARD", 512)
    monkeypatch.setattr(LatentCodes, "load", lambda *folder, **how: object.__new__(
        LatentCodes))  # what is opened is not counted

    def peak(n: int) -> int:
        source = reader(n=n, residuals=False, batch_size=256)
        tracemalloc.start()
        try:
            if to_folder:
                source.read(tmp_path / "codes", overwrite=True)
            else:
                source.read()
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(512)  # what is imported and cached
    growth = (peak(2_048) - peak(1_024)) / 1_024
    assert growth < 40 if to_folder else growth > 120


# --- The command ----------------------------------------------------------------------------------


def test_the_command_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = lc.RunConfig(TASK, MODEL, lc.TrainingConfig(
        steps=1, batch_size=4, warmup_steps=0, eval_instances=4))
    run = lc.Run.create(tmp_path / "run", config)
    run.save_checkpoint(1, HookedTransformer(MODEL), torch.optim.AdamW(
        HookedTransformer(MODEL).parameters()), {}, {})
    out = tmp_path / "codes"
    command = ["extract", str(run.path), "--n", str(N), "--out"]
    with monkeypatch.context() as patch:
        progress = Mock(side_effect=interrupt_at(40))
        patch.setattr("latentcode.cli.questions.Bar", lambda what: nullcontext(progress))
        with pytest.raises(SystemExit) as stopped:
            main([*command, str(out)])
    assert stopped.value.code == 130
    told = " ".join(capsys.readouterr().err.split())
    assert "instances are kept in" in told
    assert "codes.partial; the same extraction goes on" in told
    main([*command, str(out)])
    assert f"wrote codes {out}" in capsys.readouterr().out
    main([*command, str(tmp_path / "whole")])
    assert contents(out) == contents(tmp_path / "whole")
    assert json.loads((out / "meta.json").read_text())["meta"]["run_id"] == run.id
    assert len(lc.extract(run, n=N, out=out, overwrite=True)) == N
