"""A study of three files is run, resumed and rendered; what is wrong with one is said at once."""

from __future__ import annotations

import linecache
import re
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from textwrap import dedent
from typing import Any

import pandas as pd
import pytest
import yaml

from latentcode.config import LogicConfig
from latentcode.errors import ArtifactError, ConfigError, LatentCodeError, RunError
from latentcode.experiments.evidence import keeping
from latentcode.experiments.evidence.found import NAMING, Found
from latentcode.experiments.evidence.pages import ROOT
from latentcode.experiments.evidence.study import Study, names, study
from latentcode.figures.markdown import MARKS
from latentcode.files.storage import read_json
from latentcode.probes.saved import load_result
from latentcode.runs import Run

PLAN: dict[str, Any] = {
    "title": "What is near?", "out": "out", "runs": {"zoo": ["logic-hyla"]},
    "ask": {"near": {"question": "knn_purity", "settings": {"n": 64}}}, "figures": ["near"]}
CLAIMS: list[dict[str, Any]] = [{
    "id": "some-purity", "claim": "Neighbours share labels.", "table": "near",
    "rows": {"features": "code", "among": "all"}, "by": ["kind", "layer", "label"],
    "rule": {"name": "bound", "side": "above", "bound": 0.0, "fewest": 1},
    "seen": None}]
TEMPLATE = "# {{ study.plan.title }}\n\n{{ markdown(tables.verdicts, 'id', 'place', 'verdict') }}\n"


def written(folder: Path, template: str = TEMPLATE, claims: Any = CLAIMS, **changed: Any) -> Study:
    folder.mkdir(exist_ok=True)
    (folder / "study.yaml").write_text(yaml.safe_dump({**PLAN, **changed}), encoding="utf-8")
    (folder / "claims.yaml").write_text(yaml.safe_dump(claims), encoding="utf-8")
    (folder / "README.md.jinja2").write_text(template, encoding="utf-8")
    return study(folder / "study.yaml", folder)


def test_a_study_is_run_once_judged_and_rendered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = written(tmp_path / "mine")
    page = mine.run(tmp_path / "work")
    text = page.read_text(encoding="utf-8")
    assert text.startswith("# What is near?")
    assert "some-purity" in text
    near = pd.read_csv(page.parent / "tables" / "near.csv")
    assert set(near["run"]) == {"logic-hyla"}
    assert any((page.parent / "figures").glob("near-logic-hyla-*.png"))
    # The results are there: nothing is asked again, and the page comes out the same.
    monkeypatch.setattr(keeping, "key_of", None)
    assert mine.write_page().read_text(encoding="utf-8") == text
    monkeypatch.undo()
    (before,) = (tmp_path / "work").glob("near-*/*.json")
    stamp = before.stat().st_mtime_ns
    mine.run(tmp_path / "work")
    assert before.stat().st_mtime_ns == stamp


def test_tables_of_other_settings_or_runs_are_not_rendered(tmp_path: Path) -> None:
    written(tmp_path / "mine").run(tmp_path / "work")
    other: list[tuple[str, dict[str, Any]]] = [
        ("65", {"ask": {"near": {"question": "knn_purity", "settings": {"n": 65}}}}),
        ("logic-linear", {"runs": {"zoo": ["logic-hyla", "logic-linear"]}})]
    for named, changed in other:
        with pytest.raises(ArtifactError, match=named):
            written(tmp_path / "mine", **changed).write_page()


def test_a_claim_is_added_without_asking_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path / "mine").run(tmp_path / "work")
    added = deepcopy(CLAIMS[0])
    added |= {"id": "none-is-whole", "rule": {**added["rule"], "bound": 1.0, "side": "below"}}
    monkeypatch.setattr(keeping, "key_of", None)
    page = written(tmp_path / "mine", claims=[*CLAIMS, added]).write_page()
    assert "none-is-whole" in page.read_text(encoding="utf-8")
    verdicts = pd.read_csv(page.parent / "tables" / "verdicts.csv")
    assert verdicts["id"].unique().tolist() == ["some-purity", "none-is-whole"]


@pytest.mark.parametrize(("asked", "named"), [
    ("tables.far", "unknown table 'far'; expected one of: near"),
    ("markdown(tables.near, 'colour')", "unknown column 'colour'; expected one of: task"),
])
def test_a_template_that_asks_for_what_is_not_there_is_told_what_is(
    tmp_path: Path, asked: str, named: str
) -> None:
    with pytest.raises(ArtifactError, match=named):
        written(tmp_path / "mine", f"\n{{{{ {asked} }}}}\n").run(tmp_path / "work")


def test_the_example_for_contributors_is_a_study(tmp_path: Path) -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^   ```\w*\n(.*?)^   ```$", text.partition("### Example: a new study")[2],
                        flags=re.DOTALL | re.MULTILINE)
    for name, block in zip(("study.yaml", "claims.yaml", "README.md.jinja2"), blocks, strict=True):
        (tmp_path / name).write_text(dedent(block), encoding="utf-8")
    found = study(tmp_path / "study.yaml")
    assert [one.rule.name for one in found.claims] == ["difference", "bound"]
    found.check()
    found.opened()


def seen(run: Run, *, problems: LogicConfig, step: int, n: int) -> dict[str, pd.DataFrame]:
    """A question of a study's own: what it was asked."""
    return {"seen": pd.DataFrame({"inputs": [problems.inputs], "at": [step], "n": [n]})}


def test_questions_of_ones_own_checkpoints_and_other_problems(tmp_path: Path) -> None:
    asked = {"question": f"{__name__}:seen", "settings": {"n": 3}, "steps": [10, 50_000],
             "task": {"inputs": "fixed_query"}}
    mine = written(tmp_path / "mine", "{{ tables.seen.inputs[0] }}\n", {}, figures=[],
                   ask={"near": asked, "far": {**deepcopy(asked), "of": ["two"]}}, apart=True,
                   runs={"one": ["logic-hyla"], "other": ["logic-linear"],
                         "two": ["logic-linear"]})
    assert [sorted(part.plan.ask) for part in mine.parts()] == [["near"], ["near"], ["far", "near"]]
    for part, name in zip(mine.parts(tmp_path / "apart"), ("one", "other"), strict=False):
        page = part.run(tmp_path / "work")
        assert page == tmp_path / "apart" / name / "README.md"
        assert page.read_text(encoding="utf-8") == "fixed_query\n"
        # The run has no checkpoint 10.
        assert [part.plan.out] == [alone.plan.out for alone in mine.parts(
            tmp_path / "apart", only=[name])]
        table = pd.read_csv(page.parent / "tables" / "seen.csv")
        assert table[["seed", "inputs", "at", "n"]].to_numpy().tolist() == [
            [0, "fixed_query", 50_000, 3]]


def counted(run: Run, *, work: Path) -> dict[str, pd.DataFrame]:
    """A question of a study's own: what the folder `work` has been told."""
    return {"seen": pd.DataFrame({"group": [run.name], "value": [float((work / "n").read_text())]})}


def test_some_groups_asked_alone_are_judged_with_what_there_is_of_the_others(
    tmp_path: Path
) -> None:
    claim: dict[str, Any] = {
        "id": "all-are-high", "claim": "All are high.", "table": "seen", "rows": {}, "by": [],
        "rule": {"name": "bound", "side": "above", "bound": 2, "fewest": 2}, "seen": None}
    plan: dict[str, Any] = {
        "runs": {"logic-hyla": ["logic-hyla"], "logic-linear": ["logic-linear"]},
        "ask": {"near": {"question": f"{__name__}:counted", "settings": {}}}, "figures": [],
        "group": "group"}
    # The template reads the committed table, as it is when the page is written.
    template = '{{ table("out/tables/seen.csv").span("run") }} {{ tables.verdicts.verdict[0] }}\n'
    works = [tmp_path / "first", tmp_path / "second"]
    for n, work in zip((2, 3), works, strict=True):
        work.mkdir()
        (work / "n").write_text(str(n))
    mine = written(tmp_path / "mine", template, [claim], **plan)
    assert mine.run(works[0]).read_text() == "2.00 agrees\n"
    assert mine.run(works[1], only=["logic-hyla"]).read_text() == "2.00 to 3.00 agrees\n"
    assert len(pd.read_csv(mine.root / "out" / "tables" / "seen.csv")) == 2


def test_a_page_has_the_verdicts_of_todays_claims_on_the_tables_of_its_study(
    tmp_path: Path
) -> None:
    (tmp_path / "n").write_text("1")
    ask = {"near": {"question": f"{__name__}:counted", "settings": {}}}
    claims = [{**CLAIMS[0], "table": "seen", "rows": {}, "by": [],
               "rule": {"name": "bound", "side": "above", "bound": bound, "fewest": 1}}
              for bound in (0, 5)]
    template = "{{ tables.verdicts.verdict[0] }}\n"
    made = written(tmp_path / "mine", template, claims[:1], ask=ask, figures=[])
    assert made.run(tmp_path).read_text() == "agrees\n"
    other = written(tmp_path / "mine", template, claims[1:], ask=ask, figures=[])
    assert other.write_page().read_text() == "differs\n"
    # A table of the same folder that the study does not make is not on its page.
    (other.root / "out" / "tables" / "old.csv").write_text("value\n1\n")
    (other.folder / "README.md.jinja2").write_text("{{ tables | sort | join(' ') }}\n")
    assert other.write_page().read_text() == "seen verdicts\n"


def test_checkpoints_of_a_run_are_told_apart(tmp_path: Path) -> None:
    asked = {"near": {"question": "decode", "settings": {}, "steps": [10, 20]}}
    claim: dict[str, Any] = {**CLAIMS[0], "rows": {}, "by": ["checkpoint"]}
    mine = written(tmp_path / "mine", claims=[claim], ask=asked)
    mine.check()
    run = mine.opened()["zoo"][0]
    result = load_result(run.path / "results" / "decoding")
    found = Found(mine.plan, {"zoo": [run]}, {"near": 2 * [([run], result)]}, {"near": [10, 20]})
    table = found.joined("near", "table")
    assert list(table)[:5] == [*NAMING, "checkpoint"]
    assert table["checkpoint"].value_counts().to_dict() == dict.fromkeys((10, 20), len(table) // 2)


@pytest.mark.parametrize(("changed", "error", "named"), [
    ({"ask": {"near": {"question": "knn_purity", "settings": {}, "steps": [0]}}}, ConfigError,
     "takes no step"),
    ({"runs": {"zoo": ["no-such-model"]}}, LatentCodeError, "no-such-model"),
    ({"runs": {"zoo": ["runs/none*"]}}, RunError, "runs/none"),
    ({"ask": {"near": {"question": "guess", "settings": {}}}}, LatentCodeError, "guess"),
    ({"ask": {"near": {"question": "knn_purity", "settings": {"many": 3}}}}, LatentCodeError,
     "many"),
    ({"ask": {"near": {"like": "none", "settings": {}}}}, LatentCodeError, "none"),
    ({"ask": {"near": {"question": "knn_purity", "settings": {}, "of": ["mine"]}}},
     LatentCodeError, "mine"),
    ({"ask": {"near": {"question": "knn_purity", "settings": {}, "task": {"colour": 1}}}},
     ConfigError, "colour"),
    ({"figures": ["far"]}, LatentCodeError, "far"),
    ({"tables": "latentcode.nowhere:tables"}, ConfigError, "nowhere"),
    ({"subtitle": "more"}, ConfigError, "subtitle"),
    ({"template": "Of these 0.5 were near.\n"}, ArtifactError, "0.5"),
    ({"claims": [{**CLAIMS[0], "table": "far"}]}, LatentCodeError, "far"),
    ({"claims": [{**CLAIMS[0], "by": ["height"]}]}, LatentCodeError, "height"),
])
def test_what_is_wrong_is_said_before_anything_is_computed(
    tmp_path: Path, changed: dict[str, Any], error: type[Exception], named: str
) -> None:
    with pytest.raises(error, match=named):
        written(tmp_path / "mine", **changed).run(tmp_path / "work")
    assert not (tmp_path / "work").exists()
    assert not (tmp_path / "mine" / "out").exists()


def test_every_study_of_the_library_is_read_and_checked() -> None:
    for name in names():
        study(name).check()


def test_a_study_without_runs_asks_what_its_functions_make(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "making.py").write_text(
        "import pandas as pd\n\n\n"
        "def made(work, *, size) -> 'dict[str, pd.DataFrame]':\n"
        "    with (work / 'made.txt').open('a') as file:\n"
        "        file.write(f'{size} ')\n"
        "    return {'sizes': pd.DataFrame({'value': [10 * size] * (size > 0)})}\n")
    monkeypatch.syspath_prepend(tmp_path)
    begin, end = MARKS
    (tmp_path / "page.md").write_text(f"before\n{begin}\nold\n{end}\nafter\n")
    ask = {name: {"question": "making:made", "settings": {"size": size}, "columns": ["size"]}
           for name, size in (("none", 0), ("one", 1), ("two", 2))}
    mine = written(tmp_path / "mine", "{{ tables.sizes.value.sum() }} in all\n",
                   [{**CLAIMS[0], "table": "sizes", "rows": {}, "by": ["size"]}], runs={},
                   ask=ask, figures=[], within="page.md")
    mine = replace(mine, root=tmp_path)
    for _ in range(2):
        assert mine.run(tmp_path / "work") == tmp_path / "page.md"
    assert (tmp_path / "work" / "made.txt").read_text() == "0 1 2 "
    # Another text of the functions is asked again, the same one not.
    (tmp_path / "making.py").write_text((tmp_path / "making.py").read_text() + "# changed\n")
    linecache.checkcache()
    for _ in range(2):
        mine.run(tmp_path / "work")
    assert (tmp_path / "work" / "made.txt").read_text() == 2 * "0 1 2 "
    assert pd.read_csv(tmp_path / "out" / "tables" / "sizes.csv").to_dict("list") == {
        "size": [1, 2], "value": [10, 20]}
    assert (tmp_path / "page.md").read_text().split() == [
        "before", *begin.split(), "30", "in", "all", *end.split(), "after"]
    assert read_json(tmp_path / "out" / "study.json")["runs"] == []


def test_questions_of_one_kind_share_their_tables(tmp_path: Path) -> None:
    ask: dict[str, Any] = {
        "a": {"question": "knn_purity", "settings": {"n": 64, "split": "ood", "k": 5},
              "into": "near", "columns": ["split"]},
        "b": {"like": "a", "settings": {"n": 48, "split": "test"}}}
    mine = written(tmp_path / "mine", ask=ask, figures=["b"],
                   claims=[{**CLAIMS[0], "by": ["split", "layer", "label"]}])
    assert mine.plan.ask["b"].settings == {"n": 48, "split": "test", "k": 5}
    mine.run(tmp_path / "work")
    out = tmp_path / "mine" / "out"
    near = pd.read_csv(out / "tables" / "near.csv")
    assert near["split"].unique().tolist() == ["ood", "test"]
    assert [column for column in near if column in (*NAMING, "split")] == [*NAMING, "split"]
    results = read_json(out / "study.json")["results"]
    assert {name: of[0]["run"] for name, of in results.items()} == dict.fromkeys(
        "ab", "logic-hyla")
    assert all(of[0]["settings"] and of[0]["caveats"] is not None for of in results.values())
    with pytest.raises(LatentCodeError, match="height"):
        written(tmp_path / "mine", ask={"near": {**ask["a"], "columns": ["height"]}})
