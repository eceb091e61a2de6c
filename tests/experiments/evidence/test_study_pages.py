"""Do the committed pages of studies say what their committed tables say?"""

from __future__ import annotations

import pytest

from latentcode.experiments.evidence.study import names, study
from latentcode.files.storage import read_json


@pytest.mark.parametrize("name", names())
def test_a_committed_page_is_what_its_tables_say(name: str) -> None:
    for part in study(name).parts():
        assert part.page_path.read_text(encoding="utf-8") == part.page(), (
            f"latentcode study {name} --page writes the page anew")
        assert read_json(part.out / "study.json")["ask"] == part.settings
