"""Do the sources of a text differ in what they say, and does an answer tell whose it is?"""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from small_text import CONFIG, small_text
from torch import Tensor

from latentcode.answers import CLASSES
from latentcode.config import LogicConfig
from latentcode.errors import ConfigError
from latentcode.seeds import make_generator
from latentcode.tasks import make_counterfactuals, make_task
from latentcode.tasks.counterfactuals import OTHERS, MinimalPairs
from latentcode.tasks.text.counterfactuals import ROLES, TextCounterfactuals
from latentcode.tasks.text.patterns import previous_same
from latentcode.tasks.text.replacing import at
from latentcode.tasks.text.task import whole

TASK = small_text()
FACTORIAL, PLAIN = TextCounterfactuals(TASK), TextCounterfactuals(TASK, factorial=False)
PAIRS, PLAIN_PAIRS = (of.sample("ood", 300, make_generator(0, "pairs"))
                      for of in (FACTORIAL, PLAIN))
V = CONFIG.n_vocabulary


def saying(pairs: MinimalPairs, token: Tensor) -> Tensor:
    """Return logits of a model that says a token at the query."""
    here = F.one_hot(pairs.bases.info["query"], CONFIG.n_tokens)[:, :, None]
    return (here * F.one_hot(token, V)[:, None] * 9.0).float()


def changed(a: Tensor, b: Tensor) -> list[list[int]]:
    return [row.nonzero()[:, 0].tolist() for row in a != b]


def test_the_text_itself_copies() -> None:
    for pairs, batch in ((PAIRS, PAIRS.sources), (PLAIN_PAIRS, PLAIN_PAIRS.bases)):
        text = TASK.build("ood", batch.info["sequence"], batch.info["query"])
        assert torch.equal(whole(batch), whole(text))
        assert torch.equal(at(text.targets, batch.info["query"]), batch.info["copied"])
        assert torch.equal(at(text.inputs, batch.info["key"]), batch.info["copied"])
        earlier = previous_same(text.inputs)
        assert torch.equal(at(earlier, batch.info["query"]) + 1, batch.info["key"])
        assert (at(earlier, batch.info["key"] - 1) == -1).all()
        assert pairs.counts.float().mean() > 0.5


def test_sources_differ_in_place_and_as_they_say() -> None:
    pairs = PAIRS[PAIRS.counts]
    own, info = pairs.bases.inputs, pairs.bases.info
    a, b = at(own, info["query"]), info["copied"]
    wanted = {"sources": {-1}, "operands": {0}, "operation+operands": {-1, 0}}
    for name, places in wanted.items():
        found = changed(own, pairs.batch(name).inputs)
        assert all(set(row) == {int(key) + place for place in places}
                   for row, key in zip(found, info["key"], strict=True))
    for name in OTHERS:
        batch = pairs.batch(name)
        query, first, second = (at(batch.inputs, where) for where in (
            info["query"], info["key"] - 1, info["key"]))
        if name != "unrelated":
            assert torch.equal(first == query, batch.info["copying"])
            assert batch.info["copying"].all() == ("operation" in name)
            assert torch.equal(second == b, torch.full_like(b, "operands" not in name).bool())
        assert torch.equal(second, batch.info["copied"])
        comes = at(batch.targets, info["query"])
        assert torch.equal(comes[batch.info["copying"]], second[batch.info["copying"]])
        was = at(TASK.build("ood", batch.info["sequence"], info["query"]).inputs, info["key"] - 1)
        if name == "rest":  # as it was, but for what would copy
            assert torch.equal(first == was, was != query)
        if name == "unrelated":
            assert torch.equal(first, was)
        same_text = torch.equal(batch.info["sequence"], info["sequence"])
        assert same_text == ("rest" not in name and name != "unrelated")
    assert not (at(own, info["key"] - 1) == a).any()


def test_what_replaces_a_token_is_like_it() -> None:
    table = TASK.token_table
    for pairs in (PAIRS[PAIRS.counts], PLAIN_PAIRS[PLAIN_PAIRS.counts]):
        other = pairs.others["operands"] if pairs.others else pairs.sources
        now, was = (batch.info["copied"] for batch in (other, pairs.bases))
        assert (now != was).all()
        for column in (table.classes, table.spaced, TASK.frequency_bins):
            values = torch.from_numpy(column)
            assert torch.equal(values[now], values[was])


def test_pairs_of_given_instances_count_where_they_copy_what_occurred_once() -> None:
    text = TASK.sample("ood", 300, make_generator(1, "given"))
    pairs = PLAIN.pairs_of(text, make_generator(0, "pairs"))
    assert torch.equal(pairs.bases.inputs, text.inputs)
    for tokens, q, counts in zip(whole(text).tolist(), text.info["query"].tolist(),
                                 pairs.counts.tolist(), strict=True):
        before = [s for s in range(q) if tokens[s] == tokens[q]]
        if counts:
            assert len(before) == 1
            assert tokens[before[0] + 1] == tokens[q + 1]
    assert 0.1 < pairs.counts.float().mean() < 0.9


def test_the_control_changes_other_tokens() -> None:
    for pairs in (PAIRS, PLAIN_PAIRS):
        info = pairs.bases.info
        found = changed(pairs.bases.inputs, pairs.control.inputs)
        assert sum(map(len, found)) > 1.5 * len(pairs)
        for row, key, query in zip(found, info["key"], info["query"], strict=True):
            assert not {int(key), int(key) - 1, int(query)} & set(row)
            assert max(row, default=0) < query
        was, now = (batch.inputs[pairs.bases.inputs != pairs.control.inputs]
                    for batch in (pairs.bases, pairs.control))
        row = (pairs.bases.inputs != pairs.control.inputs).nonzero()[:, 0]
        for tokens in (was, now):
            assert not (tokens == info["copied"][row]).any()
        assert not (now == at(pairs.bases.inputs, info["query"])[row]).any()
        assert torch.equal(pairs.control.info["copied"], info["copied"])


def test_pairs_that_the_model_does_not_answer_do_not_count() -> None:
    b, other = PAIRS.sources.info["copied"], PAIRS.others["operands"].info["copied"]
    third = (torch.maximum(b, other) + 1) % V
    says = {"B": saying(PAIRS, b), "B'": saying(PAIRS, other), "third": saying(PAIRS, third)}
    rows = PAIRS.counts & (third != torch.minimum(b, other))
    wanted = {"bases": "third", "sources": "B", "operands": "third", "control": "third",
              "operation+operands": "B'"}
    for of, right in wanted.items():
        for what, logits in says.items():
            assert (FACTORIAL.right(PAIRS, logits, of)[rows] == (what == right)).all()
    for of, right in {"bases": "B", "sources": "B'", "control": "B"}.items():
        mine = saying(PLAIN_PAIRS, PLAIN_PAIRS.batch(of).info["copied"])
        assert PLAIN.right(PLAIN_PAIRS, mine, of).all(), right


def test_answers_have_classes() -> None:
    pairs = PAIRS[PAIRS.counts]
    b, other = pairs.sources.info["copied"], pairs.others["operands"].info["copied"]
    clean = (torch.maximum(b, other) + 1) % V
    elsewhere = (torch.maximum(b, other) + 2) % V
    keep = (clean != torch.minimum(b, other)) & (elsewhere != torch.minimum(b, other))
    written = pairs.with_sources("operation+operands")
    for name, token in (("base", clean), ("operation", b), ("answer", other),
                        ("else", elsewhere)):
        found = FACTORIAL.outcomes(written, saying(pairs, clean), saying(pairs, b),
                                   saying(pairs, token))
        assert {of: float(found[of][keep].mean()) for of in CLASSES} == {
            of: float(of == name) for of in CLASSES}
        assert (found["flip"] == (name == "answer"))[keep].all()
        assert (found["unchanged"] == (name == "base"))[keep].all()


def test_sources_copy_from_elsewhere() -> None:
    task = TextCounterfactuals(TASK, operation="elsewhere")
    drawn = task.sample("ood", 300, make_generator(0, "pairs"))
    assert drawn.counts.float().mean() > 0.4
    pairs = drawn[drawn.counts]
    own, info = pairs.bases.inputs, pairs.bases.info
    assert torch.equal(whole(pairs.bases), whole(
        TASK.build("ood", info["sequence"], info["query"])))
    query, here, there = info["query"], info["key"], pairs.sources.info["key"]
    assert ((here - there).abs() > 1).all()
    assert (there < query).all()
    assert all(len(set(row)) == 4 for row in pairs.candidates.tolist())
    assert torch.equal(pairs.candidates[:, 1].long(), at(own, there))
    answers = dict(zip(("", "operation", "operands", "operation+operands"),
                       pairs.candidates.long().unbind(1), strict=True))
    for name in ("bases", "sources", *OTHERS):
        batch = pairs.batch(name)
        if name == "unrelated":
            assert torch.equal(batch.inputs, TASK.build(
                "ood", batch.info["sequence"], query).inputs)
            continue
        is_elsewhere = name == "sources" or "operation" in name
        assert (batch.info["elsewhere"] == is_elsewhere).all()
        # Copied from its own place: the query's token stands there, and not at the other.
        is_a = [at(batch.inputs, key - 1) == at(batch.inputs, query) for key in (here, there)]
        assert is_a[is_elsewhere].all()
        assert not is_a[not is_elsewhere].any()
        part = "+".join(x for x in ("operation", "operands") if x in name or (
            x == "operation" and name == "sources"))
        says = at(batch.inputs, batch.info["key"])
        assert torch.equal(says, answers[part])
        assert torch.equal(says, at(batch.targets, query))
        assert torch.equal(batch.info["copied"], says)
        assert task.right(pairs, saying(pairs, says), name).all()
        if "rest" not in name:
            found = changed(own, batch.inputs)
            assert all(set(row) <= {int(k) - 1, int(k), int(t) - 1, int(t)}
                       for row, k, t in zip(found, here, there, strict=True))
    for row, k, t in zip(changed(own, pairs.control.inputs), here, there, strict=True):
        assert not {int(k) - 1, int(k), int(t) - 1, int(t)} & set(row)
    assert task.membership(pairs.sources)[:, 0].float().mean(0).tolist() == [0.0, 1.0]
    clean = saying(pairs, answers[""])
    written = pairs.with_sources("operation+operands")
    for name, of in (("base", ""), ("operation", "operation"), ("operands", "operands"),
                     ("answer", "operation+operands")):
        outcome = task.outcomes(written, clean, saying(pairs, answers["operation+operands"]),
                                saying(pairs, answers[of]))
        assert (outcome[name] == 1).all()
    with pytest.raises(ConfigError, match="unknown scope 'pair'"):
        task.scope("pair", pairs)
    with pytest.raises(ConfigError, match="unknown operation 'there'"):
        TextCounterfactuals(TASK, operation="there")


def test_without_a_factorial_an_answer_moves() -> None:
    pairs = PLAIN_PAIRS[PLAIN_PAIRS.counts]
    clean, source = (saying(pairs, batch.info["copied"]) for batch in (
        pairs.bases, pairs.sources))
    half = PLAIN.outcomes(pairs, clean, source, 0.25 * source + 0.75 * clean)
    torch.testing.assert_close(half["moved"], torch.full_like(half["moved"], 0.25))
    assert (half["unchanged"] == 1).all()
    assert (PLAIN.outcomes(pairs, clean, source, source)["flip"] == 1).all()
    assert not set(CLASSES) & set(half)


def test_the_likelier_of_two_answers() -> None:
    likelier = TextCounterfactuals(TASK, factorial=False)
    likelier.answer_among("answers")
    pairs = PLAIN_PAIRS[PLAIN_PAIRS.counts]
    ours, theirs = (saying(pairs, batch.info["copied"]) for batch in (
        pairs.bases, pairs.sources))
    faint = ours + 0.5 * theirs
    faint[..., 0] += 99.0  # rather something else
    assert likelier.right(pairs, faint, "bases").all()
    assert not PLAIN.right(pairs, faint, "bases").any()
    assert likelier.chance == 0.5
    with pytest.raises(ConfigError, match="factorial=False"):
        TextCounterfactuals(TASK).answer_among("answers")
    with pytest.raises(ConfigError, match="among is 'answers'; expected 'vocabulary'"):
        make_counterfactuals(make_task(LogicConfig())).answer_among("answers")


def test_scopes_hold_the_induction_pair() -> None:
    pairs = PAIRS[:50]
    info, at_b = pairs.bases.info, torch.arange(50)
    masks = {name: FACTORIAL.scope(name, pairs) for name in FACTORIAL.scopes}
    sizes = {"pair": 1, "row": 24, "feature": 48, "everything": 576}
    assert {name: set(mask.sum((1, 2)).tolist()) for name, mask in masks.items()} == {
        name: {size} for name, size in sizes.items()}
    assert masks["pair"][at_b, info["query"], info["key"]].all()
    assert torch.equal(FACTORIAL.scope("induction", pairs), masks["pair"])
    assert masks["feature"][at_b, info["key"]].all()
    assert (masks["feature"] | ~masks["row"]).all()
    for name in ("pair", "row"):
        there = FACTORIAL.scope(name, pairs, elsewhere=True)
        assert not (there & masks[name]).any()


def test_roles_are_those_of_the_pair() -> None:
    names, role = FACTORIAL.roles(PAIRS)
    assert names == ROLES
    info, at_b = PAIRS.bases.info, torch.arange(len(PAIRS))
    for name, where in (("query", info["query"]), ("key", info["key"]),
                        ("earlier", info["key"] - 1), ("previous", info["query"] - 1)):
        assert (role[at_b, where] == names.index(name)).all()
        assert (role == names.index(name)).sum() == len(PAIRS)
    assert set(role.flatten().tolist()) == set(range(len(names)))
