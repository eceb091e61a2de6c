"""Run folders: whole or not there, and clear about what is wrong with them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from places import ROOT

from latentcode.config import LogicConfig, RunConfig, TrainingConfig, config_hash
from latentcode.errors import ArtifactError, RunError
from latentcode.files.storage import checksum, exclusive, is_locked, read_tensors, write_tensors
from latentcode.metrics import Metric
from latentcode.models.config import ModelConfig
from latentcode.models.transformer import HookedTransformer
from latentcode.runs import Run
from latentcode.runs.checkpoints import append_metrics, cut_metrics, read_metrics
from latentcode.training import make_optimizer

CONFIG = RunConfig(
    LogicConfig(n_variables=3, n_examples=4, ood_fraction=0.3),
    ModelConfig(d_input=4, n_layers=1, d_model=4, n_heads=2, d_mlp=4, n_buckets=4, max_distance=4),
    TrainingConfig(steps=20, warmup_steps=1, keep_checkpoints=2))


def save(run: Run, *steps: int) -> HookedTransformer:
    """Save checkpoints of a model that has been updated once."""
    model = HookedTransformer(CONFIG.model, seed=5)
    optimizer = make_optimizer(model, replace(CONFIG.training, warmup_steps=0))
    model(torch.ones(2, 4, 4)).sum().backward()
    optimizer.step()
    for step in steps:
        generators = {"dropout": torch.Generator().manual_seed(step)}
        run.save_checkpoint(step, model, optimizer, generators, {"losses": [0.5]})
    return model


@pytest.fixture
def run(tmp_path: Path) -> Run:
    run = Run.create(tmp_path / "run", CONFIG)
    run.append_metrics(0, "train", {"loss": Metric(0.5, 0.1, 10), "r2": Metric(0.25, 0.1, 10)})
    run.append_metrics(9, "ood", {"loss": Metric(0.125, float("nan"), 1)})
    save(run, 0, 9)
    return Run.open(run.path)


# What a run offers


def test_opened_run_is_the_one_created(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run.create(tmp_path / "deep" / "run", CONFIG)
    opened = Run.open(str(run.path))
    assert (opened.config, opened.provenance) == (CONFIG, run.provenance)
    assert opened.checkpoints() == []
    assert opened.metrics().empty
    assert not opened.is_complete
    monkeypatch.chdir(run.path / "checkpoints")
    assert Run.open("..").path == run.path
    assert Run.open("..").name == "run"


def test_provenance_says_where_the_run_comes_from(run: Run) -> None:
    facts = run.provenance
    assert facts["torch"] == torch.__version__
    assert facts["numpy"] == np.__version__
    assert facts["python"] == sys.version.split()[0]
    assert facts["transformer_lens"]
    assert facts["device"] == "cpu"
    assert facts["device_name"]
    assert facts["threads"] == torch.get_num_threads()
    assert facts["config_hash"] == config_hash(CONFIG)
    assert facts["format_version"] == "2.0"
    assert run.id == facts["id"]


def test_metrics_are_a_tidy_table(run: Run) -> None:
    table = run.metrics()
    assert list(table) == ["step", "split", "metric", "mean", "se", "n"]
    assert table.iloc[0].to_dict() == {
        "step": 0, "split": "train", "metric": "loss", "mean": 0.5, "se": 0.1, "n": 10}
    assert np.isnan(table["se"].iloc[2])
    assert table["step"].dtype == table["n"].dtype == "int64"
    assert run.latest().loc["loss"].to_dict() == {"train": 0.5, "ood": 0.125}
    json.loads((run.path / "metrics.jsonl").read_text().splitlines()[2],
               parse_constant=lambda c: pytest.fail(f"{c} is not JSON"))


def test_the_newest_value_of_a_metric(run: Run) -> None:
    for step, mean in ((1, 0.25), (2, 0.75)):
        run.append_metrics(step, "ood", {"loss": Metric(mean, 0.5, 7)})
    assert run.newest("ood", "loss") == Metric(0.75, 0.5, 7)
    assert run.newest("train", "loss") == Metric(0.5, 0.1, 10)
    assert run.newest("ood", "accuracy") is None
    assert run.newest("unknown", "loss") is None
    table = run.newest_metrics()
    assert not table.duplicated(["split", "metric"]).any()
    assert table.set_index(["split", "metric"]).loc[("ood", "loss"), "step"] == 2


def test_the_latest_metrics_of_constituents_are_apart(run: Run) -> None:
    before = run.latest()
    assert run.latest(by_constituent=True).empty
    for step, value in ((1, 0.25), (2, 0.75)):
        run.append_metrics(step, "test", {"share[sum]": Metric(value, 0.1, 4),
                                          "share[-1]": Metric(value / 3, 0.1, 4)})
        run.append_metrics(step, "ood", {"share[sum]": Metric(1.0 if step == 1 else np.nan, 0.1,
                                                              2 - step)})
    table = run.latest(by_constituent=True)
    assert list(table.index) == ["share[sum]", "share[-1]"]
    assert list(table.columns) == ["test", "ood"]
    assert table["test"].tolist() == [0.75, 0.25]
    assert table["ood"].isna().all()  # no older value stands in for one that is not defined
    assert run.latest().equals(before)
    assert "share[-1]" in run._repr_html_()


def test_optimizer_state_is_restored_by_name(run: Run) -> None:
    save(run, 12)
    checkpoint = run.load_checkpoint()
    model = HookedTransformer(CONFIG.model)
    optimizer = make_optimizer(model, CONFIG.training)
    # Another order of parameters, as another version of the model might have.
    for group in optimizer.param_groups:
        group["params"].reverse()
    checkpoint.restore_optimizer(optimizer, model)
    saved = read_tensors(checkpoint.path / "optimizer.safetensors")
    names = dict(model.named_parameters())
    assert {f"{n}.{m}" for n in names for m in ("exp_avg", "exp_avg_sq", "step")} == set(saved)
    for name, parameter in names.items():
        for moment, value in optimizer.state[parameter].items():
            assert np.array_equal(value.numpy(), saved[f"{name}.{moment}"])
    assert any(saved[f"{n}.exp_avg"].any() for n in names)


def test_reading_a_run_needs_no_torch(run: Run) -> None:
    code = ("import sys; from latentcode.runs import Run; run = Run.open(sys.argv[1]); "
            "run.checkpoints(); run.metrics(); run.load_checkpoint(); run._repr_html_(); "
            "sys.exit('torch' in sys.modules)")
    done = subprocess.run([sys.executable, "-c", code, str(run.path)], cwd=ROOT,
                          env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False)
    assert done.returncode == 0


# What is refused

def test_a_folder_in_use_is_refused(run: Run) -> None:
    with pytest.raises(RunError, match=r"already holds a run; resume it .--resume"):
        Run.create(run.path, CONFIG)
    with exclusive(run.path / ".lock"), pytest.raises(RunError, match="is being written by"):
        Run.create(run.path, CONFIG, overwrite=True)
    assert Run.open(run.path).checkpoints() == [0, 9]
    replaced = Run.create(run.path, CONFIG, overwrite=True)
    assert replaced.checkpoints() == []
    assert replaced.id != run.id
    assert [p.name for p in run.path.parent.iterdir()] == ["run"]


@pytest.mark.parametrize("name", ["thesis.txt", "config.yaml", "provenance.json"])
@pytest.mark.parametrize("overwrite", [False, True])
def test_foreign_folders_are_never_touched(tmp_path: Path, name: str, overwrite: bool) -> None:
    (tmp_path / name).write_text("{}")
    with pytest.raises(RunError, match="is not a run of ours"):
        Run.create(tmp_path, CONFIG, overwrite=overwrite)
    assert (tmp_path / name).read_text() == "{}"


def test_a_second_process_is_refused(run: Run) -> None:
    code = ("import sys; from pathlib import Path; from latentcode.files.storage import exclusive\n"
            "with exclusive(Path(sys.argv[1])): print('locked', flush=True); sys.stdin.read()")
    with subprocess.Popen(
            [sys.executable, "-c", code, str(run.path / ".lock")], cwd=ROOT, text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout.readline() == "locked\n"
        assert is_locked(run.path / ".lock")
        with (pytest.raises(RunError, match="is being written by another process"),
              run.writing()):
            pass
        other.kill()
    assert not is_locked(run.path / ".lock")
    with run.writing():  # the lock ends with the process
        pass


def test_stale_temporaries_are_removed_when_writing(run: Run) -> None:
    for place in (run.path, run.path / "checkpoints"):
        (place / ".tmp-12345678-step_0000003").mkdir()
        (place / ".tmp-12345678-step_0000003" / "state.json").write_text("{}")
        (place / ".tmp-12345678-metrics.jsonl").write_text("")
    assert run.checkpoints() == [0, 9]
    with run.writing():
        pass
    assert list(run.path.rglob(".tmp-*")) == []


@pytest.mark.parametrize("name", ["config.yaml", "provenance.json", "metrics.jsonl"])
def test_half_written_folder(run: Run, name: str) -> None:
    (run.checkpoint_path(9) / "state.json").unlink()
    assert run.checkpoints() == [0]
    (run.path / name).unlink()
    with pytest.raises(RunError, match=f"not a complete run folder: {name} is missing"):
        Run.open(run.path)


def test_edited_configuration(run: Run) -> None:
    file = run.path / "config.yaml"
    text = file.read_text()
    file.write_text(text.replace("steps: 20", "steps: 30"))
    with pytest.raises(ArtifactError, match="was changed after the run was created"):
        Run.open(run.path)
    file.write_text(text + "colour: blue\n")
    with pytest.raises(ArtifactError, match=r"config\.yaml: .*colour"):
        Run.open(run.path)


@pytest.mark.parametrize(("change", "message"), [
    (lambda t: t.pop("embed.W_E"), "it lacks embed.W_E"),
    (lambda t: t.update(extra=np.zeros(2)), "it also holds extra"),
    (lambda t: t.update({"embed.W_E": np.zeros((4, 5), np.float32)}),
     r"embed.W_E is float32 \[4, 5\]; expected float32 \[4, 4\]"),
    (lambda t: t.update({"embed.W_E": np.zeros((4, 4), np.float64)}),
     r"embed.W_E is float64 \[4, 4\]; expected float32 \[4, 4\]"),
])
def test_tensors_that_do_not_match_the_configuration(
    run: Run, change: Callable[[dict[str, np.ndarray]], object], message: str
) -> None:
    file = run.checkpoint_path(9) / "model.safetensors"
    tensors = read_tensors(file)
    change(tensors)
    write_sealed(file, tensors)
    with pytest.raises(ArtifactError, match=f"does not match the configuration: {message}"):
        run.load_model()


def test_optimizer_and_generators_that_do_not_match(run: Run) -> None:
    model = HookedTransformer(CONFIG.model)
    optimizer = make_optimizer(model, CONFIG.training)
    checkpoint = run.load_checkpoint()
    file = checkpoint.path / "optimizer.safetensors"
    tensors = read_tensors(file)
    del tensors["embed.b_E.exp_avg_sq"]
    write_sealed(file, tensors)
    checkpoint = run.load_checkpoint()
    with pytest.raises(ArtifactError, match=r"it lacks embed.b_E.exp_avg_sq"):
        checkpoint.restore_optimizer(optimizer, model)
    with pytest.raises(ArtifactError, match=r"rng.safetensors .*: it lacks others"):
        checkpoint.restore_generators({"dropout": torch.Generator(), "others": torch.Generator()})


CHECKPOINT, PROVENANCE = "checkpoints/step_0000009/state.json", "provenance.json"


@pytest.mark.parametrize(("file", "change", "message"), [
    (CHECKPOINT, {"config_hash": "abc"}, "belongs to a run with configuration hash abc"),
    (CHECKPOINT, {"format_version": 99},
     r"latentcode.checkpoint, version 99 \(latentcode 1.0 or older\)"),
    (CHECKPOINT, {"step": 8}, "says that it is of step 8; expected 9"),
    (CHECKPOINT, {"step": "9"}, r"state\.json: step is '9'"),
    (CHECKPOINT, {"step": -1}, "step is -1"),
    (CHECKPOINT, {"without_moments": None}, "without_moments is None"),
    (CHECKPOINT, {"extra": 1}, "extra is 1"),
    (CHECKPOINT, {"sha256": {"rng.safetensors": "0"}}, r"sha256 is {'rng\.safetensors': '0'}"),
    (CHECKPOINT, {"sha256": {"model.safetensors": "0", "rng.safetensors": "0"}}, "alone, or none"),
    (CHECKPOINT, {"colour": 1}, "unknown .*colour"),
    (PROVENANCE, {"format_version": 99},
     r"latentcode.run, version 99 \(latentcode 1.0 or older\); convert it with"),
    (PROVENANCE, {"created": ...}, r"provenance.json lacks key\(s\) created"),
    (PROVENANCE, {"colour": 1}, r"provenance.json has unknown key\(s\) colour"),
    (PROVENANCE, {"resumed": 1}, "has resumed 1; expected a list"),
    (PROVENANCE, {"imported": 1}, "has imported 1; expected an object"),
])
def test_other_contents_are_named(
    run: Run, file: str, change: dict[str, object], message: str
) -> None:
    """`...` stands for a key that is missing."""
    data = json.loads((run.path / file).read_text()) | change
    (run.path / file).write_text(json.dumps(
        {name: value for name, value in data.items() if value is not ...}))
    with pytest.raises((ArtifactError, RunError), match=message):
        Run.open(run.path).load_checkpoint()


def write_sealed(path: Path, tensors: dict[str, np.ndarray]) -> None:
    """Write other tensors with their right checksum."""
    write_tensors(path, tensors)
    state = path.with_name("state.json")
    data = json.loads(state.read_text())
    data["sha256"][path.name] = checksum(path)
    state.write_text(json.dumps(data))


# The metrics file

def test_a_torn_last_line_is_ignored_and_cut(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    for step in (0, 5, 10):
        append_metrics(file, step, "ood", {"loss": Metric(1.0, 0.5, 4)})
    whole = file.read_bytes()
    file.write_bytes(whole + b'{"step": 12, "sp')
    assert read_metrics(file)["step"].tolist() == [0, 5, 10]
    cut_metrics(file, 5)
    assert file.read_bytes() == b"".join(whole.splitlines(keepends=True)[:2])


@pytest.mark.parametrize("line", [
    "{", "[]", '{"step": 1}', '{"step": "1", "split": "a", "metric": "b", "mean": 0, "se": 0, '
    '"n": 1}', "\0\0\0"])
def test_a_damaged_line_in_the_middle_is_named(run: Run, line: str) -> None:
    file = run.path / "metrics.jsonl"
    lines = file.read_text().splitlines()
    file.write_text("\n".join([lines[0], line, *lines[1:]]) + "\n")
    with pytest.raises(ArtifactError, match=r"metrics.jsonl, line 2, is damaged"):
        run.metrics()
