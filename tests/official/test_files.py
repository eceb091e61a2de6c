"""Official weights become runs, and runs official weights, without losing a bit."""

from __future__ import annotations

import hashlib
import json
import pickle
import sys
import types
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from places import GOLDEN, OFFICIAL

import latentcode as lc
from latentcode.cli import main
from latentcode.config import LanguageConfig
from latentcode.config.presets import model_for
from latentcode.errors import ArtifactError, ConfigError, LatentCodeError, RunError
from latentcode.models.flax import MIXERS, config_to_flax, params_to_flax
from latentcode.models.transformer import HookedTransformer
from latentcode.official.files import CONVERSION, export_flax, import_flax, infer_task, read_npz

LOGIC, RAVEN, LANGUAGE, STEPS = (OFFICIAL / f"{name}__softmax_attention.npz"
                                 for name in ("logic", "raven", "lang", "trainstep"))


@pytest.mark.parametrize("source", sorted(OFFICIAL.glob("*.npz")), ids=lambda path: path.stem)
def test_import_export_import_keeps_every_bit(source: Path, tmp_path: Path) -> None:
    data = read_npz(source)
    if source.name.startswith("trainstep"):
        data = {k.replace("param8/", "params/"): v for k, v in data.items()
                if not k.startswith(("param0/", "grad0/"))}
    run = import_flax(data, tmp_path / "first")
    file = export_flax(run, tmp_path / "out.npz")
    again = import_flax(file, tmp_path / "second")
    assert again.config == run.config
    mine, theirs = run.load_model().state_dict(), again.load_model().state_dict()
    assert list(mine) == list(theirs)
    for name, tensor in mine.items():
        assert torch.equal(tensor, theirs[name]), name
    exported = read_npz(file)
    prefix = "params/" if source.name.startswith("trainstep") else "param/"
    for name, value in data.items():
        if name.startswith(prefix):
            assert exported[f"param/{name.removeprefix(prefix)}"].tobytes() == value.tobytes()
    official = json.loads(str(data["config_json"]))
    stated = json.loads(str(exported["config_json"]))
    assert {k: stated[k] for k in official} == official


def test_an_imported_run_is_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "run"
    main(["official", "import", str(LOGIC), "--out", str(path), "--ood-fraction", "0.5"])
    out = capsys.readouterr().out
    assert "softmax on logic, step unknown, imported from logic__softmax_attention.npz" in out
    assert "--held-out" in out
    assert "the paper's" in out
    run = lc.Run.open(path)
    assert run.config.task == lc.LogicConfig(n_examples=16, ood_fraction=0.5)
    assert run.is_complete
    assert run.checkpoints() == [0]
    assert run.provenance["imported"] == {
        "file": LOGIC.name, "sha256": hashlib.sha256(LOGIC.read_bytes()).hexdigest(),
        "step": None, "training_known": False, "held_out_known": False}
    assert "step unknown" in repr(run)
    assert "imported from" in run._repr_html_()
    data = read_npz(LOGIC)
    with torch.no_grad():
        logits = run.load_model()(torch.from_numpy(data["x"]))
    np.testing.assert_allclose(logits, data["logits"], atol=1e-4, rtol=1e-4)
    codes = lc.extract(run, split="ood", n=8)
    assert codes.scores.shape == (8, 2, 1, 8)
    main(["show", str(path)])
    main(["show", str(path), "--split", "train"])
    assert "DataFrame" not in capsys.readouterr().out


def test_training_does_not_go_on_from_imported_weights(tmp_path: Path) -> None:
    run = import_flax(LOGIC, tmp_path / "run")
    before = sorted(p.name for p in run.path.rglob("*"))
    with pytest.raises(RunError, match="imported, without the state of the optimiser"):
        lc.train(run.config, run.path, resume=True, progress=False)
    assert sorted(p.name for p in run.path.rglob("*")) == before


def test_what_the_file_says_of_training_is_kept(tmp_path: Path) -> None:
    data = read_npz(STEPS)
    data = {k.removeprefix("param8/"): v for k, v in data.items()
            if k.startswith("param8/") or k == "config_json"}  # bare paths
    run = import_flax({**data, "step": np.array(8)}, tmp_path / "run")
    training = run.config.training
    assert (training.steps, training.batch_size, training.learning_rate, training.weight_decay,
            training.warmup_steps) == (20, 16, 0.01, 0.1, 3)
    assert run.checkpoints() == [8]
    assert run.imported["training_known"]
    exported = read_npz(export_flax(run, tmp_path / "out.npz"))
    assert int(exported["step"]) == 8
    assert json.loads(str(exported["config_json"])) == {
        **json.loads(str(data["config_json"])), "block_type": "default", "normalize_qk": False,
        "moe_num": None, "moe_top_k": None}


def test_given_held_out_combinations_are_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], refused: Callable[..., str]
) -> None:
    split = GOLDEN / "logic_split_seed0.json"
    held_out = json.loads(split.read_text())["splits"]["heldout_0.7"]
    (tmp_path / "held_out.json").write_text(json.dumps(held_out))
    main(["official", "import", str(LOGIC), "--out", str(tmp_path / "run"), "--step", "50000",
          "--held-out", str(tmp_path / "held_out.json")])
    assert "--held-out" not in capsys.readouterr().out
    run = lc.Run.open(tmp_path / "run")
    assert run.checkpoints() == [50_000]
    ood = lc.make_task(run.config.task).combinations("ood")
    assert {tuple(sorted(c)) for c in ood.tolist()} == {tuple(sorted(c)) for c in held_out}
    assert "--held_out" not in refused(  # a file of another form
        "official", "import", LOGIC, "--out", tmp_path / "other", "--held-out", split)


def test_tasks_are_told_by_dimensions() -> None:
    for config in (lc.LogicConfig(n_variables=5, n_examples=20),
                   lc.SravenConfig(n_values=9, n_features=3)):
        assert infer_task(model_for(config)) == config
    one_answer = lc.ModelConfig(d_input=4, d_output=4, n_buckets=18, max_distance=18)
    assert infer_task(one_answer) == lc.SravenConfig(n_values=4, n_features=2)
    with pytest.raises(ConfigError, match="relative_position_max_dist is 19"):
        infer_task(replace(one_answer, n_buckets=19, max_distance=19))
    with pytest.raises(ConfigError, match="unknown problem 'wiki'"):
        infer_task(one_answer, "wiki")


def test_a_language_model_is_a_run_without_instances(
    tmp_path: Path, refused: Callable[..., str]
) -> None:
    run = import_flax(LANGUAGE, tmp_path / "run")
    assert run.config.task == LanguageConfig(n_vocabulary=97, n_tokens=24)
    data = read_npz(LANGUAGE)
    with torch.no_grad():
        logits = lc.Run.open(run.path).load_model()(torch.from_numpy(data["x"]).long())
    np.testing.assert_allclose(logits, data["logits"], atol=1e-4, rtol=1e-4)
    for command in (["show", run.path, "--split", "train"],
                    ["extract", run.path, "--out", tmp_path / "codes"],
                    ["decode", run.path, "--out", tmp_path / "result"]):
        assert "task 'language' has no instances" in refused(*command)
    with pytest.raises(ConfigError, match="no instances"):
        lc.train(run.config, tmp_path / "new")
    assert "takes token ids" in refused(
        "official", "import", LANGUAGE, "--out", tmp_path / "x", "--problem", "logic")
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(("arguments", "message"), [
    ([LOGIC, "--problem", "sraven"], "relative_position_max_dist is 16"),
    ([RAVEN, "--problem", "logic"], "d_output is 8; expected 1"),
    ([RAVEN, "--n-terms", "2"], "--n-terms is given, but task 'sraven'"),
    ([LOGIC, "--unpermuted"], "permuted is given, but task 'logic'"),
    ([LOGIC, "--ood-fraction", "1.5"], "ood_fraction is 1.5"),
    ([LOGIC, "--step", "-1"], "step is -1"),
    ([STEPS], "no parameters are here"),
    ([OFFICIAL / "none.npz"], "does not exist"),
])
def test_what_cannot_be_imported_is_said(
    arguments: list[object], message: str, tmp_path: Path, refused: Callable[..., str]
) -> None:
    assert message in refused("official", "import", *arguments, "--out", tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_export_refuses_what_it_would_break(tmp_path: Path, refused: Callable[..., str]) -> None:
    run = import_flax(LOGIC, tmp_path / "run")
    target = tmp_path / "out.npz"
    target.write_text("mine")
    assert "exists already" in refused("official", "export", run.path, "--out", target)
    assert "ends in .npz" in refused("official", "export", run.path, "--out", tmp_path / "o.pt")
    assert "no checkpoint of step 3" in refused(
        "official", "export", run.path, "--out", tmp_path / "o.npz", "--step", "3")
    assert target.read_text() == "mine"
    main(["official", "export", str(run.path), "--out", str(target), "--overwrite"])
    assert "param/decoder_norm/bias" in read_npz(target)
    deep = lc.preset("smoke", kind="hyla_deep")
    other = lc.Run.create(tmp_path / "deep", deep)
    assert "'hyla_deep'" in refused("official", "export", other.path, "--out", tmp_path / "d.npz")
    assert not list(tmp_path.glob(".tmp-*"))
    assert not (tmp_path / "d.npz").exists()
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match=r"out\.npz cannot be made, because .*file is a file"):
        export_flax(run, tmp_path / "file" / "out.npz")


@pytest.mark.parametrize("kind", ["softmax", "hyla", "hyla_linear_no_rms_head"])
def test_a_run_trained_here_survives_the_official_layout(kind: str, tmp_path: Path) -> None:
    config = lc.preset("smoke", kind=kind)
    config = replace(config, training=replace(config.training, steps=4, warmup_steps=1))
    run = lc.train(config, tmp_path / "run", progress=False)
    again = import_flax(export_flax(run, tmp_path / "out.npz"), tmp_path / "again",
                        task=config.task)
    assert again.config.model == config.model
    assert again.checkpoints() == [4]
    assert again.config.training.learning_rate == config.training.learning_rate
    mine, theirs = run.load_model().state_dict(), again.load_model().state_dict()
    assert all(torch.equal(tensor, theirs[name]) for name, tensor in mine.items())
    assert kind in MIXERS.values()


class State:
    """Stands for the official `ExperimentState`, which has these two attributes and others."""

    def __init__(self, params: dict[str, Any], step: int) -> None:
        self.params, self.step = params, step


class Config(types.SimpleNamespace):
    """Stands for an `ml_collections.ConfigDict`."""

    def to_dict(self) -> dict[str, Any]:
        return dict(vars(self))


def test_the_conversion_of_a_pickle_can_be_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The text is run on stand-ins for Flax and the official classes, which are not installed."""
    model = HookedTransformer(lc.preset("smoke").model, seed=4)

    def flatten_dict(tree: dict[str, Any], sep: str) -> dict[str, Any]:
        flat: dict[str, Any] = {}
        for key, value in tree.items():
            flat |= ({f"{key}{sep}{k}": v for k, v in flatten_dict(value, sep).items()}
                     if isinstance(value, dict) else {key: value})
        return flat

    tree: dict[str, Any] = {}
    for path, value in params_to_flax(model).items():
        *folders, last = path.split("/")
        node = tree
        for folder in folders:
            node = node.setdefault(folder, {})
        node[last] = value
    # Initialisation leaves the attention weights of the first batch beside the parameters.
    state = State({"params": tree, "intermediates": {"attn_weights": np.ones(3)}}, 30)
    config = Config(model=Config(**config_to_flax(model.cfg)), lr=1e-3, warmup_steps=5,
                    weight_decay=0.1, batch_size=32)
    loaded = iter([config, state])
    monkeypatch.setattr(pickle, "load", lambda file: next(loaded))
    traverse = types.ModuleType("flax.traverse_util")
    traverse.flatten_dict = flatten_dict  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "flax", types.ModuleType("flax"))
    monkeypatch.setitem(sys.modules, "flax.traverse_util", traverse)
    monkeypatch.chdir(tmp_path)
    for name in ("config.pkl", "state.pkl"):
        Path(name).touch()
    exec(compile(CONVERSION, "conversion", "exec"), {})
    run = import_flax("official.npz", "run")
    assert run.config.model == model.cfg
    assert run.checkpoints() == [30]
    assert run.config.training.batch_size == 32
    for name, tensor in run.load_model().state_dict().items():
        assert torch.equal(tensor, model.state_dict()[name]), name
    with pytest.raises(ArtifactError, match=r"CONVERSION.*state\.params\['params'\]"):
        import_flax("state.pkl", "other")


def test_arrays_in_memory_need_a_configuration(tmp_path: Path) -> None:
    data = read_npz(LOGIC)
    del data["config_json"]
    with pytest.raises(LatentCodeError, match="config_json"):
        import_flax(data, tmp_path / "run")
