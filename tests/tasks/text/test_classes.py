"""Are the labels what a reader of the text would say?"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor

from latentcode.tasks.text.classes import (
    TokenTable,
    bracket_depth,
    class_of,
    frequency_bins,
    indentation,
    row_labels,
    token_labels,
)

PIECES = ("<end>", "f", "(", ")", ")(", "\n", "    ", " return", "\n\t", "[", "x", "1", "Ab", " ",
          "\n  y", "\n \n", " Ab")
TABLE = TokenTable(PIECES, end=0)


def ids(*pieces: str) -> Tensor:
    return torch.tensor([[PIECES.index(piece) for piece in pieces]])


@pytest.mark.parametrize(("piece", "wanted"), [
    ("word", "letter"), (" word", "letter"), ("é", "letter"), (" 12", "digit"), ("   ", "space"),
    ("\t", "space"), (" \n ", "newline"), ("...", "punctuation"), ("'", "punctuation"),
    (" {", "bracket"), ("](", "bracket"), ("x1", "mixed"), ("();", "mixed"), ("\ufffd", "mixed"),
    ("", "space")])
def test_classes_of_characters(piece: str, wanted: str) -> None:
    assert class_of(piece) == wanted


def test_depth_is_that_of_a_scan_character_by_character() -> None:
    tokens = torch.randint(len(PIECES), (50, 30), generator=torch.Generator().manual_seed(1))
    wanted = []
    for row in tokens.tolist():
        depth, depths = 0, []
        for token in row:
            for c in PIECES[token]:
                depth = max(depth + (c in "([{") - (c in ")]}"), 0)
            depths.append(depth)
            depth = 0 if token == 0 else depth
        wanted.append(depths)
    assert bracket_depth(tokens, TABLE).tolist() == wanted
    assert max(map(max, wanted)) > 2


def test_indentation_is_that_of_a_scan_character_by_character() -> None:
    tokens = torch.randint(len(PIECES), (50, 30), generator=torch.Generator().manual_seed(2))
    wanted = []
    for row in tokens.tolist():
        line, widths = "", []
        for token in row:
            line = (line + PIECES[token]).rpartition("\n")[2].replace("\t", "    ")
            widths.append(len(line) - len(line.lstrip()))
            line = "" if token == 0 else line
        wanted.append(widths)
    assert indentation(tokens, TABLE).tolist() == wanted
    assert max(map(max, wanted)) > 5


def test_labels_of_a_query_its_key_and_what_comes_next() -> None:
    tokens = ids("f", "(", "Ab", "x", ")", "\n", "    ", "f", "(", "Ab", "1", "[")
    labels = token_labels(tokens, torch.tensor([8]), TABLE, np.arange(len(PIECES)))
    row = labels.iloc[0]
    assert row.query_class == "bracket"
    assert row.key_class == row.next_class == "letter"
    assert (row.copied, row.key_capital, row.query_capital) == (True, True, False)
    assert row.next_word
    assert (row.distance, row.depth, row.indentation) == ("4-7", 1, "4-7")
    assert row.next_frequency == PIECES.index("Ab")
    other = token_labels(tokens, torch.tensor([9]), TABLE, np.arange(len(PIECES))).iloc[0]
    assert (other.copied, other.next_class, other.next_digit, other.next_word) == (
        False, "digit", True, False)


def test_words_begin_after_a_space_and_depths_end_at_four() -> None:
    tokens = ids("x", " return", "(", "(", "[", "(", "(", "(", "Ab", "x", " return", " Ab")
    labels = token_labels(tokens, torch.tensor([10]), TABLE, np.zeros(len(PIECES), int)).iloc[0]
    assert labels.query_word
    assert labels.next_capital
    assert labels.depth == 4
    assert not labels.query_capital


def test_row_labels_are_operand_operation_and_answer() -> None:
    labels = token_labels(ids("x", "f", "(", "1", "f", "(", "x"), torch.tensor([4]), TABLE,
                          np.zeros(len(PIECES), int))
    rows = row_labels(labels)
    assert list(rows) == ["operand_query", "operand_key", "copied", "depth", "indentation",
                          "answer"]
    pd.testing.assert_series_equal(rows["answer"], labels["next_class"], check_names=False)


def test_frequencies_are_decades_in_a_million() -> None:
    assert frequency_bins(torch.tensor([0] * 999_899 + [1] * 100 + [2]), 4).tolist() == [5, 2, 0, 0]
