"""Do the pages say what the committed tables say, and could these tests tell if they did not?"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from places import ROOT

from latentcode.errors import ArtifactError
from latentcode.experiments.evidence.pages import render, wrapped
from latentcode.experiments.questions.__main__ import PAGES, written

TABLE = """kind,layers,metric,value,min
hyla,0,flip,0.125,0.1
hyla,"2,3",flip,0.6,0.5
linear,"2,3",flip,0.0449,0.02
softmax,"2,3",flip,1002,
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "rates.csv").write_text(TABLE, encoding="utf-8")
    (tmp_path / "card.json").write_text('{"r2": 0.899}', encoding="utf-8")
    return tmp_path


def page(root: Path, text: str) -> str:
    template = root / "page.md.jinja2"
    template.write_text("{% set rates = table('rates.csv')(metric='flip') %}\n" + text,
                        encoding="utf-8")
    return render(template, root).removesuffix("\n")


@pytest.mark.parametrize("name", PAGES)
def test_committed_pages_are_what_the_tables_say(name: str) -> None:
    assert (ROOT / name).read_text(encoding="utf-8") == written(name), (
        "python -m latentcode.experiments.questions writes the page anew")


@pytest.mark.parametrize(("text", "expected"), [
    ("{{ rates(kind='hyla', layers='2,3') }}", "0.60"),
    ("{{ rates('min', kind='hyla', layers=0).fixed(3) }}", "0.100"),
    ("{{ rates(layers='2,3', kind=['linear', 'hyla']).each('kind') }}", "0.04 and 0.60"),
    ("{{ rates(layers='2,3').each('kind') }}", "0.60, 0.04 and 1,002.00"),
    ("{{ rates(kind='hyla').span('layers') }}", "0.12 to 0.60"),
    ("{{ rates(kind='softmax').span(digits=0) }}", "1,002"),
    ("{{ rates(kind='hyla').largest('layers', digits=1) }}", "0.6"),
    ("{{ rates(kind='hyla').below('min', 0.3).count }} of {{ rates.count }}", "1 of 4"),
    ("{{ rates(kind='hyla').mean('layers') | round(4) }}", "0.3625"),
    ("{{ (rates(kind='linear') + table('rates.csv')(kind='linear')) (kind='linear')"
     "(table='rates.csv kind=linear') }}", "0.04"),
    ("{{ fixed(rates(kind='hyla', layers=0).value / rates(kind='linear').value, 1) }}", "2.8"),
    ("{{ fixed(document('card.json').r2) }}", "0.90"),
    ("{{ given('0.125', '1 / 8') }} [b](a/2.5) in 3 layers", "0.125 [b](a/2.5) in 3 layers"),
])
def test_expressions_are_the_numbers_of_the_table(root: Path, text: str, expected: str) -> None:
    assert page(root, text) == expected


@pytest.mark.parametrize(("text", "message"), [
    ("so\n0.60 of", "line 3: a bare number in 'so 0.60 of'; expected an expression"),
    ("in 60 % of cases", "a bare number in 'in 60 % of case'"),
    ("| a | .5 |", "a bare number"),
    ("{% if true %}6 of 60 tests{% endif %}", "a bare number in '6 of 60"),
    ("{{ 0.6 }} of", "a bare number in '0.6'"),
    ("{{ '0.6' }} of", "a bare number in '0.6'"),
    ("{{ given('0.6', '') }}", "given('0.6') has no reason"),
    ("\n{{ rates(kind='hyla') }}", "line 3: rates.csv metric=flip kind=hyla has 2 rows; "
     "expected 1, one per number (they differ in layers, value, min)"),
    ("{{ rates.span('kind') }}", "has 4 rows; expected 3, one per kind"),
    ("{{ rates(kind='hyle') }}", "unknown kind of rates.csv metric=flip 'hyle'; expected one of"),
    ("{{ rates(kind=['hyla', 'x']).each('kind') }}", "unknown kind of rates.csv metric=flip 'x'"),
    ("{{ rates(kind='linear', layers=0) }}", "unknown layers of"),
    ("{{ rates(sort='hyla') }}", "unknown column of rates.csv metric=flip 'sort'; expected one"),
    ("{{ rates('max', kind='linear') }}", "unknown column of rates.csv metric=flip kind=linear"),
    ("{{ rates(kind='linear').span('seed') }}", "unknown column"),
    ("{{ rates('min', kind='softmax') }}", "min of rates.csv metric=flip kind=softmax is ''; "
     "expected a number"),
    ("{{ rates.below('min', 9).count }}", "expected a number"),
    ("{{ rates(kind='linear').below('min', 0) }}", "min<0 has no row"),
    ("{{ table('other.csv') }}", "table other.csv is missing"),
    ("{{ document('card.json').r3 }}", "line 2: 'dict object' has no attribute 'r3'"),
    ("{{ ratse(kind='hyla') }}", "line 2: 'ratse' is undefined"),
    ("{{ rates(kind='hyla' }}", "line 2: unexpected '}'"),
])
def test_what_cannot_be_written_is_one_error(root: Path, text: str, message: str) -> None:
    with pytest.raises(ArtifactError) as raised:
        page(root, text)
    assert message in str(raised.value)
    assert str(raised.value).startswith("page.md.jinja2")


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """A folder that links to every table of the checkout."""
    for folder in ("experiments", "models"):
        for file in (ROOT / folder).rglob("*.[cj]s*"):
            copy = tmp_path / file.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            os.symlink(file, copy)
    return tmp_path


def replaced(table: Path, text: str) -> None:
    """Put a file in the place of a link."""
    table.unlink()
    table.write_text(text, encoding="utf-8")


def test_a_changed_table_changes_the_page(results: Path) -> None:
    """The committed template, over links to the checkout but for one number of one table."""
    table = results / "experiments/results/codes/sraven/tables/interventions.csv"
    before = table.read_text(encoding="utf-8")
    row = next(line for line in before.splitlines()
               if line.startswith('hyla,interchange,row,"2,3",code,,all,False,flip,'))
    replaced(table, before.replace(row, row.replace(",0.5", ",0.6", 1)))
    page = "experiments/QUESTIONS.md"
    as_committed, changed = written(page).splitlines(), written(page, results).splitlines()
    differing = [new for old, new in zip(as_committed, changed, strict=True) if old != new]
    assert any("| 0.70 (0.10) |" in line for line in differing)
    assert len(differing) < 4  # the table's line, and where the text repeats its number


def test_runs_are_counted_where_they_are_told(results: Path) -> None:
    runs = {"hyla": {0: 0.9, 1: 0.88}, "softmax": {1: 0.6}, "linear": {1: 0.5}}
    replaced(results / "experiments/results/reproduced/paper/figA3/scores.csv", "\n".join([
        "kind,split_seed,id,n_examples,ood_fraction,split,metric,value",
        *(f"{kind},{split},{kind}{split},32,0.7,{on},r2,{value + (on == 'test') / 10}"
          for kind, of in runs.items() for split, value in of.items() for on in ("ood", "test"))]))
    row = next(line for line in written("experiments/QUESTIONS.md", results).splitlines()
               if "generalise at the published setting" in line)
    assert "HYLA 0.88 to 0.90 (2 runs), softmax 0.60 (one run), linear 0.50 (one run), " in row
    assert "with 0.60 to 1.00 on known ones. SRAVEN" in row
    assert row.endswith("updates, 2 splits |")


def test_only_paragraphs_and_items_are_broken() -> None:
    kept = ("# A heading\n\n```\ncode   stays\n\n\nas it is\n```\n\n| a | b |\n|---|---|\n"
            "| c | d |\n")
    assert wrapped(kept) == kept
    words = " ".join(["word"] * 40)
    broken = wrapped(f"{words}\n- {words}\n  1. {words}\nmore\n\n\n\nlast")
    assert max(map(len, broken.splitlines())) <= 110
    assert broken.splitlines()[2].startswith("- word")
    assert broken.splitlines()[3].startswith("  word")
    assert "\n  1. word" in broken
    assert broken.endswith("word more\n\nlast\n")
    assert wrapped(broken) == broken
    # No line begins with what would make an item or a heading of it.
    for mark in ("-", "#", "12."):
        for n in range(90, 112):
            assert not any(line.startswith(f"{mark} ")
                           for line in wrapped(f"{'x' * n} {mark} b\n").splitlines())
