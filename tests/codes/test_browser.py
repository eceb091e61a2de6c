"""Does what a notebook shows of a code follow what is chosen?"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from small_codes import make_codes

import latentcode as lc
from latentcode.codes import browser
from latentcode.codes.browser import WIDGET
from latentcode.errors import ConfigError

PAIR = "response->response"


@pytest.fixture(scope="module")
def codes() -> lc.LatentCodes:
    return lc.load_codes("sraven-hyla")


def controls_of(shown: browser.CodeBrowser) -> tuple[dict[str, Any], Any]:
    """Return the controls by their names, and what shows the rest."""
    row, html = shown.controls().children
    return {control.description: control for control in row.children}, html


def test_it_begins_where_it_is_told(codes: lc.LatentCodes) -> None:
    first = codes.browse()
    assert (first.instance, first.layer, first.pair) == (0, 3, PAIR)
    other = codes.browse(instance=7, layer=1, pair=codes.pairs[1].name, label="combination")
    rule = codes.labels["combination"][7]
    np.testing.assert_array_equal(
        other.means().loc["problem 7"], codes.select(layer=1, pair=codes.pairs[1].name)[7])
    mean = codes.mean_by("combination", layer=1, pair=codes.pairs[1].name).loc[rule]
    np.testing.assert_allclose(other.means().loc[f"mean of combination {rule}"], mean, rtol=1e-5)


def test_codes_that_are_never_negative_are_centred(codes: lc.LatentCodes) -> None:
    assert not codes.browse().is_centred
    assert codes.browse().means().index[-1] == "mean of all"
    softmax = lc.load_codes("sraven-softmax").browse(instance=3)
    points = softmax.codes.select(layer=3, pair=PAIR)
    assert softmax.is_centred
    assert len(softmax.means()) == 2
    np.testing.assert_allclose(softmax.means().loc["problem 3"], points[3] - points.mean(0))


def test_the_controls_change_what_is_shown(codes: lc.LatentCodes) -> None:
    shown = codes.browse("sraven-hyla")
    chosen, html = controls_of(shown)
    wrong = int(codes.labels["accuracy"].argmin())
    chosen["problem"].value = wrong
    assert f"<b>Problem {wrong}</b>" in html.value
    assert "color:#D55E00" in html.value
    chosen["layer"].value, chosen["pair"].value = 1, codes.pairs[1].name
    assert (shown.instance, shown.layer, shown.pair) == (wrong, 1, codes.pairs[1].name)
    assert html.value == shown._repr_html_()
    chosen["problem"].value = 10_000
    assert shown.instance == len(codes) - 1
    assert tuple(chosen["layer"].options) == codes.layers


def test_codes_whose_problems_cannot_be_drawn_show_their_labels() -> None:
    shown = make_codes().browse(instance=2)
    assert "do not say which task" in shown._repr_html_()
    assert f"{shown.codes.labels['combination'][2]}" in shown._repr_html_()


def test_without_ipywidgets_it_stands_still(
    codes: lc.LatentCodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = codes.browse()
    assert set(shown._repr_mimebundle_()) == {"text/plain", "text/html", WIDGET}
    monkeypatch.setattr(browser, "find_spec", lambda name: None)
    assert shown._repr_mimebundle_() == {
        "text/plain": f"CodeBrowser(problem 0 of 2000, layer 3, {PAIR})",
        "text/html": shown._repr_html_()}
    with pytest.raises(ConfigError, match=r"pip install 'latentcode\[jupyter\]'"):
        shown.controls()


def test_what_there_is_not_is_said(codes: lc.LatentCodes) -> None:
    with pytest.raises(ConfigError, match=r"instance is 9999999; expected at most 1,999"):
        codes.browse(instance=9_999_999)
    with pytest.raises(ConfigError, match=r"run sraven-linear has the id .*expected"):
        codes.browse("sraven-linear")
    untrained = replace(codes, meta={**codes.meta, "untrained": True})
    with pytest.raises(ConfigError, match="codes of the untrained model"):
        untrained.browse("sraven-hyla")


def test_names_are_no_html() -> None:
    codes = make_codes()
    labels = codes.labels.assign(rule_0="<script>a", combination="<script>b")
    pairs = (replace(codes.pairs[0], name="<script>c"), *codes.pairs[1:])
    shown = replace(codes, labels=labels, pairs=pairs).browse(label="rule")._repr_html_()
    assert "<script>" not in shown
    assert all(f"&lt;script&gt;{letter}" in shown for letter in "abc")
