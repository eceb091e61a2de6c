"""Is what one pass reads what the library's own questions say?"""

from __future__ import annotations

from dataclasses import replace
from io import BytesIO
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from asked_language import begun, texts_file
from small_language_models import SmallModels

from latentcode.app.language import planes
from latentcode.app.language import work as working
from latentcode.app.language.given import given
from latentcode.app.language.pair import neighbour_table
from latentcode.app.language.reading import Reading, folder_of, keep, kept, texts_for
from latentcode.errors import ArtifactError
from latentcode.probes.heads.clusters import flat_codes
from latentcode.probes.heads.codes import sample_codes
from latentcode.probes.heads.metrics import Observer, Sums, observe_texts
from latentcode.probes.projection import Projection
from latentcode.prompts import load_language_model
from latentcode.prompts.texts import TextBatch, Texts, source_of


@pytest.fixture(scope="module")
def texts(small_models: SmallModels, tmp_path_factory: pytest.TempPathFactory) -> Texts:
    path = texts_file(tmp_path_factory.mktemp("texts"))
    return texts_for(load_language_model(small_models("gpt2")), source_of(path), n=20, longest=12)


def test_pairs_and_metrics_are_those_of_the_library(texts: Texts) -> None:
    reading = Reading(texts, n_pairs=60)
    for batch in reading.batches():
        reading.add(batch)
    read = reading.read(whole=True)
    sample = sample_codes(texts.model, texts.batches(), n=60)
    assert read.codes.labels.equals(sample.codes.labels)
    np.testing.assert_allclose(read.codes.scores, sample.codes.scores, atol=1e-6)
    sums = Sums.zeros(*read.sums.sums.shape[1:3])
    observe_texts(Observer(texts.model.model), texts, sums)
    np.testing.assert_allclose(read.sums.sums, sums.sums, rtol=1e-6)
    assert read.n_texts == sums.n_texts == 20
    assert read.n_pairs == sum(t * (t + 1) // 2 - 1 for t in map(len, read.tokens))


def test_pairs_are_selected_where_a_selection_is(texts: Texts) -> None:
    reading = Reading(texts, n_pairs=8)
    for batch in reading.batches():
        reading.add(batch)
    read = reading.read(whole=True)
    points = flat_codes(read.codes, None)
    first = np.arange(len(points)) == 0
    for selected in (None, first):
        written = planes.pairs_csv(read, None, Projection(points[:, :2], "pca", {}, {}),
                                   pd.Series(first, name="key"), selected)
        assert pd.read_csv(BytesIO(written))["selected"].tolist() == (
            [False] * len(points) if selected is None else first.tolist())


def test_the_largest_attention_of_a_text_is_where_it_says(texts: Texts) -> None:
    reading = Reading(texts, n_pairs=10)
    for batch in reading.batches():
        reading.add(batch)
    read = reading.read(whole=True)
    for text in (0, 7):
        ids = torch.from_numpy(read.tokens[text].astype(np.int64))[None]
        _, cache = texts.model.model.run_with_cache(ids)
        for layer in range(2):
            a = cache[f"blocks.{layer}.attn.hook_pattern"][0]
            np.testing.assert_allclose(read.maxima[text, layer], a[:, 1:, 1:].amax((1, 2)),
                                       atol=1e-5)
            for head in range(4):
                at = int(read.query[text, layer, head]), int(read.key[text, layer, head])
                assert float(a[head][at]) == pytest.approx(
                    float(read.maxima[text, layer, head]), abs=1e-5)


def test_neighbours_in_other_texts_are_not_in_copies(texts: Texts) -> None:
    lines = [given.text for given in texts.source.read()][:6]
    copied = texts_for(texts.model, source_of([*lines, *(f"{text} and more" for text in lines)]),
                       n=12, longest=4)
    reading = Reading(copied, n_pairs=200)
    for batch in copied.batches():
        reading.add(batch)
    read = reading.read(whole=True)
    of = next(row for row in range(len(read.codes)) if read.rows[row] == 0)
    found = neighbour_table(read, read.codes.scores[of, :, 0], None, text=0)
    same = [row for row, tokens in enumerate(read.tokens)
            if np.array_equal(tokens, read.tokens[0])]
    assert len(same) > 1
    assert len(found) > 0
    assert not set(read.rows[found["number"]]) & set(same)


def test_the_pairs_so_far_are_those_of_the_texts_so_far(texts: Texts) -> None:
    few = texts_for(texts.model, texts.source, n=20, longest=12)
    few.tokens_at_once = 24
    reading = Reading(few, n_pairs=60)
    batches = list(reading.batches())
    reading.add(batches[0])
    begun_with = reading.read(whole=False)
    assert begun_with.n_texts == len(batches[0])
    assert set(begun_with.rows) <= set(range(begun_with.n_texts))
    for batch in batches[1:]:
        reading.add(batch)
    assert reading.read(whole=True).codes.labels.equals(
        sample_codes(texts.model, texts.batches(), n=60).codes.labels)


def test_what_was_read_is_kept_and_damage_is_seen(texts: Texts, tmp_path: Path) -> None:
    reading = Reading(texts, n_pairs=30)
    for batch in reading.batches():
        reading.add(batch)
    read = reading.read(whole=True)
    keep(read, tmp_path / "kept")
    found = kept(tmp_path / "kept")
    assert found is not None
    assert found.codes.labels.equals(read.codes.labels)
    assert np.array_equal(found.codes.scores, read.codes.scores)
    assert all(np.array_equal(a, b) for a, b in zip(found.tokens, read.tokens, strict=True))
    assert np.array_equal(found.sums.sums, read.sums.sums)
    assert kept(tmp_path / "nothing") is None
    file = tmp_path / "kept" / "read.safetensors"
    file.write_bytes(file.read_bytes()[:-8] + b"\0" * 8)
    with pytest.raises(ArtifactError):
        kept(tmp_path / "kept")


def test_a_job_goes_on_until_all_is_read(
    small_models: SmallModels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[bool, str]] = []
    add = Reading.add

    def watched(reading: Reading, batch: TextBatch) -> None:
        job = working.work().job
        seen.append((job.is_over, job.doing))
        add(reading, batch)

    monkeypatch.setattr(Reading, "add", watched)
    with begun(monkeypatch, small_models("gpt2"), texts_file(tmp_path)) as work:
        assert work.job.is_over
    assert seen[0] == (False, "Reading 24 texts")  # a page that sees it over never looks again


def test_another_start_reads_the_cache_and_a_damaged_one_again(
    small_models: SmallModels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = texts_file(tmp_path)
    with begun(monkeypatch, small_models("gpt2"), path) as work:
        job = work.job
        assert job.error is None
        assert job.read is not None
        assert job.read.whole
        first = job.read
    asked = given()
    assert asked is not None
    folder = folder_of(asked)
    assert folder_of(replace(asked, digest="others")) != folder
    stamp = (folder / "read.json").stat().st_mtime_ns
    with begun(monkeypatch, small_models("gpt2"), path) as work:
        job = work.job
        assert job.read is not None
        assert job.read.codes.labels.equals(first.codes.labels)
        assert (folder / "read.json").stat().st_mtime_ns == stamp
        assert not job.said
    (folder / "read.json").write_text("{}")
    with begun(monkeypatch, small_models("gpt2"), path) as work:
        job = work.job
        assert "damaged" in job.said
        assert job.read is not None
        assert job.read.codes.labels.equals(first.codes.labels)
