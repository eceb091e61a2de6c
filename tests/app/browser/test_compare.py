"""Compare with a mouse: is the instance under it found in every picture, and its neighbours?"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from explorer import Explorer

pytestmark = pytest.mark.slow

PLACES = """() => {
    const {panels} = document.querySelector('.st-key-compare-chart .lc-map').codeMap;
    return panels.map(panel => ({
        rings: [...panel.marks.querySelectorAll('.lc-hover')].map(
            ring => ['cx', 'cy'].map(at => Number(ring.getAttribute(at)))),
        points: Array.from({length: panel.points.length / 2}, (_, i) => panel.position(i)),
    }));
}"""
"""The rings in each picture, and where in it each instance is."""


def test_the_instance_under_the_mouse_has_a_ring_in_every_picture(explorer: Explorer) -> None:
    page = explorer.page
    page.goto(f"{explorer.server.url('compare')}?projection=PCA&colour=shared+neighbours"
              "&models=runs/a&models=runs/b&models=runs/c")
    explorer.headline("The same 90 instances in 3 models").wait_for()
    page.get_by_text(re.compile(
        r"on average [\d.]+% are also among its 10 nearest in the others \(mean over 2\); "
        r"of random neighbours 11\.2% would be")).wait_for()
    instance = explorer.point_at("compare chart")
    shown = page.evaluate(PLACES)
    assert len(shown) == 3
    for panel in shown:
        ring, = panel["rings"]
        assert ring == pytest.approx(panel["points"][instance], abs=0.5)
    page.mouse.move(2, 2)
    explorer.until(lambda: not any(panel["rings"] for panel in page.evaluate(PLACES)))
    explorer.check()
