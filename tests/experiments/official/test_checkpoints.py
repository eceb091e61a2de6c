"""Official weights become runs, and runs official weights, without losing a bit."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from official_golden import FORWARD, STEPS, official_golden
from places import GOLDEN

import latentcode as lc
from latentcode.config import LanguageConfig
from latentcode.errors import ArtifactError, ConfigError, RunError
from latentcode.experiments.official.checkpoints import (
    below,
    export_checkpoint,
    import_checkpoint,
    infer_task,
    read_npz,
)
from latentcode.presets import model_for


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


def test_a_pickle_is_never_loaded(tmp_path: Path) -> None:
    (tmp_path / "state.pkl").write_bytes(pickle.dumps({}))
    with pytest.raises(ArtifactError, match=r"state\.pkl cannot be read.*never loaded"):
        import_checkpoint(tmp_path / "state.pkl", tmp_path / "run")
