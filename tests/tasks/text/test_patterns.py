"""Does each pattern find the key that a loop over tokens finds?"""

from __future__ import annotations

import torch

from latentcode.tasks.text.tokens import PATTERNS, keys_at, possible_queries

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
