"""Does a text ask, answer and label what it says?"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from small_text import CONFIG, SmallText, small_text

from latentcode.config import LanguageConfig
from latentcode.devices import make_generator
from latentcode.errors import ConfigError, SplitError
from latentcode.tasks import try_task
from latentcode.tasks.registry import REGISTRY
from latentcode.tasks.text.task import Text, whole
from latentcode.tasks.text.tokens import PATTERNS, possible_queries

TASK = small_text()
BATCH = TASK.sample("ood", 300, make_generator(0, "text"))


def test_instances_are_successive_tokens_of_one_split() -> None:
    excerpts = TASK.excerpts("ood")
    assert torch.equal(whole(BATCH), excerpts.tokens[BATCH.info["sequence"]])
    assert torch.equal(BATCH.inputs[:, 1:], BATCH.targets[:, :-1])
    assert torch.equal(BATCH.combination, excerpts.document[
        BATCH.info["sequence"], BATCH.info["query"]])
    assert len(TASK.combinations("ood")) == len(excerpts.documents) > BATCH.combination.max()


def test_no_document_is_of_two_splits() -> None:
    known = [set(TASK.combinations(split).flatten().tolist()) for split in TASK.splits]
    assert len(set.union(*known)) == sum(map(len, known)) == 3 * 60


def test_every_excerpt_is_drawn_before_any_is_drawn_again() -> None:
    counts = torch.bincount(BATCH.info["sequence"], minlength=len(TASK.excerpts("ood").tokens))
    drawn = counts[counts > 0]
    assert drawn.max() - drawn.min() <= 1
    again = TASK.sample("ood", 300, make_generator(0, "text"))
    assert torch.equal(again.info["query"], BATCH.info["query"])


def test_pairs_are_found_for_every_query() -> None:
    query, key = TASK.positions(tuple(PATTERNS), BATCH)
    assert next(iter(TASK.pairs)) == "query->induction"
    at = torch.arange(len(BATCH))
    induction, same = key[:, 0], key[:, 1]
    assert torch.equal(BATCH.inputs[at, same], BATCH.inputs[at, query[:, 0]])
    assert torch.equal(induction, same + 1)
    assert all(len(set(row)) == len(PATTERNS) for row in key.tolist())
    assert not (BATCH.inputs[at, query[:, 0]] == 0).any()


def test_the_end_of_a_document_is_no_query() -> None:
    long = replace(CONFIG, n_tokens=300)
    task = Text(long, SmallText(300))
    inputs = task.excerpts("ood").tokens[:, :-1]
    queries = task.queries("ood", torch.device("cpu"))
    assert possible_queries(inputs)[inputs == 0].any()
    assert not queries[inputs == 0].any()
    assert torch.equal(queries[inputs != 0], possible_queries(inputs)[inputs != 0])


def test_losses_are_the_cross_entropy_of_every_token() -> None:
    logits = torch.randn(4, 24, 80, generator=torch.Generator().manual_seed(0))
    batch = BATCH[:4]
    wanted = [[-torch.log_softmax(logits[b, t], 0)[batch.targets[b, t]] for t in range(24)]
              for b in range(4)]
    found = TASK.measures(logits, batch)
    assert torch.allclose(found["loss"], torch.tensor(wanted).mean(1))
    assert torch.allclose(found["query_loss"], torch.tensor(
        [row[q] for row, q in zip(wanted, batch.info["query"], strict=True)]))
    assert torch.equal(TASK.losses(logits, batch.targets), found["loss"])
    logits[0].scatter_(1, batch.targets[:1].T, 99.0)
    sure = TASK.measures(logits, batch)
    assert sure["accuracy"][0] == sure["query_accuracy"][0] == 1.0


def test_perplexity_has_the_error_of_clusters() -> None:
    loss = np.random.default_rng(0).normal(3.0, 0.2, 50)
    once = TASK.summarize({"loss": loss, "accuracy": loss, "sequence": np.arange(50)})
    twice = TASK.summarize({"loss": np.repeat(loss, 2), "accuracy": np.repeat(loss, 2),
                            "sequence": np.repeat(np.arange(50), 2)})
    assert once["perplexity"].mean == pytest.approx(np.exp(loss.mean()))
    assert once["perplexity"].se == pytest.approx(
        np.exp(loss.mean()) * loss.std(ddof=1) / np.sqrt(50))
    assert twice["perplexity"].se == pytest.approx(once["perplexity"].se)
    assert "sequence" not in once


def test_labels_are_of_the_query_and_its_document() -> None:
    labels = TASK.labels(BATCH)
    pieces = TASK.data.tokenizer.pieces
    for i in range(20):
        tokens, q = whole(BATCH)[i].tolist(), int(BATCH.info["query"][i])
        row = labels.iloc[i]
        assert (row.query_token, row.target) == (pieces[tokens[q]], pieces[tokens[q + 1]])
        assert row.copied == (row.target == row.key_token)
        assert row.document == f"ood/{row.combination.removeprefix('ood ')}.txt"
    assert 0.1 < labels["copied"].mean() < 0.9
    assert TASK.probe_labels == ("copied", "next_class", "query_class", "key_class")
    assert set(TASK.probe_labels) <= set(labels)
    assert not labels.isna().any().any()
    assert set(TASK.row_labels(labels, None)) >= {"operand_query", "copied", "answer"}


def test_training_reads_the_stream() -> None:
    order = TASK.in_order(3)
    batch = order.read(5, 4, torch.device("cpu"))
    assert torch.equal(whole(batch), TASK.data.stream(3)[slice(5, 9)])
    assert order.cursor(5) == {"sequence": 5}


def test_a_text_is_tried_as_a_task_of_ones_own_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(REGISTRY, "file", lambda name: "text.py")
    try_task(TASK, "train", "ood")


def test_sequences_that_are_too_short_are_named() -> None:
    short = LanguageConfig(n_vocabulary=80, n_tokens=3, text="in memory")
    with pytest.raises(ConfigError, match=r"excerpts of split 'ood', 3 tokens each, none has"):
        Text(short, SmallText(3)).sample("ood", 4, make_generator(0, "text"))
    with pytest.raises(SplitError, match="no split 'unknown'"):
        small_text(CONFIG).sample("unknown", 4, make_generator(0, "text"))
