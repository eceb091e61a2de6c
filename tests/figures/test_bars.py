"""Do bars show the scores, on any page?"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from latentcode.figures.text import bars_svg


def test_bars_are_as_long_as_the_scores_and_begin_at_zero() -> None:
    codes = {"one": np.array([1.0, -0.5, 0.0]), "<b>two": np.array([0.25, 0.75, -1.0])}
    page = ElementTree.fromstring(bars_svg(codes, "how much"))
    drawn = page.findall(".//rect")
    values = np.stack(list(codes.values())).flatten()
    heights = np.array([float(bar.attrib["height"]) for bar in drawn])
    np.testing.assert_allclose(heights / heights.max(), np.abs(values), atol=0.01)
    zero = float(page.findall(".//line")[0].attrib["y1"])
    for bar, value in zip(drawn, values, strict=True):
        top = float(bar.attrib["y"])
        edge = top + float(bar.attrib["height"]) if value > 0 else top
        assert edge == pytest.approx(zero, abs=0.11)
    assert [bar[0].text for bar in drawn][3:] == [
        "<b>two, head 0: 0.25", "<b>two, head 1: 0.75", "<b>two, head 2: -1"]
    assert len({bar.attrib["fill"] for bar in drawn}) == 2
    assert {"-1", "0", "1"} <= {text.text for text in page.findall(".//text")}


@pytest.mark.parametrize("scores", [[0.0, 0.0], [2.0], [-1.0] * 40])
def test_any_codes_can_be_drawn(scores: list[float]) -> None:
    html = bars_svg({"code": np.array(scores)})
    page = ElementTree.fromstring(html)
    assert len(page.findall(".//rect")) == len(scores)
    assert not re.search(r"nan|inf", html)
    assert "currentColor" in html
