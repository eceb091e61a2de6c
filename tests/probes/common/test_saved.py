"""Is every kind of result known by its file, whatever room it stands in?"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from latentcode.errors import ArtifactError
from latentcode.probes.common.saved import RESULTS, load_result


@pytest.mark.parametrize("marker", RESULTS)
def test_names_lead_to_the_class_that_writes_the_file(marker: str, tmp_path: Path) -> None:
    module, name = RESULTS[marker]
    kind = getattr(import_module(module), name)
    assert kind.marker() == marker
    (tmp_path / marker).write_text("{")
    with pytest.raises(ArtifactError, match=marker):
        load_result(tmp_path)


def test_other_folders_hold_no_result(tmp_path: Path) -> None:
    assert load_result(tmp_path) is None
