"""What was found of architectures is found again, with the versions that it was found with."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from small_bridges import make, names

from latentcode.errors import LatentCodeError
from latentcode.files.provenance import package_version
from latentcode.probes.model_checks import check_model

TABLE = pd.read_csv(Path(__file__).with_name("architectures.csv"),
                    keep_default_na=False).set_index("architecture")
same_versions = pytest.mark.skipif(
    (package_version("transformer-lens"), package_version("transformers")) != ("4.3.0", "5.23.0"),
    reason="the table is of other versions of TransformerLens or transformers")


@same_versions
def test_no_architecture_is_left_out() -> None:
    assert set(TABLE.index) == set(names())


@same_versions
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of sizes that no published model has
@pytest.mark.parametrize("name", TABLE.index[TABLE["outcome"] != "not built"])
def test_an_architecture_is_supported_as_the_table_says(name: str, tmp_path: Path) -> None:
    make(name, tmp_path / "model")
    try:
        outcome = "supported" if check_model(tmp_path / "model").supported else "partly"
    except LatentCodeError:
        outcome = "refused"
    assert outcome == TABLE.loc[name, "outcome"]
