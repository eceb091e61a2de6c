"""Do latent codes keep their labels, and refuse what does not fit?"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from small_codes import assert_same, make_codes

from latentcode.codes import LatentCodes
from latentcode.codes.latent_codes import RESERVED
from latentcode.errors import ArtifactError, ConfigError, UnknownNameError
from latentcode.prompts.prompts import Prompts

pytestmark = pytest.mark.usefixtures("unchecked_signatures")


def test_select_picks_layer_and_pair_by_name() -> None:
    codes = make_codes()
    assert (len(codes), codes.n_heads) == (12, 3)
    for i, layer in enumerate(codes.layers):
        for j, pair in enumerate(codes.pairs):
            selected = codes.select(layer=layer, pair=pair.name)
            np.testing.assert_array_equal(selected, codes.scores[:, i, j])
            np.testing.assert_array_equal(
                codes.select_residual(layer=layer, pair=pair.name),
                codes.residuals[:, i, (0, 1, 1)[j]])
    assert codes.pair("query->query") is codes.pairs[2]


def test_what_is_not_there_is_named_with_what_is() -> None:
    codes = make_codes()
    with pytest.raises(UnknownNameError, match="unknown layer 1; expected one of: 0, 2"):
        codes.select(layer=1, pair="query->query")
    with pytest.raises(UnknownNameError, match=r"unknown pair 'q'.*query->query"):
        codes.pair("q")
    with pytest.raises(ConfigError, match="no residual streams; extract them with residuals=True"):
        make_codes(residuals=False).select_residual(layer=0, pair="query->query")


def test_a_label_is_that_of_the_pairs_response() -> None:
    codes = make_codes()
    for token in (0, 1):
        found = codes.label("rule", pair=f"response.{token}->panel.7")
        pd.testing.assert_series_equal(found, codes.labels[f"rule_{token}"])
    pd.testing.assert_series_equal(
        codes.label("target", pair="response.1->panel.7"), codes.labels["target"])
    pd.testing.assert_series_equal(
        codes.label("rule_0", pair="response.1->panel.7"), codes.labels["rule_0"])
    for pair in (None, "query->query"):
        with pytest.raises(UnknownNameError, match="label 'rule'"):
            codes.label("rule", pair=pair)


def test_mean_by_is_the_mean_code_of_each_value() -> None:
    codes = make_codes(n=40)
    pair = "response.1->panel.7"
    means = codes.mean_by("rule", layer=2, pair=pair)
    assert means.index.name == "rule"
    assert list(means.columns) == ["head_0", "head_1", "head_2"]
    assert list(means.index) == sorted(set(codes.labels.rule_1))
    for value in means.index:
        wanted = codes.scores[(codes.labels.rule_1 == value).to_numpy(), 1, 1].mean(axis=0)
        np.testing.assert_allclose(means.loc[value], wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("index", [
    np.array([5, 0, 0]), range(3), [-1, 2], [], torch.tensor([4, 1]), torch.arange(12) > 6,
    [2, 3], slice(1, 9, 2), np.arange(12) > 6, np.zeros(12, dtype=bool),
    [True, False] * 6, pd.Series([False, True] * 6)])
def test_subset_keeps_instances_together(index: Any) -> None:
    codes = make_codes()
    part = codes[index]
    assert_same(codes.subset(index), part)
    rows = index if isinstance(index, slice) else np.asarray(index, None if len(index) else int)
    kept = np.arange(12)[rows]
    assert len(part) == len(kept)
    np.testing.assert_array_equal(part.scores, codes.scores[kept])
    np.testing.assert_array_equal(part.residuals, codes.residuals[kept])
    pd.testing.assert_frame_equal(part.labels, codes.labels.iloc[kept].reset_index(drop=True))
    assert (part.pairs, part.layers) == (codes.pairs, codes.layers)
    np.testing.assert_array_equal(part.instances(), kept)
    assert {**part.meta, "instances": None} == {**codes.meta, "instances": None}


def test_a_part_of_codes_knows_its_instances(tmp_path: Path) -> None:
    codes = make_codes()
    assert "instances" not in codes[:7].meta  # the first, as a shorter extraction has them
    np.testing.assert_array_equal(codes[2:][::3][1:].instances(), [5, 8, 11])
    again = LatentCodes.load(codes[2:][::3].save(tmp_path / "part"))
    np.testing.assert_array_equal(again.instances(), [2, 5, 8, 11])
    with pytest.raises(ConfigError, match="meta names 2 instances; expected 12, one per row"):
        replace(codes, meta={**codes.meta, "instances": [1, 2]})


def test_a_number_picks_codes_of_one_instance() -> None:
    codes = make_codes(n=5)
    for number in (0, 3, -1, np.int64(2)):
        assert_same(codes[number], codes[[number]])
    assert [one.labels["target"].item() for one in codes] == codes.labels["target"].tolist()
    for number in (5, -6, [0, 5]):
        with pytest.raises(IndexError, match="out of bounds"):
            codes[number]


@pytest.mark.parametrize("index", [
    "rule", [0.5], [[0, 1]], (0, 1, 2, ["a"]), ["a"], np.ones(4, bool)])
def test_what_is_no_index_is_refused(index: Any) -> None:
    with pytest.raises((IndexError, ValueError)):
        make_codes()[index]


def test_to_pandas_is_long() -> None:
    codes = make_codes(n=4)
    table = codes.to_pandas()
    assert list(table.columns) == [
        "instance", "layer", "pair", *codes.labels.columns, "head_0", "head_1", "head_2"]
    assert len(table) == 4 * 2 * 3
    assert not table.duplicated(["instance", "layer", "pair"]).any()
    for row in table.to_dict("records"):
        code = codes.select(layer=row["layer"], pair=row["pair"])[row["instance"]]
        assert [row["head_0"], row["head_1"], row["head_2"]] == code.tolist()
        assert row["target"] == codes.labels["target"].to_numpy()[row["instance"]]


def test_it_shows_what_it_holds() -> None:
    codes = make_codes()
    for fact in ("12 instances", "[0, 2]", "3 pairs", "3 heads", "residual", "my-run", "ood"):
        assert fact in repr(codes)
    hostile = replace(codes, meta={"run": "<b>"}, labels=codes.labels.assign(**{"<i>": "<u>" * 40}))
    assert not re.search("<(b|i|u)>(?!LatentCodes)", hostile._repr_html_())
    cells = re.findall("<td>(.*)</td>", codes._repr_html_().partition("such as")[2])
    assert [float(end) for end in cells[8].split(" to ")] == pytest.approx(
        [codes.labels["target"].min(), codes.labels["target"].max()], rel=1e-3)


@pytest.mark.parametrize(("change", "message"), [
    ({"layers": (0,)}, r"scores have shape \(12, 2, 3, 3\); expected \(12, 1, 3, heads\)"),
    ({"labels": pd.DataFrame({"a": [1]})}, r"expected \(1, 2, 3, heads\)"),
    ({"scores": np.zeros((12, 2, 3), dtype=np.float32)}, r"scores have shape \(12, 2, 3\)"),
    ({"residuals": np.zeros((11, 2, 2, 5))}, r"residuals have shape \(11, 2, 2, 5\)"),
    ({"query_of_pair": (0, 1, 2)}, r"query_of_pair \(0, 1, 2\); expected"),
])
def test_shapes_that_disagree_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        replace(make_codes(), **change)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(("field", "what"), [("scores", "codes"), ("residuals", "residual stream")])
def test_a_single_number_that_is_not_finite_is_refused(
    field: str, what: str, value: float, tmp_path: Path
) -> None:
    codes = make_codes()
    spoilt = getattr(codes, field).copy()
    spoilt[-1, 1, -1, 0] = value
    with pytest.raises(ConfigError, match=f"{what}.* finite"):
        replace(codes, **{field: spoilt})
    getattr(codes, field)[...] = spoilt  # in place, past the check
    with pytest.raises(ArtifactError, match=f"damaged: the {what}.* finite"):
        LatentCodes.load(codes.save(tmp_path / "codes"))


@pytest.mark.parametrize("name", [*RESERVED, "head_0", "head_12"])
def test_a_label_with_the_name_of_a_column_of_ours_is_refused_where_it_enters(name: str) -> None:
    codes = make_codes()
    with pytest.raises(ConfigError, match=f"label '{name}' has the name of a column"):
        replace(codes, labels=codes.labels.rename(columns={"target": name}))
    with pytest.raises(ConfigError, match=f"label '{name}' has the name of a column"):
        Prompts.from_frame(pd.DataFrame({"prompt": ["a"], "query": 0, "key": 0, name: "b"}))
