"""The study of attribution, end to end on models of the zoo."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import latentcode as lc
from latentcode.errors import LatentCodeError
from latentcode.experiments.studies.attribution import __main__ as study
from latentcode.experiments.studies.attribution.__main__ import main


@pytest.mark.slow
def test_the_page_says_what_the_results_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(study, "N", {"sraven": 40, "logic": 60})
    shutil.copytree(lc.load_run("sraven-softmax").path, tmp_path / "runs" / "softmax")
    out = tmp_path / "out"
    main(tmp_path / "runs", out, zoo=("logic-hyla",), n_patched=8, n_checked=2, n_ranked=2)
    page = (out / "README.md").read_text()
    for name in ("sraven-softmax", "logic-hyla"):
        result = lc.AttributionResult.load(out / name)
        rate = result.smallest.set_index("site").loc["code", "held_all"]
        assert f"- {name}, codes: " in page
        n_places = result.smallest["n_places"].iloc[0]
        assert f"All {n_places} places bring the source's answer " in page
        assert f"in {rate:.2f} of 4 instances" in page
        assert (out / name / "figure.png").is_file()
    (out / "README.md").unlink()
    main(out=out, page_only=True)
    assert (out / "README.md").read_text() == page


def test_a_folder_without_such_runs(tmp_path: Path) -> None:
    with pytest.raises(LatentCodeError, match="holds no run of seed 0; expected the folder of a"):
        main(tmp_path, tmp_path / "out")
