"""The SRAVEN task: splits, batches, pairs, labels, scores and pictures."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from latentcode.config import SravenConfig
from latentcode.errors import ConfigError, SplitError, UnknownNameError
from latentcode.metrics import Metric, is_by_constituent
from latentcode.tasks import make_task
from latentcode.tasks.batch import Batch
from latentcode.tasks.sraven import RULES, Sraven, aligned, permute_features, rules_that_hold
from latentcode.tasks.sraven.render import Drawing, draw_html
from latentcode.tasks.sraven.rules import DIFFERENCE, SUM


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def multisets(task: Sraven, split: str) -> set[tuple[int, ...]]:
    return {tuple(c) for c in task.combinations(split).tolist()}


@st.composite
def fields(draw: st.DrawFn) -> dict[str, Any]:
    grid_size = draw(st.integers(2, 4))
    n_features = draw(st.integers(1, 5))
    return {
        "n_features": n_features, "grid_size": grid_size,
        "n_values": draw(st.integers(max(3, grid_size), 17)),
        "permuted": draw(st.booleans()), "rule_order": draw(st.sampled_from(["random", "sorted"])),
        "ood_fraction": 0.0 if n_features == 1 else draw(st.floats(0.0, 0.8)),
        "split_seed": draw(st.integers(0, 1000))}


@settings(derandomize=True, deadline=None, max_examples=40)
@given(fields(), st.integers(0, 2**31))
def test_every_rule_holds_and_tokens_agree_with_the_grid(
        fields: dict[str, Any], seed: int) -> None:
    config = SravenConfig(**fields)
    task = Sraven(config)
    m, k, g = config.n_features, config.n_values, config.grid_size
    for split in task.splits:
        batch = task.sample(split, 17, seeded(seed))
        grid, permutations = batch.info["grid"], batch.info["permutations"]
        rules = batch.info["rules"]
        assert grid.shape == (17, g, g, m)
        assert permutations.shape == (17, g, m)
        # One permutation per column, shared by the rows: undoing it restores every rule.
        assert torch.equal(permutations.sort(-1).values, torch.arange(m).repeat(17, g, 1))
        features = permute_features(grid, permutations.argsort(-1)).movedim(-1, 1)
        assert rules_that_hold(features, k).gather(-1, rules[..., None]).all()
        if not config.permuted:
            assert torch.equal(permutations, torch.arange(m).repeat(17, g, 1))
        # The combination is the multiset of the rules, and one of the split.
        combination = task.combinations(split)[batch.combination]
        assert torch.equal(rules.sort(-1).values, combination)
        if config.rule_order == "sorted":
            assert torch.equal(rules, combination)
        # Tokens: panels in reading order, one-hot, the response blank; targets: the response.
        assert batch.inputs.shape == (17, config.n_tokens, k)
        assert batch.inputs.dtype == torch.float32
        assert batch.targets.dtype == torch.int64
        assert torch.equal(batch.targets, grid[:, g - 1, g - 1])
        assert not batch.inputs[:, -m:].any()
        context = batch.inputs[:, :-m]
        assert torch.equal(context.sum(-1), torch.ones(17, config.n_tokens - m))
        assert torch.equal(context.argmax(-1), grid.reshape(17, -1)[:, :-m])


@settings(derandomize=True, deadline=None, max_examples=60)
@given(st.integers(1, 5), st.floats(0.0, 0.999), st.integers(0, 2**31))
def test_splits_are_disjoint_and_cover_for_every_possible_fraction(
        n_features: int, fraction: float, seed: int) -> None:
    config = SravenConfig(n_features=n_features, ood_fraction=fraction, split_seed=seed)
    every = Sraven(SravenConfig(n_features=n_features, ood_fraction=0.0)).all_combinations
    needed = -(-len(RULES) // n_features)
    n_ood = int(len(every) * fraction)
    if n_ood > len(every) - needed:
        with pytest.raises(SplitError, match="largest possible fraction here is") as error:
            Sraven(config)
        largest = re.search(r"here is ([\d.e-]+), which holds out (\d+)", str(error.value))
        assert largest is not None
        assert int(largest[2]) == len(every) - needed
        most = Sraven(replace(config, ood_fraction=float(largest[1])))
        assert len(multisets(most, "train")) == needed
        return
    task = Sraven(config)
    train = multisets(task, "train")
    assert {rule for c in train for rule in c} == set(range(len(RULES)))
    assert multisets(task, "test") == train
    assert all(c == tuple(sorted(c)) for c in train)
    if n_ood == 0:
        assert task.splits == ("train", "test")
        assert len(train) == len(every)
        return
    ood = multisets(task, "ood")
    assert len(ood) == n_ood
    assert not ood & train
    assert ood | train == {tuple(c) for c in every.tolist()}


def test_missing_splits_say_what_is_possible() -> None:
    task = Sraven(SravenConfig(n_features=2, ood_fraction=0.01))
    with pytest.raises(SplitError, match=r"all 8 rules are trained on.*offers: train, test$"):
        task.sample("unknown", 1, seeded(0))
    with pytest.raises(SplitError, match=r"0.01 holds out none of 36 .* from 0.03 to 0.89 is"):
        task.combinations("ood")
    with pytest.raises(SplitError, match="held_out is empty; up to 328"):
        Sraven(SravenConfig(held_out=())).combinations("ood")
    with pytest.raises(UnknownNameError, match="validation"):
        task.sample("validation", 1, seeded(0))


def test_explicit_held_out_combinations() -> None:
    task = Sraven(SravenConfig(n_features=2, held_out=((3, 1), (0, 0))))
    assert multisets(task, "ood") == {(1, 3), (0, 0)}
    batch = task.sample("ood", 50, seeded(0))
    assert {tuple(sorted(r)) for r in batch.info["rules"].tolist()} == {(1, 3), (0, 0)}
    assert not multisets(task, "train") & {(1, 3), (0, 0)}
    with pytest.raises(SplitError, match=r"constituents \[0\]"):
        Sraven(SravenConfig(n_features=2, held_out=tuple((0, r) for r in range(8))))


def test_same_seed_same_batch_and_streams_follow_the_generator() -> None:
    task = Sraven(SravenConfig())
    one, same = task.sample("train", 64, seeded(5)), task.sample("train", 64, seeded(5))
    other = task.sample("train", 64, seeded(6))
    assert torch.equal(one.inputs, same.inputs)
    assert torch.equal(one.targets, same.targets)
    assert all(torch.equal(one.info[k], same.info[k]) for k in one.info)
    assert not torch.equal(one.inputs, other.inputs)
    generator = seeded(5)
    assert not torch.equal(task.sample("train", 64, generator).inputs,
                           task.sample("train", 64, generator).inputs)


def test_rule_order() -> None:
    drawn = Sraven(SravenConfig()).sample("train", 20_000, seeded(1)).info["rules"]
    share = torch.stack([(drawn == r).float().mean(0) for r in range(8)])  # [rule, feature]
    assert share.min() > 0
    # Every feature sees the same distribution of rules: five standard errors of a difference.
    assert (share - share.mean(1, keepdim=True)).abs().max() < 5 * (0.25 * 2 / 20_000) ** 0.5
    drawn = Sraven(SravenConfig(rule_order="sorted")).sample("train", 20_000, seeded(1)).info[
        "rules"]
    assert (drawn[:, 0] == 0).float().mean() > 0.3 > (drawn[:, -1] == 0).float().mean()


def test_column_permutations_are_uniform_and_independent() -> None:
    task = Sraven(SravenConfig(n_features=3))
    permutations = task.sample("train", 21_600, seeded(2)).info["permutations"]
    code = (permutations * torch.tensor([9, 3, 1])).sum(-1)  # [B, column]
    counts = torch.unique(code, dim=0, return_counts=True)[1]
    assert len(counts) == 6**3
    assert (counts - 100).abs().max() < 50  # five standard deviations of a count


class Recorder(TorchDispatchMode):
    """Collects the names of all operations."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        moved = kwargs.get("device") is not None and "_to_copy" in str(func)
        self.names.append("moved" if moved else str(func))
        return func(*args, **kwargs)


@pytest.mark.parametrize("rule_order", ["random", "sorted"])
@pytest.mark.parametrize("permuted", [True, False])
def test_sampling_never_waits_for_the_device(
    rule_order: Any, permuted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # On the processor alone a batch looks at its inputs.
    monkeypatch.setattr(Batch, "__post_init__", lambda self: None)
    task = Sraven(SravenConfig(rule_order=rule_order, permuted=permuted))
    task.sample("train", 8, seeded(0))
    counts = []
    for n in (8, 16):
        with Recorder() as recorder:
            task.sample("train", n, seeded(0))
        waiting = ("_local_scalar_dense", "nonzero", "masked_select", "unique", "moved", "item")
        assert not [name for name in recorder.names if any(w in name for w in waiting)]
        counts.append(len(recorder.names))
    assert counts[0] == counts[1]  # no loop over instances
    with Recorder() as recorder:  # the recorder does see what it looks for
        torch.ones(2).nonzero().sum().item()
    assert {"aten.nonzero.default", "aten._local_scalar_dense.default"} <= set(recorder.names)


def test_pairs_begin_with_the_papers() -> None:
    task = Sraven(SravenConfig(n_features=3))
    assert list(task.pairs)[:3] == [
        "response->response", "response->row3.panel1", "response->row3.panel2"]
    assert len(task.pairs) == 3 + 3 * (1 + 2 * 2)
    assert all(name == pair.name and pair.description for name, pair in task.pairs.items())
    assert task.pairs["response->row3.panel1"].token == 2
    assert task.pairs["response.1->row3.panel2.same"].token == 1
    assert "response.0->row2.panel1.same" in Sraven(SravenConfig(grid_size=2)).pairs


@settings(derandomize=True, deadline=None, max_examples=20)
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
    for p in range(1, g):
        assert torch.equal(place[f"response->row{g}.panel{p}"][1],
                           place[f"response.{m - 1}->row{g}.panel{p}.{m - 1}"][1])
    assert torch.equal(place["response->response"][0],
                       place[f"response.{m - 1}->response.{m - 1}"][0])


def test_the_papers_positions_are_the_released_codes() -> None:
    task = Sraven(SravenConfig())
    batch = task.sample("ood", 2, seeded(0))
    queries, keys = task.positions(list(task.pairs)[:3], batch)
    assert queries.tolist() == [[35, 35, 35]] * 2
    assert keys.tolist() == [[35, 27, 31]] * 2
    with pytest.raises(UnknownNameError, match="response->row9"):
        task.positions(["response->row9"], batch)
    assert task.positions([], batch)[0].shape == (2, 0)


@settings(derandomize=True, deadline=None, max_examples=15)
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


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_loss_and_scores_agree_with_a_loop(dtype: torch.dtype) -> None:
    task = Sraven(SravenConfig(n_features=2, n_values=4))
    batch = task.sample("train", 30, seeded(2))
    logits = torch.randn(30, 18, 4, generator=seeded(3)).to(dtype).requires_grad_()
    scores = task.measures(logits.detach(), batch)
    losses = []
    for b in range(30):
        expected, right = 0.0, []
        for j in range(2):
            row = logits[b, 16 + j].double()
            expected -= (row[batch.targets[b, j]] - row.exp().sum().log()).item() / 2
            right.append(int(row.argmax()) == int(batch.targets[b, j]))
        losses.append(expected)
        assert scores["loss"][b].item() == pytest.approx(expected, abs=1e-5)
        assert scores["accuracy"][b].item() == all(right)
        assert scores["feature_accuracy"][b].item() == sum(right) / 2
    loss = task.loss(logits, batch)
    assert loss.shape == ()
    assert loss.item() == pytest.approx(sum(losses) / 30, abs=1e-5)
    loss.backward()
    assert logits.grad is not None
    assert logits.grad[:, -2:].abs().sum() > 0
    assert not logits.grad[:, :-2].any()
    metrics = task.summarize({k: v.double().numpy() for k, v in scores.items()})
    assert metrics[task.headline].n == 30


def answering(answers: torch.Tensor, n_values: int) -> torch.Tensor:
    """Return the logits [B, M, K] of a model that answers [B, M]; the tokens before are cut off."""
    return torch.nn.functional.one_hot(answers, n_values).float()


def measured(task: Sraven, logits: torch.Tensor, batch: Batch) -> dict[str, Metric]:
    scores = task.measures(logits, batch) | task.constituent_measures(logits, batch)
    return task.summarize({name: values.double().numpy() for name, values in scores.items()})


@pytest.mark.parametrize(("n_features", "grid_size"), [(1, 3), (3, 3), (4, 4), (2, 2)])
def test_accuracy_by_rule_agrees_with_a_loop(n_features: int, grid_size: int) -> None:
    task = Sraven(SravenConfig(n_features=n_features, grid_size=grid_size, n_values=5,
                               ood_fraction=0.0))
    batch = task.sample("train", 300, seeded(5))
    # Right, or any symbol: sums and differences are then confused now and then.
    answers = torch.where(torch.rand(300, n_features, generator=seeded(6)) < 0.3, batch.targets,
                          torch.randint(5, (300, n_features), generator=seeded(7)))
    found: dict[str, list[bool]] = {f"feature_accuracy[{rule}]": [] for rule in RULES}
    found |= {"wrong_as_difference[sum]": [], "wrong_as_sum[difference]": []}
    for b in range(300):
        permutations = batch.info["permutations"][b].tolist()
        for j in range(n_features):
            feature, answer = permutations[-1][j], int(answers[b, j])
            rule = RULES[int(batch.info["rules"][b, feature])]
            right = answer == int(batch.targets[b, j])
            found[f"feature_accuracy[{rule}]"].append(right)
            shown = [int(batch.info["grid"][b, -1, c, permutations[c].index(feature)])
                     for c in range(grid_size - 1)]
            if rule == "sum" and not right:
                found["wrong_as_difference[sum]"].append(
                    (shown[0] - sum(shown[1:]) - answer) % 5 == 0)
            if rule == "difference" and not right:
                found["wrong_as_sum[difference]"].append((sum(shown) - answer) % 5 == 0)
    metrics = measured(task, answering(answers, 5), batch)
    assert {name for name in metrics if is_by_constituent(name)} == set(found)
    for name, counted in found.items():
        assert metrics[name].n == len(counted) > 0
        assert metrics[name].mean == pytest.approx(sum(counted) / len(counted))
    # All tokens together are the metric of whole instances.
    by_rule = [metrics[f"feature_accuracy[{rule}]"] for rule in RULES]
    assert sum(m.n for m in by_rule) == 300 * n_features
    assert sum(m.mean * m.n for m in by_rule) / (300 * n_features) == pytest.approx(
        metrics["feature_accuracy"].mean)


def test_a_model_that_takes_sums_for_differences_is_found_out() -> None:
    task = Sraven(SravenConfig(n_features=3))
    batch = task.sample("test", 400, seeded(8))
    shown = aligned(batch.info["grid"], batch.info["permutations"])[:, -1]  # [B, G, M]
    rules = batch.info["rules"].gather(1, batch.info["permutations"][:, -1])
    answers = torch.where(rules == SUM, (shown[:, 0] - shown[:, 1]) % 8, batch.targets)
    metrics = measured(task, answering(answers, 8), batch)
    assert metrics["wrong_as_difference[sum]"].mean == 1.0
    # Right where a - b and a + b are the same: b is 0 or K/2.
    assert metrics["feature_accuracy[sum]"].mean == pytest.approx(1 / 4, abs=0.1)
    for rule in RULES:
        if rule != "sum":
            assert metrics[f"feature_accuracy[{rule}]"].mean == 1.0
    assert metrics["wrong_as_sum[difference]"].n == 0
    assert math.isnan(metrics["wrong_as_sum[difference]"].mean)
    answers = torch.where(rules == DIFFERENCE, shown[:, :2].sum(1) % 8, batch.targets)
    metrics = measured(task, answering(answers, 8), batch)
    assert metrics["wrong_as_sum[difference]"].mean == 1.0
    assert metrics["wrong_as_difference[sum]"].n == 0


def test_a_rule_that_does_not_occur_has_no_metric() -> None:
    task = Sraven(SravenConfig(n_features=2, held_out=((0, 0),)))
    batch = task.sample("ood", 30, seeded(9))
    metrics = measured(task, answering(batch.targets, 8), batch)
    assert metrics["feature_accuracy[constant]"] == Metric(1.0, 0.0, 60)
    assert [name for name in metrics if is_by_constituent(name)] == ["feature_accuracy[constant]"]


def test_a_solver_that_knows_the_rules_is_right() -> None:
    task = Sraven(SravenConfig())
    batch = task.sample("ood", 40, seeded(4))
    logits = torch.zeros(40, 36, 8)
    logits[:, -4:] = torch.nn.functional.one_hot(batch.targets, 8).float() * 50
    scores = task.measures(logits, batch)
    assert scores["accuracy"].all()
    assert scores["loss"].max() < 1e-6


class Text(HTMLParser):
    """The text, tags and balance of an HTML fragment."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.words: list[str] = []
        self.open: list[str] = []
        self.feed(source)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        assert tag in ("div", "table", "tr", "td", "th", "span")
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += data.split()


def one_instance() -> tuple[Sraven, Batch]:
    task = Sraven(SravenConfig(n_features=2, n_values=12))
    return task, task.sample("train", 3, seeded(0))


def test_text_rendering_shows_grid_rules_and_answer() -> None:
    task, batch = one_instance()
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


def test_html_rendering_is_self_contained_and_escaped() -> None:
    task, batch = one_instance()
    html = task.render(batch, 0, "html")
    parsed = Text(html)
    assert [int(w) for w in parsed.words[:18]] == batch.info["grid"][0].flatten().tolist()
    assert 'title="answer"' in html
    assert "http" not in html
    assert "<script" not in html
    for j in range(2):
        assert task.labels(batch)[f"rule_{j}"][0] in parsed.words
    drawing = Drawing([[[0]]], [[0]], ["<script>&"], [[[0]]])
    assert "<script" not in draw_html(drawing)
    assert "&lt;script&gt;&amp;" in draw_html(drawing)


def test_rendering_refuses_what_it_cannot_show() -> None:
    task, batch = one_instance()
    with pytest.raises(UnknownNameError, match="text, html"):
        task.render(batch, 0, "pdf")
    for index in (3, -1):
        with pytest.raises(ConfigError, match=f"index is {index}; expected 0 <= index < 3"):
            task.render(batch, index)


def test_make_task_builds_sraven() -> None:
    task = make_task(SravenConfig(n_features=3))
    assert isinstance(task, Sraven)
    assert task.headline == "accuracy"
