"""Does the page show what its URL says, without anything that it does not need?"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_app import (
    PAIR,
    Drawn,
    chosen_codes,
    component,
    drawn_codes,
    map_shown,
    page_test,
    panels,
    text,
)
from small_app import shown as shown_page
from streamlit.testing.v1 import AppTest

from latentcode.app.charts.selected import (
    Categories,
    Guesses,
    confusion,
    confusion_counts,
    guesses,
    heads,
    shares,
)
from latentcode.app.data.problem import AWAY
from latentcode.app.pages.explore import differing_labels
from latentcode.app.state.selection import Selection
from latentcode.probes.projection import fit_projection
from latentcode.runs import Run
from latentcode.runs.run import ZOO

PICTURE = f"ood!90!pca!1!{PAIR}!runs/a"
BOX = "L-1000_-1000_1000_-1000_1000_1000_-1000_1000"
EVERYTHING = f"{BOX}@{PICTURE}"


def asked(**query: str) -> dict[str, str]:
    return {"model": "runs/a", "projection": "PCA", **query}


def shown(**query: str) -> AppTest:
    return shown_page("explore", **asked(**query))


@pytest.mark.slow
@pytest.mark.parametrize("model", ["sraven-hyla", "runs/a"])
def test_it_opens_on_a_projection_that_nobody_waits_for(
    model: str, request: pytest.FixtureRequest
) -> None:
    if model == "runs/a":
        request.getfixturevalue("folder")
    test = shown_page("explore", model=model)
    assert test.session_state["projection"] == "PCA"
    if model == "runs/a":
        test.segmented_control(key="projection").set_value("UMAP").run(timeout=240)
        assert test.session_state["projection"] == "UMAP"


def captions(test: AppTest) -> str:
    return "\n".join(f"{caption.value}\n{caption.proto.help}"
                     for caption in test.caption).replace("\\", "")


def test_the_url_chooses_what_is_shown(folder: Path) -> None:
    test = shown()
    assert "90 codes of runs/a" in text(test)
    assert "No selection" in text(test)
    assert map_shown(test).names == ["constant", "difference", "sum"]
    assert "trustworthiness" in captions(test)
    other = shown(model="runs/b", pair="response->row3", colour="combination", layer="1")
    assert "90 codes of runs/b" in text(other)
    # A label with two names is there once.
    named = shown(colour="rule_0")
    assert "coloured by **rule** (rule_0)" in text(named)
    assert not named.warning
    assert "rule_0" not in named.selectbox(key="colour").options


def test_codes_that_are_all_the_same_get_no_picture_and_no_verdict(folder: Path) -> None:
    test = shown(show="all layers")
    assert f"layer 0, {PAIR}" in test.info[0].value
    assert [plane["name"] for plane in map_shown(test).shown["planes"]] == [PICTURE]
    alone = shown(layer="0", instance="3", select=EVERYTHING)
    assert component(alone, "map") is None
    assert not alone.error
    assert "Probe**: right" not in text(alone)
    assert not any(AWAY in table.value for table in shown(layer="0", instance="3").dataframe)


def test_a_selection_updates_every_panel(folder: Path) -> None:
    codes = drawn_codes()
    points = fit_projection(codes.select(layer=1, pair=PAIR), "pca").projection.coordinates
    middle = float(np.median(points[:, 0]))
    select = f"L{middle}_-1000_1000_-1000_1000_1000_{middle}_1000@{PICTURE}"
    test = shown(select=select)
    inside = np.flatnonzero(points[:, 0] >= middle)
    assert f"Selection: {len(inside)} of 90 instances" in text(test)
    found = panels(test)
    rule = codes.labels["rule_0"]
    assert found["shares"].rows == {
        name: (pytest.approx(100 * float((rule.iloc[inside] == name).mean()), abs=0.5),
               pytest.approx(100 * float((rule == name).mean()), abs=0.5))
        for name in ("constant", "difference", "sum")}
    scores = codes.select(layer=1, pair=PAIR)
    others = np.setdiff1d(np.arange(90), inside)
    for name, rows in (("selection", inside), ("others", others)):
        np.testing.assert_allclose(found["bars"].series[name], scores[rows].mean(0), rtol=6e-3)
    assert f"selection {scores[inside].mean(0)[2]:.3g}" in found["bars"].told[2]
    assert sum(int(told.split(": ")[1].split()[0])
               for told in found["confusion"].told) == len(inside)
    assert map_shown(test).selected == inside.tolist()
    # The colour is one of the columns that are there.
    listed = shown(select=select, beside="List", colour="combination").dataframe[0].value
    assert listed["instance"].tolist() == inside.tolist()
    assert listed.columns.is_unique


def test_what_the_legend_hid_is_not_selected(folder: Path) -> None:
    rule = drawn_codes().labels["rule_0"]
    hidden = f"{BOX}~Hrule_0!sum!constant@{PICTURE}"
    test = shown(select=hidden)
    left = np.flatnonzero(rule == "difference")
    assert map_shown(test).selected == left.tolist()
    assert f"Selection: {len(left)} of 90" in text(test)
    assert "hidden: 2 values of rule (sum, constant)" in [c.value for c in test.caption]
    assert panels(test)["shares"].rows["difference"][0] == 100.0
    # It stays with the selection, whatever colours the points later.
    later = shown(select=hidden, colour="accuracy")
    assert map_shown(later).selected == left.tolist()
    assert "hidden: 2 values of rule_0 (sum, constant)" in captions(later)
    assert not shown(select=f"{BOX}~Hgone!sum@{PICTURE}").error


def test_a_selection_belongs_to_its_model(folder: Path) -> None:
    test = shown(select=EVERYTHING)
    assert "Selection: 90 of 90 instances" in text(test)
    assert "Probe**: right in" in text(test)
    assert list(panels(test)["bars"].series) == ["selection"]  # there are no others
    test.selectbox(key="model").set_value("runs/b").run()
    assert "90 codes of runs/b" in text(test)
    assert "No selection" in text(test)
    assert any("of another model" in info.value for info in test.info)
    test.selectbox(key="model").set_value("runs/a").run()
    assert "Selection: 90 of 90" in text(test)


def compared(second: str, **query: str) -> AppTest:
    return shown(show="two maps", second_model=f"runs/{second}", **query)


def test_two_maps_have_one_legend_and_one_selection(folder: Path) -> None:
    other = PICTURE.replace("runs/a", "runs/b")
    box = Selection(((-1e3, -1e3), (0.0, -1e3), (0.0, 1e3), (-1e3, 1e3)), plane=other).to_text()
    test = compared("b", select=box)
    drawn = map_shown(test)
    assert [plane["title"] for plane in drawn.shown["planes"]] == ["runs/a", "runs/b"]
    assert [points.shape for points in drawn.planes] == [(90, 2)] * 2
    assert drawn.names == ["constant", "difference", "sum"]
    # An outline counts in the picture it was drawn in, and its instances in both.
    expected = np.flatnonzero(drawn.planes[1][:, 0] <= 0.0).tolist()
    assert 0 < len(expected) < 90
    assert drawn.selected == expected
    assert f"Selection: {len(expected)} of 90" in text(test)
    outline, = drawn.shown["outlines"]
    assert outline["plane"] == drawn.shown["planes"][1]["name"] == other
    # Two places of one model, laid out as the first is.
    places = map_shown(compared("a", projection="t-SNE"))
    assert [plane["title"] for plane in places.shown["planes"]] == [PAIR, "response->row3"]
    assert all("!tsne!" in plane["name"] for plane in places.shown["planes"])


def test_other_instances_and_damaged_folders_have_no_second_map(folder: Path) -> None:
    test = compared("other")
    assert len(map_shown(test).planes) == 1
    assert "runs/other is left out" in test.warning[0].value
    assert differing_labels(drawn_codes(0), drawn_codes(1)) == []
    assert differing_labels(drawn_codes(0), drawn_codes(2, instances=1)) == [
        "rule_0", "combination"]
    (folder / "b" / "labels.parquet").write_bytes(b"no longer a table")
    test = compared("b")
    assert "b" in test.error[0].value
    assert len(map_shown(test).planes) == 1


def test_codes_that_were_replaced_are_shown_anew(folder: Path) -> None:
    test = shown(select=EVERYTHING, layer="1", pair=PAIR)
    before = map_shown(test).planes[0]
    drawn_codes(5).save(folder / "a", overwrite=True)
    test.run()
    assert not np.array_equal(map_shown(test).planes[0], before)
    scores = drawn_codes(5).select(layer=1, pair=PAIR)
    np.testing.assert_allclose(panels(test)["bars"].series["selection"], scores.mean(0), rtol=6e-3)


def test_names_and_labels_of_files_are_no_markup(folder: Path) -> None:
    codes, link = drawn_codes(), "<a href='https://example.org'>sum</a>"
    told = "see ![this](http://example.org/x.png)"
    labels = codes.labels.assign(rule_0=codes.labels["rule_0"].replace("sum", link))
    replace(codes, labels=labels, pairs=(replace(codes.pairs[0], description=told),
                                         codes.pairs[1])).save(folder / "linked")
    test = shown(model="runs/linked", instance="3")
    assert "see !\\[this\\](http://example.org/x.png)" in [c.value for c in test.caption]
    beside = [html.proto.body for html in (*test.get("html"), *shown(
        model="runs/linked", select=f"I3@{PICTURE.replace('runs/a', 'runs/linked')}").get("html"))]
    assert sum("&lt;a href" in body for body in beside) >= 3
    assert not any("<a href" in body for body in beside)


def test_a_chosen_instance_has_its_panel(folder: Path) -> None:
    test = shown(instance="5", colour="combination")
    assert "Instance 5" in text(test)
    # Codes that no task has made have no problem to draw, and labels all the same.
    assert "do not say which task" in test.info[0].value
    assert all(table.value.columns.is_unique for table in test.dataframe)
    np.testing.assert_allclose(panels(test)["bars"].series["instance 5"],
                               drawn_codes().select(layer=1, pair=PAIR)[5], rtol=6e-3)
    test.button(key="close").click().run()
    assert "No selection" in text(test)
    assert "instance" not in test.query_params


def test_a_url_that_asks_for_what_there_is_not(folder: Path) -> None:
    wrong = {"instance": "90", "select": "L1_2", "layer": "7", "colour": "taste", "show": "magic"}
    test = shown(**wrong)
    assert "90 codes of runs/a" in text(test)
    said = [warning.value for warning in test.warning]
    for key, value in wrong.items():
        assert any(value in message and (key in message or key == "select") for message in said)
    assert any("expected 0 to 89" in message for message in said)
    elsewhere = shown(select=EVERYTHING.replace("!1!", "!9!"), instance="-1")
    assert "-1" in elsewhere.warning[0].value
    assert "No selection" in text(elsewhere)


@pytest.mark.parametrize(("model", "message"), [
    ("runs/nothing", "does not exist"), ("/etc", "outside the folders"),
    ("runs/damaged", "meta.json"), ("runs/broken", "config.yaml"), ("runs", "neither a run")])
def test_what_cannot_be_opened_is_one_message(folder: Path, model: str, message: str) -> None:
    drawn_codes().save(folder / "damaged")
    (folder / "damaged" / "meta.json").write_text("{", encoding="utf-8")
    shutil.copytree(ZOO / "sraven-hyla", folder / "broken", ignore=lambda *_: {"checkpoints"})
    (folder / "broken" / "config.yaml").write_text("task: [this is no longer\n", encoding="utf-8")
    test = shown(model=model)
    assert len(test.error) == 1
    assert message in test.error[0].value
    # It is not the end: another model can be chosen.
    test.selectbox(key="model").set_value("runs/a").run()
    assert not test.error
    assert "90 codes of runs/a" in text(test)


def test_what_should_not_happen_is_a_sentence(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("secret detail")

    monkeypatch.setattr("latentcode.app.charts.pictures.show_map", broken)
    test = page_test("explore", **asked()).run()
    assert not test.exception
    assert "Something went wrong" in test.error[0].value
    assert "secret detail" not in test.error[0].value
    assert "ZeroDivisionError: secret detail" in caplog.text


def test_the_probe_is_asked_about_combinations_it_has_not_seen() -> None:
    codes = drawn_codes(n=400)
    chosen = chosen_codes(codes)
    found = guesses(chosen, "rule")
    assert isinstance(found, Guesses)
    assert found.right.mean() > 0.9
    # What is known of a combination alone cannot be guessed for another one.
    assert guesses(chosen, "loss") is None
    assert guesses(chosen, "combination") is None
    counts = confusion_counts(found, np.ones(400, dtype=bool))
    assert counts.sum(1).tolist() == np.bincount(found.truth.index).tolist()
    assert np.trace(counts) == found.right.sum()
    told = Drawn(confusion(found, np.arange(400) == 3)).told
    assert len(told) == 1
    assert told[0].startswith(f"is {codes.labels['rule_0'].iloc[3]}, predicted ")


def test_panels_of_one_point() -> None:
    codes = drawn_codes()
    one, rule = np.arange(90) == 3, codes.labels["rule_0"]
    label = Categories.of(rule)
    rows = Drawn(shares(label, one, dict.fromkeys(label.values, "#000000"))).rows
    assert {name: mine for name, (mine, _) in rows.items()} == {
        name: 100.0 * (name == rule.iloc[3]) for name in label.names}
    code = codes.select(layer=1, pair=PAIR)[3]
    assert len(Drawn(heads({"a": code}, dark=False)).told) == len(code)
    assert "<b>:" not in heads({"<b>": code}, dark=False)


def test_damaged_weights_are_told_beside_codes_that_were_kept(run: Run) -> None:
    test = shown_page("explore", model="runs/tiny", projection="PCA")
    assert not test.warning
    weights, = run.path.glob("checkpoints/*/model.safetensors")
    weights.write_bytes(weights.read_bytes()[:-8])
    test.run()
    assert "2,000 codes of runs/tiny" in text(test)
    assert "The weights of runs/tiny cannot be read" in test.warning[0].value
    assert "model.safetensors" in test.warning[0].value


def test_three_codes_have_a_picture_by_pca(folder: Path) -> None:
    drawn_codes(n=3).save(folder / "few")
    test = shown(model="runs/few")
    assert not test.error
    assert len(map_shown(test).planes[0]) == 3
