"""Does the page of several models show the same instances, and one selection in all?"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from small_app import drawn_codes, map_shown, text
from small_app import shown as shown_page
from streamlit.testing.v1 import AppTest

from latentcode.app.pages.compare import SELECTED, differing_labels
from latentcode.app.state.selection import Selection


def shown(models: list[str], **query: str) -> AppTest:
    return shown_page("compare", models=[f"runs/{model}" for model in models], projection="PCA",
                      **query)


def picture(model: str, layer: int = 1) -> str:
    return f"ood!90!pca!{layer}!response->response!runs/{model}"


def test_a_picture_per_model_with_one_legend(folder: Path) -> None:
    test = shown(["a", "b"])
    drawn = map_shown(test)
    assert [plane["title"] for plane in drawn.shown["planes"]] == ["runs/a", "runs/b"]
    assert [points.shape for points in drawn.planes] == [(90, 2)] * 2
    assert drawn.names == ["constant", "difference", "sum"]


def test_a_selection_of_one_picture_is_shown_in_all_until_it_is_cleared(folder: Path) -> None:
    rule = drawn_codes().labels["rule_0"] == "sum"
    first = np.flatnonzero(rule)[:5].tolist()
    selection = Selection(instances=tuple(first), plane=picture("a"))
    test = shown(["a", "b"], **{SELECTED: selection.to_text()})
    assert map_shown(test).selected == sorted(first)
    assert "Selection: 5 of 90" in text(test)
    test.button(key="clear selection").click().run()
    assert not test.error
    assert SELECTED not in test.query_params
    assert "Selection" not in text(test)


def test_an_outline_counts_in_the_picture_it_was_drawn_in(folder: Path) -> None:
    box = Selection(boxes=(((-1e3, -1e3), (0.0, 1e3)),), plane=picture("b")).to_text()
    drawn = map_shown(shown(["a", "b"], **{SELECTED: box}))
    expected = np.flatnonzero(drawn.planes[1][:, 0] <= 0.0).tolist()
    assert 0 < len(expected) < 90
    assert drawn.selected == expected
    outline, = drawn.shown["outlines"]
    assert outline["plane"] == drawn.shown["planes"][1]["name"] == picture("b")
    # It keeps its instances in the pictures of another pair.
    there = map_shown(shown(["a", "b"], pair="response->row3", **{SELECTED: box}))
    assert there.selected == expected
    assert picture("b") not in [plane["name"] for plane in there.shown["planes"]]


def test_other_instances_are_said_to_be(folder: Path) -> None:
    test = shown(["a", "other", "b"])
    assert [plane["title"] for plane in map_shown(test).shown["planes"]] == ["runs/a", "runs/b"]
    assert "runs/other is left out" in test.warning[0].value
    assert differing_labels(drawn_codes(0), drawn_codes(1)) == []
    assert differing_labels(drawn_codes(0), drawn_codes(2, instances=1)) == [
        "rule_0", "combination"]


def test_a_folder_that_cannot_be_opened_is_a_message(folder: Path) -> None:
    (folder / "b" / "labels.parquet").write_bytes(b"no longer a table")
    test = shown(["a", "b"])
    assert "b" in test.error[0].value
    assert len(map_shown(test).planes) == 1
