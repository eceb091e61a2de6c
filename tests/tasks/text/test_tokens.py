"""Are keys of patterns and labels of tokens what slow code says?"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from latentcode.tasks.text.tokens import (
    PATTERNS,
    TokenTable,
    class_of,
    frequency_bins,
    keys_at,
    possible_queries,
    token_labels,
)

TOKENS = torch.randint(6, (40, 14), generator=torch.Generator().manual_seed(0))


def by_hand(row: list[int], q: int) -> dict[str, int]:
    same = max((s for s in range(q) if row[s] == row[q]), default=-1)
    return {"query->induction": same + 1 if same >= 0 else -1, "query->same": same,
            "query->previous": q - 1, "query->first": 0, "query->self": q}


def test_keys_are_those_of_a_loop() -> None:
    for q in range(TOKENS.shape[1]):
        found = keys_at(TOKENS, torch.full((40,), q), tuple(PATTERNS))
        wanted = [list(by_hand(row, q).values()) for row in TOKENS.tolist()]
        assert found.tolist() == wanted


def test_queries_have_a_key_of_every_pattern_and_no_two_the_same() -> None:
    wanted = [[len(keys) == len(set(keys)) and min(keys) >= 0 for q in range(TOKENS.shape[1])
               for keys in [list(by_hand(row, q).values())]] for row in TOKENS.tolist()]
    found = possible_queries(TOKENS)
    assert found.tolist() == wanted
    assert 0.2 < found.float().mean() < 0.8


PIECES = ("<end>", "f", "(", ")", "\n", "    ", "[", "x", "1", "Ab")


def ids(*pieces: str) -> Tensor:
    return torch.tensor([[PIECES.index(piece) for piece in pieces]])


@pytest.mark.parametrize(("piece", "wanted"), [
    ("word", "letter"), (" word", "letter"), ("é", "letter"), (" 12", "digit"), ("   ", "space"),
    ("\t", "space"), (" \n ", "newline"), ("...", "punctuation"), ("'", "punctuation"),
    (" {", "bracket"), ("](", "bracket"), ("x1", "mixed"), ("();", "mixed"), ("\ufffd", "mixed"),
    ("", "space")])
def test_classes_of_characters(piece: str, wanted: str) -> None:
    assert class_of(piece) == wanted


def test_labels_of_a_query_its_key_and_what_comes_next() -> None:
    tokens = ids("f", "(", "Ab", "x", ")", "\n", "    ", "f", "(", "Ab", "1", "[")
    table = TokenTable(PIECES, end=0)
    rows = token_labels(tokens.expand(2, -1), torch.tensor([8, 9]), table)
    assert rows.to_dict("list") == {
        "query_class": ["bracket", "letter"], "key_class": ["letter", "letter"],
        "next_class": ["letter", "digit"], "copied": [True, False], "distance": ["4-7", "4-7"]}
    near = token_labels(ids("x", "x", "f", "x", "1"), torch.tensor([1]), table).iloc[0]
    assert near.distance == "1"
    far = token_labels(ids("x", *"f(1" * 5, "x", "1"), torch.tensor([16]), table).iloc[0]
    assert far.distance == "16-31"


def test_frequencies_are_decades_in_a_million() -> None:
    assert frequency_bins(torch.tensor([0] * 999_899 + [1] * 100 + [2]), 4).tolist() == [5, 2, 0, 0]
