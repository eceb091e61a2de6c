"""Is a dataset read in its order, and does an interrupted pass go on exactly where it was?"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from text_files import sentences

from latentcode.config import LanguageConfig
from latentcode.errors import ArtifactError, ConfigError, HubError
from latentcode.tasks.text import sources, streams
from latentcode.tasks.text.sources import digest_of_files, open_text
from latentcode.tasks.text.streams import START, Place, ShardStream

T, SHARD = 8, 1024


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
    monkeypatch.setattr(sources, "STREAMED", 0)
    monkeypatch.setattr(streams, "SHARD", SHARD)
    monkeypatch.setattr(streams, "AT_ONCE", 4)
    return LanguageConfig(text=str(write_dataset(tmp_path / "text")), n_vocabulary=300, n_tokens=T)


def opened(config: LanguageConfig, seed: int = 0) -> ShardStream:
    return open_text(config).stream(seed)


def in_order(stream: ShardStream, first: int, last: int) -> torch.Tensor:
    """Return the tokens of shards as they stand in the text, with the one that follows."""
    shards = []
    for shard in range(first, last):
        read = stream[shard * stream.per_shard:(shard + 1) * stream.per_shard]
        order = np.random.default_rng([stream.seed, shard]).permutation(stream.per_shard)
        shards.append(read[torch.from_numpy(np.argsort(order))])
    rows = torch.cat(shards)
    assert torch.equal(rows[1:, 0], rows[:-1, -1])  # every token is predicted once
    return torch.cat([rows[0, :1], rows[:, 1:].flatten()])


@pytest.mark.parametrize("suffix", ["parquet", "jsonl"])
def test_every_document_comes_once_an_epoch_in_the_order_of_the_dataset(
    suffix: str, tmp_path: Path, config: LanguageConfig
) -> None:
    config = replace(config, text=str(write_dataset(tmp_path / suffix, suffix)))
    tokenizer = open_text(config).tokenizer
    stream = opened(config)
    assert stream.revision.partition("-")[0] == digest_of_files(Path(config.text))
    flat = in_order(stream, 0, 30)
    text = tokenizer.decode(flat.tolist()).split("<|endoftext|>")
    names = [document.split("\n")[0] for document in text]
    epoch = [f"train {number} {row}" for number in range(3) for row in range(30)]
    assert names[:180] == epoch + epoch
    assert text[5] == f"train 0 5\n{sentences(3, 5)}"


def test_sequences_are_permuted_within_shards_alone(config: LanguageConfig) -> None:
    n = opened(config).per_shard
    assert n == SHARD // T
    plain = in_order(opened(config), 1, 2).unfold(0, T + 1, T)
    for seed in (0, 1):
        read = opened(config, seed)[n:2 * n]
        assert not torch.equal(read, plain)
        assert sorted(read.tolist()) == sorted(plain.tolist())
    assert not torch.equal(opened(config, 0)[n:2 * n], opened(config, 1)[n:2 * n])


def test_an_interrupted_pass_goes_on_exactly(
    config: LanguageConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = opened(config)
    n = 12 * stream.per_shard  # over the end of an epoch
    whole = stream[0:n]
    assert stream.cursor(n)["place"]["epoch"] > 0
    for first in (5, n // 2 + 3, n - 1):
        cursor = json.loads(json.dumps(stream.cursor(first)))
        monkeypatch.setenv("LATENTCODE_CACHE", str(tmp_path / f"other{first}"))
        other, begun = opened(config), []
        read = other._documents_from
        monkeypatch.setattr(other, "_documents_from", lambda place, read=read, begun=begun: (
            begun.append(place), read(place))[1])
        other.go_to(cursor)
        assert torch.equal(other[first:n], whole[first:])
        assert begun == [cursor["place"]]  # nothing before it was read
    assert torch.equal(stream[3:9], whole[3:9])  # back to what is not in memory any more
    with pytest.raises(ArtifactError, match="stopped in the text of revision 'other'"):
        stream.go_to({**cursor, "revision": "other"})
    with pytest.raises(ArtifactError, match="expected one of shards of 1024 tokens"):
        stream.go_to({**cursor, "step": 7})


def test_streams_of_one_machine_do_not_disturb_each_other(config: LanguageConfig) -> None:
    streams = [opened(config) for _ in range(4)]
    found: list[torch.Tensor] = []
    threads = [threading.Thread(target=lambda s=s: found.append(s[0:300])) for s in streams]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert all(torch.equal(one, found[0]) for one in found)


def test_what_fails_in_the_background_is_told_and_reading_goes_on(
    config: LanguageConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = opened(config)[0:300]
    stream = opened(config)
    documents = stream._documents_from

    def failing(place: Place) -> Iterator[tuple[Place, np.ndarray]]:
        if place != START:
            raise HubError("the network is gone")
        for number, document in enumerate(documents(place)):
            if number == 45:
                raise HubError("the network is gone")
            yield document

    monkeypatch.setattr(stream, "_documents_from", failing)
    assert torch.equal(stream[0:100], whole[:100])
    with pytest.raises(HubError, match="is gone"):
        stream[100:300]
    monkeypatch.setattr(stream, "_documents_from", documents)
    assert torch.equal(stream[100:300], whole[100:])


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
    documents = opened(alone)._documents_from(START)
    place = [next(documents)[0] for _ in range(36)][-1]
    epoch = [ids for at, ids in islice(opened(alone)._documents_from(place), 60)
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
    with pytest.raises(ConfigError, match="does not exist"):
        open_text(replace(config, text="./nowhere"))
