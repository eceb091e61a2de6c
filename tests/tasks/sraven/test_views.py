"""SRAVEN as it is read and seen: pairs, labels and pictures."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_sraven import fields, seeded

from latentcode.config import SravenConfig
from latentcode.tasks.sraven.render import Drawing, draw_html
from latentcode.tasks.sraven.task import RULES, Sraven


def test_pairs_begin_with_the_papers() -> None:
    task = Sraven(SravenConfig(n_features=3))
    assert list(task.pairs)[:3] == [
        "response->response", "response->row3.panel1", "response->row3.panel2"]
    assert len(task.pairs) == 3 + 3 * (1 + 2 * 2) + 2
    assert all(name == pair.name and pair.description for name, pair in task.pairs.items())
    assert task.pairs["response->row3.panel1"].token == 2
    assert task.pairs["response.1->row3.panel2.same"].token == 1
    assert "response.0->row2.panel1.same" in Sraven(SravenConfig(grid_size=2)).pairs


@settings(max_examples=20)
@given(fields(), st.integers(0, 2**31))
def test_positions_point_at_the_tokens_they_name(
        fields: dict[str, Any], seed: int) -> None:
    task = Sraven(SravenConfig(**fields))
    m, g = task.config.n_features, task.config.grid_size
    batch = task.sample("test", 9, seeded(seed))
    names = list(task.pairs)
    queries, keys = task.positions(names, batch)
    assert queries.shape == keys.shape == (9, len(names))
    grid, permutations = batch.info["grid"], batch.info["permutations"]
    place = dict(zip(names, zip(queries.T, keys.T, strict=True), strict=True))
    for j in range(m):
        query, key = place[f"response.{j}->response.{j}"]
        assert (query == (g * g - 1) * m + j).all()
        assert torch.equal(query, key)
        for p in range(1, g):
            query, by_place = place[f"response.{j}->row{g}.panel{p}.{j}"]
            assert (by_place == ((g - 1) * g + p - 1) * m + j).all()
            query, key = place[f"response.{j}->row{g}.panel{p}.same"]
            assert (query == (g * g - 1) * m + j).all()
            assert (key // m == (g - 1) * g + p - 1).all()
            for b in range(9):
                assert permutations[b, p - 1, key[b] % m] == permutations[b, -1, j]
                assert batch.inputs[b, key[b]].argmax() == grid[b, -1, p - 1, key[b] % m]
            if not task.config.permuted:
                assert torch.equal(key, by_place)
    for row in range(1, g):  # the token that shows in a finished row what the response is asked for
        query, key = place[f"row{row}.panel{g}->row{row}.panel{g}"]
        assert torch.equal(query, key)
        assert (query == row * g * m - 1).all()
        assert task.pairs[f"row{row}.panel{g}->row{row}.panel{g}"].token == m - 1
    for p in range(1, g):
        assert torch.equal(place[f"response->row{g}.panel{p}"][1],
                           place[f"response.{m - 1}->row{g}.panel{p}.{m - 1}"][1])
    assert torch.equal(place["response->response"][0],
                       place[f"response.{m - 1}->response.{m - 1}"][0])


@settings(max_examples=15)
@given(fields(), st.integers(0, 2**31))
def test_labels_speak_of_the_feature_behind_each_response_token(
        fields: dict[str, Any], seed: int) -> None:
    task = Sraven(SravenConfig(**fields))
    m, g = task.config.n_features, task.config.grid_size
    split = task.splits[-1]
    batch = task.sample(split, 12, seeded(seed))
    labels = task.labels(batch)
    assert len(labels) == 12
    assert set(labels["split"]) == {split}
    assert len(labels.columns) == m * (g + 1) + 2
    _, keys = task.positions(
        [f"response.{j}->row{g}.panel{p}.same" for j in range(m) for p in range(1, g)], batch)
    for b in range(12):
        names = []
        for j in range(m):
            feature = int(batch.info["permutations"][b, -1, j])
            names.append(RULES[int(batch.info["rules"][b, feature])])
            assert labels[f"rule_{j}"][b] == names[-1]
            assert labels[f"target_{j}"][b] == batch.targets[b, j]
            for p in range(1, g):
                key = keys[b, j * (g - 1) + p - 1]
                assert labels[f"context_{p}_{j}"][b] == batch.inputs[b, key].argmax()
        assert labels["combination"][b] == ", ".join(sorted(names, key=RULES.index))
    for pair in task.pairs.values():
        assert all(f"{label}_{pair.token}" in labels for label in task.probe_labels)


def test_text_rendering_shows_grid_rules_and_answer() -> None:
    task = Sraven(SravenConfig(n_features=2, n_values=12))
    batch = task.sample("train", 3, seeded(0))
    text = task.render(batch, 1)
    grid, labels = batch.info["grid"][1], task.labels(batch)
    lines = text.splitlines()
    for row in range(3):
        shown = [int(s) for s in lines[row].split("<-")[0].replace("[", " ").replace("]", " ")
                 .replace("|", " ").split()]
        assert shown == grid[row].flatten().tolist()
    assert lines[2].index("[") > lines[2].rindex("|")
    for j, line in enumerate(lines[-2:]):
        assert line.startswith(f"{j}: {labels[f'rule_{j}'][1]} ")
        last_row = line.rsplit("/", 1)[1].replace("[", " ").replace("]", " ").split()
        assert [int(s) for s in last_row] == [
            labels[f"context_1_{j}"][1], labels[f"context_2_{j}"][1], batch.targets[1, j].item()]


def test_html_is_escaped() -> None:
    html = draw_html(Drawing([[[0]]], [[0]], ["<script>&"], [[[0]]]))
    assert "<script" not in html
    assert "&lt;script&gt;&amp;" in html


@pytest.mark.parametrize("small", [False, True])
def test_what_shows_a_token_has_its_position(small: bool) -> None:
    task = Sraven(SravenConfig(n_features=2, n_values=12, permuted=True))
    batch = task.sample("train", 3, seeded(0))
    html = task.sketch(batch, 1) if small else task.render(batch, 1, "html")
    shown = re.findall(r'<span data-token="(\d+)"[^>]*>([\d?]+)</span>', html)
    assert [int(position) for position, _ in shown] == list(range(18))
    symbols = [str(s) for s in batch.inputs[1, :-2].argmax(-1).tolist()]
    answer = ["?", "?"] if small else [str(s) for s in batch.targets[1].tolist()]
    assert [symbol for _, symbol in shown] == symbols + answer
    if not small:
        assert all(task.labels(batch)[f"rule_{j}"][1] in html for j in range(2))
