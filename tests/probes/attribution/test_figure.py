"""Maps over a grid: which query panel reads which key panel."""

from __future__ import annotations

import numpy as np

from latentcode.config import SravenConfig
from latentcode.probes.attribution.result import _matrix, maps_figure
from latentcode.probes.attribution.steps import named
from latentcode.seeds import make_generator
from latentcode.tasks import make_counterfactuals, make_task


def test_a_block_is_a_query_panel_and_a_cell_a_key_panel() -> None:
    task = make_counterfactuals(make_task(SravenConfig(n_features=2)))
    roles, _ = task.roles(task.sample("train", 2, make_generator(0, "t")))
    maps = named("code", roles, range(2)).assign(path=0.0)
    here = (maps["query"] == "row3.panel2 own") & (maps["layer"] == 1)
    maps.loc[here & (maps["key"] == "row1.panel3 own"), "path"] = 5.0
    maps.loc[here & (maps["key"] == "row1.panel3 other 1"), "path"] = 2.0
    drawn = _matrix(maps[maps["layer"] == 1], grid=True).to_numpy()
    assert drawn.shape == (9, 9)
    assert np.argwhere(drawn).tolist() == [[3 * 2 + 0, 3 * 1 + 2]]
    assert drawn.max() == 7.0  # both features
    figure = maps_figure(maps, {"roles": roles, "sites": ["code"], "source": "operands"})
    first, second = (figure.axes[i].images[0].get_array() for i in (1, 3))
    assert first is not None
    assert second is not None
    assert (first.max(), second.max()) == (5.0, 2.0)
