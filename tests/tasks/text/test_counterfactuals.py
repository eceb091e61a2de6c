"""Do the sources of a text differ in what they say, and does an answer tell whose it is?"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from small_text import CONFIG, small_text
from torch import Tensor

from latentcode.devices import make_generator
from latentcode.metrics import CLASSES
from latentcode.tasks import make_counterfactuals
from latentcode.tasks.base import at
from latentcode.tasks.counterfactuals import OTHERS, MinimalPairs
from latentcode.tasks.text.counterfactuals import ROLES, TextCounterfactuals
from latentcode.tasks.text.task import whole
from latentcode.tasks.text.tokens import previous_same

TASK = small_text()
TEXT = TextCounterfactuals(TASK)
DRAWN = TEXT.sample("ood", 300, make_generator(0, "pairs"))
PAIRS = DRAWN[DRAWN.counts]
V = CONFIG.n_vocabulary


def saying(pairs: MinimalPairs, token: Tensor) -> Tensor:
    """Return logits of a model that says a token at the query."""
    here = F.one_hot(pairs.bases.info["query"], CONFIG.n_tokens)[:, :, None]
    return (here * F.one_hot(token, V)[:, None] * 9.0).float()


def changed(a: Tensor, b: Tensor) -> list[list[int]]:
    return [row.nonzero()[:, 0].tolist() for row in a != b]


def places(pairs: MinimalPairs) -> list[set[int]]:
    """Return p, p + 1, p' and p' + 1 of every pair."""
    info = pairs.bases.info["places"]
    return [set(row) for row in torch.cat([info, info + 1], 1).tolist()]


def test_the_text_itself_copies() -> None:
    info = PAIRS.bases.info
    assert 0.4 < DRAWN.counts.float().mean() < 1.0
    text = TASK.build("ood", info["sequence"], info["query"])
    assert torch.equal(whole(PAIRS.bases), whole(text))
    earlier = previous_same(text.inputs)
    p = info["places"][:, 0]
    assert torch.equal(at(earlier, info["query"]), p)
    assert (at(earlier, p) == -1).all()
    assert torch.equal(at(text.inputs, p + 1), at(text.targets, info["query"]))


def test_sources_copy_from_elsewhere() -> None:
    own, info = PAIRS.bases.inputs, PAIRS.bases.info
    query, (here, there) = info["query"], info["places"].unbind(1)
    assert ((here - there).abs() > 1).all()
    assert (there + 1 < query).all()
    assert PAIRS.candidates is not None
    assert all(len(set(row)) == 4 for row in PAIRS.candidates.tolist())
    assert torch.equal(PAIRS.candidates[:, :2], TEXT.answers(PAIRS))
    answers = dict(zip(("", "operation", "operands", "operation+operands"),
                       PAIRS.candidates.long().unbind(1), strict=True))
    for name in ("bases", "sources", *OTHERS):
        batch = PAIRS.batch(name)
        if name == "unrelated":
            assert torch.equal(batch.inputs, TASK.build(
                "ood", batch.info["sequence"], query).inputs)
            continue
        is_elsewhere = name == "sources" or "operation" in name
        assert (batch.info["elsewhere"] == is_elsewhere).all()
        # Copied from its own place: the query's token stands there, and not at the other.
        is_a = [at(batch.inputs, place) == at(batch.inputs, query) for place in (here, there)]
        assert is_a[is_elsewhere].all()
        assert not is_a[not is_elsewhere].any()
        part = "+".join(x for x in ("operation", "operands") if x in name or (
            x == "operation" and name == "sources"))
        says = at(batch.inputs, (there if is_elsewhere else here) + 1)
        assert torch.equal(says, answers[part])
        assert torch.equal(says, at(batch.targets, query))
        assert torch.equal(batch.info["copied"], says)
        assert TEXT.right(PAIRS, saying(PAIRS, says), name).all()
        assert not TEXT.right(PAIRS, saying(PAIRS, (says + 1) % V), name).any()
        same_text = torch.equal(batch.info["sequence"], info["sequence"])
        assert same_text == ("rest" not in name)
        if same_text:
            assert all(set(row) <= known for row, known in zip(
                changed(own, batch.inputs), places(PAIRS), strict=True))
    assert TEXT.membership(PAIRS.sources)[:, 0].float().mean(0).tolist() == [0.0, 1.0]


def test_what_replaces_a_token_is_like_it() -> None:
    table = TASK.token_table
    now, was = (batch.info["copied"] for batch in (PAIRS.others["operands"], PAIRS.bases))
    assert (now != was).all()
    for column in (table.classes, table.spaced, TASK.frequency_bins):
        values = torch.from_numpy(column)
        assert torch.equal(values[now], values[was])


def test_pairs_of_given_instances_count_where_they_copy_what_occurred_once() -> None:
    text = TASK.sample("ood", 300, make_generator(1, "given"))
    pairs = TEXT.pairs_of(text, make_generator(0, "pairs"))
    for tokens, q, counts in zip(whole(text).tolist(), text.info["query"].tolist(),
                                 pairs.counts.tolist(), strict=True):
        before = [s for s in range(q) if tokens[s] == tokens[q]]
        if counts:
            assert len(before) == 1
            assert tokens[before[0] + 1] == tokens[q + 1]
    assert 0.1 < pairs.counts.float().mean() < 0.9


def test_the_control_changes_other_tokens() -> None:
    info = PAIRS.bases.info
    rows = changed(PAIRS.bases.inputs, PAIRS.control.inputs)
    assert sum(map(len, rows)) > 1.5 * len(PAIRS)
    for row, known, query in zip(rows, places(PAIRS), info["query"].tolist(), strict=True):
        assert not known & set(row)
        assert max(row, default=0) < query
    was, now = (batch.inputs[PAIRS.bases.inputs != PAIRS.control.inputs]
                for batch in (PAIRS.bases, PAIRS.control))
    row = (PAIRS.bases.inputs != PAIRS.control.inputs).nonzero()[:, 0]
    for tokens in (was, now):
        assert not (tokens == info["copied"][row]).any()
    assert not (now == at(PAIRS.bases.inputs, info["query"])[row]).any()
    assert torch.equal(PAIRS.control.info["copied"], info["copied"])


def test_answers_have_classes() -> None:
    assert PAIRS.candidates is not None
    base, operation, operands, answer = PAIRS.candidates.long().unbind(1)
    other = (PAIRS.candidates.long().amax(1) + 1) % V
    keep = (other[:, None] != PAIRS.candidates).all(1)
    written = PAIRS.with_sources("operation+operands")
    for name, token in (("base", base), ("operation", operation), ("operands", operands),
                        ("answer", answer), ("else", other)):
        outcome = TEXT.outcomes(written, saying(PAIRS, base), saying(PAIRS, answer),
                                saying(PAIRS, token))
        assert {of: float(outcome[of][keep].mean()) for of in CLASSES} == {
            of: float(of == name) for of in CLASSES}
        assert (outcome["flip"] == (name == "answer"))[keep].all()
        assert (outcome["unchanged"] == (name == "base"))[keep].all()


def test_without_a_factorial_there_are_two_answers() -> None:
    plain = make_counterfactuals(TASK, factorial=False)
    pairs = plain.sample("ood", 300, make_generator(0, "pairs"))
    assert torch.equal(pairs.sources.inputs, DRAWN.sources.inputs)
    assert not pairs.others
    pairs = pairs[pairs.counts]
    clean, source = (saying(pairs, answer.long()) for answer in plain.two_answers(pairs))
    assert plain.right(pairs, clean, "bases").all()
    assert plain.right(pairs, source, "sources").all()
    outcome = plain.outcomes(pairs, clean, source, source)
    assert (outcome["flip"] == 1).all()
    assert not set(CLASSES) & set(outcome)


def test_scopes_and_places_hold_the_query_and_both_places() -> None:
    pairs = PAIRS[:50]
    info, each = pairs.bases.info, torch.arange(50)
    row, everything = (TEXT.scope(name, pairs) for name in TEXT.scopes)
    assert row.sum((1, 2)).tolist() == [24] * 50
    assert row[each, info["query"]].all()
    assert everything.all()
    assert not (TEXT.scope("row", pairs, elsewhere=True) & row).any()
    assert torch.equal(TEXT.scope("response", pairs), row)
    for name, shift in (("context", 0), ("operands", 1)):
        tokens = TEXT.place(name, pairs)
        assert [set(mask.nonzero()[:, 0].tolist()) for mask in tokens] == [
            set(both) for both in (info["places"] + shift).tolist()]


def test_roles_are_those_of_the_two_places() -> None:
    names, role = TEXT.roles(PAIRS)
    assert names == ROLES
    info, each = PAIRS.bases.info, torch.arange(len(PAIRS))
    p, other = info["places"].unbind(1)
    for name, where in (("query", info["query"]), ("key", p + 1), ("earlier", p)):
        assert (role[each, where] == names.index(name)).all()
        assert (role == names.index(name)).sum() == len(PAIRS)
    assert ((role[each, other] == names.index("other earlier")) | (other == p + 1)).all()
    assert set(role.flatten().tolist()) == set(range(len(names)))
