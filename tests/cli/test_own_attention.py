"""Does the command line take names of attention that were registered before it reads its words?"""

from __future__ import annotations

from pathlib import Path

import pytest

import latentcode as lc
from latentcode.cli import main
from latentcode.sweep.grid import read_grid

LITTLE = ["--preset", "smoke", "--training.steps", "4", "--training.warmup-steps", "0",
          "--training.eval-every", "4"]


@pytest.fixture(autouse=True)
def sharp(own_names: object) -> None:
    lc.register_normalization("sharp", lambda scores: (2.0 * scores).softmax(dim=-1))
    lc.register_nonlinearity("softplus", lambda x: (1.0 + x.exp()).log())
    lc.register_kind("sharp_linear", normalization="sharp", value_network="linear")


def test_train_takes_a_kind_and_fields(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["train", "logic", "--kind", "sharp_linear", "--model.nonlinearity", "softplus",
          "--out", str(tmp_path / "run"), *LITTLE])
    model = lc.load_run(tmp_path / "run").config.model
    assert (model.normalization, model.value_network, model.nonlinearity) == (
        "sharp", "linear", "softplus")
    main(["show", str(tmp_path / "run")])
    assert "sharp/linear/softplus on logic" in capsys.readouterr().out


def test_a_sweep_has_it_on_its_axes() -> None:
    grid = read_grid({"base": {"preset": "smoke", "task": "logic"},
                      "axes": {"kind": ["softmax", "sharp_linear"],
                               "model.nonlinearity": ["identity", "softplus"]}}, "grid")
    members = grid.members()
    assert list(members)[3] == "kind=sharp_linear,nonlinearity=softplus"
    assert [config.model.normalization for config in members.values()] == [
        "softmax", "softmax", "sharp", "sharp"]
    with pytest.raises(lc.LatentCodeError, match="unknown attention kind 'blunt'"):
        read_grid({"base": {"preset": "smoke", "task": "logic"},
                   "axes": {"kind": ["blunt"]}}, "grid")
