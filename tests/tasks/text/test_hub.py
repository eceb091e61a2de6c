"""Is a dataset read in its order, and does an interrupted pass go on exactly where it was?"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from disk import fails
from text_files import sentences

from latentcode.config import LanguageConfig
from latentcode.errors import ArtifactError, ConfigError, HubError
from latentcode.tasks.text import hub, opening, shards
from latentcode.tasks.text.opening import open_text
from latentcode.tasks.text.shards import ShardStream

T, SHARD = 8, 1024
KILLED = """
import os, signal
import latentcode.tasks.text.hub as hub, latentcode.tasks.text.opening as opening
import latentcode.tasks.text.shards as shards
from latentcode.config import LanguageConfig
opening.STREAMED, shards.SHARD, hub.AT_ONCE = 0, 1024, 4
stream = opening.open_text(LanguageConfig(text={text!r}, n_vocabulary=300, n_tokens=8)).stream(0)
stream._fetch = lambda shard: None
assert stream[0:300].shape == (300, 9)
batches = stream.text.token_batches
def dying(place):
    for n, batch in enumerate(batches(place)):
        if n == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        yield batch
stream.text.token_batches = dying
stream[300:600]
"""


def write_dataset(folder: Path, suffix: str = "parquet", held_out: bool = True) -> Path:
    """Write a data set in the layout of the hub: three files of training, one of validation."""
    (folder / "data").mkdir(parents=True)
    for split, number in [("train", 0), ("train", 1), ("train", 2), ("validation", 0)][
            :4 if held_out else 3]:
        table = pd.DataFrame({"text": [
            f"{split} {number} {row}\n{sentences(1 + row % 3, row)}" for row in range(30)]})
        file = folder / "data" / f"{split}-{number:05}.{suffix}"
        if suffix == "parquet":
            table.to_parquet(file, row_group_size=7)
        else:
            table.to_json(file, orient="records", lines=True)
    return folder


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LanguageConfig:
    monkeypatch.setenv("LATENTCODE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(opening, "STREAMED", 0)
    monkeypatch.setattr(shards, "SHARD", SHARD)
    monkeypatch.setattr(hub, "AT_ONCE", 4)
    return LanguageConfig(text=str(write_dataset(tmp_path / "text")), n_vocabulary=300, n_tokens=T)


def opened(config: LanguageConfig, seed: int = 0) -> ShardStream:
    stream = open_text(config).stream(seed)
    assert isinstance(stream, ShardStream)
    return stream


def end(stream: ShardStream) -> None:
    """Wait for what is made in the background."""
    if stream._next is not None:
        stream._next.join()


@pytest.mark.parametrize("suffix", ["parquet", "jsonl"])
def test_every_document_comes_once_an_epoch_in_the_order_of_the_dataset(
    suffix: str, tmp_path: Path, config: LanguageConfig
) -> None:
    config = replace(config, text=str(write_dataset(tmp_path / suffix, suffix)))
    stream = opened(config)
    tokenizer = open_text(config).tokenizer
    flat = [torch.from_numpy(stream._map(shard)[:-1].astype(int)) for shard in range(30)]
    text = tokenizer.decode(torch.cat(flat).tolist()).split("<|endoftext|>")
    names = [document.split("\n")[0] for document in text]
    epoch = [f"train {number} {row}" for number in range(3) for row in range(30)]
    assert names[:180] == epoch + epoch
    assert text[5] == f"train 0 5\n{sentences(3, 5)}"


def test_sequences_are_permuted_within_shards_alone(config: LanguageConfig) -> None:
    stream = opened(config)
    n = stream.per_shard
    assert n == SHARD // T
    plain = torch.from_numpy(stream._map(1).astype(int)).unfold(0, T + 1, T)
    for seed in (0, 1):
        read = opened(config, seed)[n:2 * n]
        assert not torch.equal(read, plain)
        assert sorted(read.tolist()) == sorted(plain.tolist())
    assert not torch.equal(opened(config, 0)[n:2 * n], opened(config, 1)[n:2 * n])
    end(stream)


def test_an_interrupted_pass_goes_on_exactly(
    config: LanguageConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = opened(config)
    n = 12 * stream.per_shard  # over the end of an epoch
    assert stream.step * 12 > sum(len(ids) for _, ids in zip(range(23), (
        tokens for _, tokens in stream.text.token_batches(hub.START)), strict=False))
    whole = stream[0:n]
    end(stream)
    assert len(list(stream.folder.glob("*.bin"))) <= shards.KEPT
    for first in (5, n // 2 + 3):
        cursor = json.loads(json.dumps(stream.cursor(first)))
        monkeypatch.setenv("LATENTCODE_CACHE", str(tmp_path / f"other{first}"))
        other = opened(config)
        other.go_to(cursor)
        assert torch.equal(other[first:n], whole[first:])
        end(other)
        made = len(list(other.folder.glob("*.json")))
        assert made <= 12 - first // stream.per_shard + 2  # nothing before the cursor was read
    with pytest.raises(ArtifactError, match="stopped in the text of revision 'other'"):
        stream.go_to({**cursor, "revision": "other"})
    with pytest.raises(ArtifactError, match="expected one of shards of 1024 tokens"):
        stream.go_to({**cursor, "step": 7})


@pytest.mark.slow
def test_a_killed_process_leaves_nothing_half_written(
    config: LanguageConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", KILLED.format(text=config.text)], timeout=120,
                          env=environment, check=False)
    assert done.returncode == -signal.SIGKILL
    stream = opened(config)
    assert {file.name for file in stream.folder.glob("*.bin")} == {
        "0000000.bin", "0000001.bin", "0000002.bin"}
    read = stream[0:600]
    end(stream)
    monkeypatch.setenv("LATENTCODE_CACHE", str(tmp_path / "undisturbed"))
    undisturbed = opened(config)
    assert torch.equal(read, undisturbed[0:600])
    end(undisturbed)


def test_processes_that_share_a_cache_make_a_shard_once(
    config: LanguageConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    streams = [opened(config) for _ in range(4)]
    made = []
    make = ShardStream._make
    monkeypatch.setattr(ShardStream, "_make", lambda self, shard, **options: (
        made.append(shard), make(self, shard, **options)))
    found: list[torch.Tensor] = []
    threads = [threading.Thread(target=lambda s=s: found.append(s[0:100])) for s in streams]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for stream in streams:
        end(stream)
    assert all(torch.equal(one, found[0]) for one in found)
    assert sorted(made) == [0, 1]


def test_what_is_held_out_is_the_validation_or_every_hundredth(
    config: LanguageConfig, tmp_path: Path
) -> None:
    data = open_text(config)
    first = {split: data.excerpts(split).documents["name"].tolist() for split in data.splits}
    assert first["test"] == [f"validation#{row}" for row in range(0, 30, 2)]
    assert first["ood"] == [f"validation#{row}" for row in range(1, 30, 2)]
    assert first["train"] == [f"train#{row}" for row in range(90)]
    alone = replace(config, text=str(write_dataset(tmp_path / "alone", held_out=False)))
    data = open_text(alone)
    assert data.excerpts("test").documents["name"].tolist() == ["train#0"]
    assert data.excerpts("ood").documents["name"].tolist() == ["train#50"]
    names = data.excerpts("train").documents["name"].tolist()
    assert names == [f"train#{row}" for row in range(90) if row not in (0, 50)]
    # From a place in the middle, too, reading knows how many documents came before.
    batches = opened(alone).text.token_batches(hub.START)
    place = [next(batches)[0] for _ in range(10)][-1]
    epoch = [next(opened(alone).text.token_batches(place))[1]]
    epoch += [tokens for (at, tokens), _ in zip(batches, range(20), strict=False)
              if at["epoch"] == 0]
    text = data.tokenizer.decode(torch.from_numpy(np.concatenate(epoch)).tolist())
    read = [document.split("\n")[0] for document in text.split("<|endoftext|>")[:-1]]
    assert read == [f"train {row // 30} {row % 30}" for row in range(36, 90) if row != 50]


def test_what_cannot_be_reached_or_read_is_one_sentence(config: LanguageConfig) -> None:
    for name in ("allenai/c4", "wikitext"):
        with pytest.raises(HubError, match=rf"dataset '{name}' is not here, and the hub cannot be "
                           r".*latentcode zoo text packages FOLDER") as error:
            open_text(LanguageConfig(text=name))
        assert "\n" not in str(error.value)
        assert error.value.__suppress_context__
    with pytest.raises(HubError, match="tokenizer 'user/none' is not here, and the hub"):
        open_text(replace(config, tokenizer="user/none"))
    with pytest.raises(ConfigError, match=r"has columns text; expected 'body' \(task.column\)"):
        open_text(replace(config, column="body"))
    with pytest.raises(ConfigError, match="which does not exist; expected a folder"):
        open_text(replace(config, text="./nowhere"))


def test_a_full_disk_leaves_nothing_behind(config: LanguageConfig) -> None:
    stream = opened(config)
    stream._fetch = lambda shard: None  # type: ignore[method-assign]
    with fails(os, "fsync", lambda path: path.endswith(".bin")), pytest.raises(
            ArtifactError, match="No space left"):
        stream[0:5]
    assert not [file for file in stream.folder.iterdir() if file.suffix != ".lock"]
    assert stream[0:5].shape == (5, T + 1)
