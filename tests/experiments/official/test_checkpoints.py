"""Official weights become runs, and runs official weights, without losing a bit."""

from __future__ import annotations

import json
import pickle
import re
import sys
import types
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from official_golden import FORWARD, STEPS, official_golden
from places import GOLDEN, ROOT

import latentcode as lc
from latentcode.config import LanguageConfig
from latentcode.config.presets import model_for
from latentcode.errors import ArtifactError, ConfigError, RunError
from latentcode.experiments.official.checkpoints import (
    export_checkpoint,
    import_checkpoint,
    infer_task,
)
from latentcode.experiments.official.weights import (
    below,
    config_to_flax,
    params_to_flax,
    read_npz,
)
from latentcode.models.transformer import HookedTransformer


def saved(folder: Path, config: dict[str, Any], params: dict[str, np.ndarray], **more: Any) -> Path:
    file = folder / "official.npz"
    np.savez(file, config_json=json.dumps(config), **more,
             **{f"param/{path}": value for path, value in params.items()})
    return file


@pytest.fixture
def logic(tmp_path: Path) -> Path:
    """A file of a model of fuzzy logic, with the settings of its training."""
    config, arrays = official_golden(STEPS)
    return saved(tmp_path, config, below("param8/", arrays), step=8)


def test_a_language_model_is_a_run_and_comes_back(tmp_path: Path) -> None:
    config, arrays = official_golden(FORWARD[2])
    params = below("param/", arrays)
    run = import_checkpoint(saved(tmp_path, config, params), tmp_path / "run")
    assert run.config.task == LanguageConfig(n_vocabulary=97, n_tokens=24)
    assert run.imported is not None
    assert not run.imported["training_known"]
    with torch.no_grad():
        logits = lc.Run.open(run.path).load_model()(torch.from_numpy(arrays["x"]).long())
    np.testing.assert_allclose(logits, arrays["logits"], atol=1e-4, rtol=1e-4)
    stated, exported = read_npz(export_checkpoint(str(run.path), tmp_path / "out.npz"))
    assert {key: stated[key] for key in config} == config
    assert {path: value.tobytes() for path, value in below("param/", exported).items()} == {
        path: value.tobytes() for path, value in params.items()}
    assert "step" not in exported


def test_what_the_file_says_of_training_is_kept(logic: Path, tmp_path: Path) -> None:
    run = import_checkpoint(logic, tmp_path / "run")
    training = run.config.training
    assert (training.steps, training.batch_size, training.learning_rate, training.weight_decay,
            training.warmup_steps) == (20, 16, 0.01, 0.1, 3)
    assert run.checkpoints() == [8]
    assert run.config.task == lc.LogicConfig(n_examples=16)
    stated, exported = read_npz(export_checkpoint(str(run.path), tmp_path / "out.npz"))
    assert int(exported["step"]) == 8
    official, _ = read_npz(logic)
    assert {key: stated[key] for key in official} == official
    with pytest.raises(RunError, match="imported, without the state of the optimiser"):
        lc.train(run.config, run.path, resume=True, progress=False)


def test_given_held_out_combinations_are_used(
    logic: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import_checkpoint(logic, tmp_path / "other")
    assert "--held-out" in capsys.readouterr().out
    splits = json.loads((GOLDEN / "logic_split_seed0.json").read_text())["splits"]
    (tmp_path / "held_out.json").write_text(json.dumps(splits["heldout_0.7"]))
    run = import_checkpoint(logic, tmp_path / "run", held_out=tmp_path / "held_out.json")
    assert "--held-out" not in capsys.readouterr().out
    ood = lc.make_task(run.config.task).combinations("ood")
    assert {tuple(sorted(c)) for c in ood.tolist()} == {
        tuple(sorted(c)) for c in splits["heldout_0.7"]}


def test_tasks_are_told_by_dimensions() -> None:
    for config in (lc.LogicConfig(n_variables=5, n_examples=20),
                   lc.SravenConfig(n_values=9, n_features=3)):
        assert infer_task(model_for(config)) == config
    model = lc.ModelConfig(d_input=4, d_output=4, n_buckets=19, max_distance=19)
    with pytest.raises(ConfigError, match="relative_position_max_dist is 19"):
        infer_task(model)
    with pytest.raises(ConfigError, match="takes token ids"):
        infer_task(replace(model, embedding="token"), "logic")


class Holder(types.SimpleNamespace):
    """Stands for the official `ExperimentState`, and for an `ml_collections.ConfigDict`."""

    def to_dict(self) -> dict[str, Any]:
        return dict(vars(self))


def test_the_conversion_of_a_pickle_can_be_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The code of the page is run on stand-ins for Flax and the official classes."""
    page = (ROOT / "docs" / "official.md").read_text(encoding="utf-8")
    conversion = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)[0]
    model = HookedTransformer(lc.preset("smoke").model, seed=4)
    tree: dict[str, Any] = {}
    for path, value in params_to_flax(model).items():
        *folders, last = path.split("/")
        node = tree
        for folder in folders:
            node = node.setdefault(folder, {})
        node[last] = value

    def flatten_dict(tree: dict[str, Any], sep: str) -> dict[str, Any]:
        flat: dict[str, Any] = {}
        for key, value in tree.items():
            flat |= ({f"{key}{sep}{k}": v for k, v in flatten_dict(value, sep).items()}
                     if isinstance(value, dict) else {key: value})
        return flat

    config = Holder(model=Holder(**config_to_flax(model.cfg)), lr=1e-3, warmup_steps=5,
                    weight_decay=0.1, batch_size=32)
    # Initialisation leaves the attention weights of the first batch beside the parameters.
    state = Holder(params={"params": tree, "intermediates": {"attn_weights": np.ones(3)}}, step=30)
    loaded = iter([config, state])
    monkeypatch.setattr(pickle, "load", lambda file: next(loaded))
    traverse = types.ModuleType("flax.traverse_util")
    traverse.flatten_dict = flatten_dict  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "flax", types.ModuleType("flax"))
    monkeypatch.setitem(sys.modules, "flax.traverse_util", traverse)
    monkeypatch.chdir(tmp_path)
    for name in ("config.pkl", "state.pkl"):
        Path(name).write_bytes(pickle.dumps({}))
    exec(compile(conversion, "conversion", "exec"), {})
    run = import_checkpoint(Path("official.npz"), Path("run"))
    assert run.config.model == model.cfg
    assert run.checkpoints() == [30]
    assert run.config.training.batch_size == 32
    for name, tensor in run.load_model().state_dict().items():
        assert torch.equal(tensor, model.state_dict()[name]), name
    with pytest.raises(ArtifactError, match=r"state\.pkl cannot be read.*never loaded"):
        import_checkpoint(Path("state.pkl"), Path("other"))
