"""Several processes train the model that one would train, and lose nothing when one is killed.

As a script, one of the processes: test_processes.py CASES.json, where each case is
{"config": YAML file, "out": run folder, "dtype": name of a type, "resume": bool}.
"""

from __future__ import annotations

import json
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
from places import environment
from safetensors.numpy import load_file
from tiny_training import TINY, float64

from latentcode.config import RunConfig, load_config, to_yaml
from latentcode.errors import ConfigError
from latentcode.models.config import with_kind
from latentcode.runs import Run
from latentcode.sweep import Grid, sweep
from latentcode.training import train, train_ensemble
from latentcode.training.processes import Group
from latentcode.training.state import TrainingState

CONFIG = replace(TINY, training=replace(TINY.training, batch_size=12, checkpoint_every=4))
HOW = {"plain": {}, "micro-batches": {"accumulate": 2}, "recomputed": {
    "checkpoint_activations": True, "accumulate": 3}}
# Adam divides by the root of small gradients, so that what float32 rounds grows with the steps.
BOUNDS = {"float64": 1e-10, "float32": 2e-4}
SECONDS = 240
"""After which processes are killed that still wait for each other."""


def trained_together(
    n: int, configs: Mapping[Path, RunConfig], *, float32: Collection[Path] = (),
    resume: bool = False,
) -> None:
    """Train each configuration in its folder by n processes; all of them have to end well.

    float32  folders of what is trained with such numbers, not with float64
    """
    place = next(iter(configs)).parent
    cases = []
    for out, config in configs.items():
        file = place / f"{out.name}.yaml"
        file.write_text(to_yaml(config), "utf-8")
        cases.append({"config": str(file), "out": str(out), "resume": resume,
                      "dtype": "float32" if out in float32 else "float64"})
    (place / "cases.json").write_text(json.dumps(cases), "utf-8")
    for error in run_all(n, [__file__, str(place / "cases.json")]):
        assert not error, error


ABORTED = "terminate called without an active exception\n"
"""What the C++ runtime says where gloo's threads outlive a process that ends with an error, which
now and then happens on a busy machine."""


def run_all(n: int, arguments: Sequence[str], **variables: str) -> list[str]:
    """Run a script in n processes; return what each that failed wrote to its standard error."""
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    started = [subprocess.Popen(
        [sys.executable, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        env=environment(**{
            "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(n),
            "LOCAL_WORLD_SIZE": str(n), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
            "OMP_NUM_THREADS": "1", **variables})) for rank in range(n)]
    try:
        said = [process.communicate(timeout=SECONDS)[1] for process in started]
    finally:
        for process in started:
            process.kill()
    return [error.removesuffix(ABORTED) or "failed" if process.returncode else ""
            for process, error in zip(started, said, strict=True)]


def weights(out: Path) -> np.ndarray:
    """Return the weights of a run's last checkpoint, one after the other.

    Without the key bias, whose gradient under softmax attention is rounding around 0 (a constant
    shift of a row's scores), which Adam makes large.
    """
    run = Run.open(out)
    assert run.is_complete
    found = load_file(run.checkpoint_path(run.config.training.steps) / "model.safetensors")
    return np.concatenate([found[name].flatten() for name in sorted(found)
                           if not name.endswith("b_K")])


def config(kind: str = "hyla", **training: object) -> RunConfig:
    return replace(CONFIG, model=with_kind(CONFIG.model, kind),
                   training=replace(CONFIG.training, **training))


def start_torchrun(out: Path, *arguments: str, n: int = 2) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(n),
         *arguments, "--out", str(out)],
        env=environment(OMP_NUM_THREADS="1"), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True)


def end(process: subprocess.Popen[str], seconds: float = 240.0) -> str:
    """Return what processes said until they ended; kill them where they do not."""
    try:
        return process.communicate(timeout=seconds)[0]
    except subprocess.TimeoutExpired:
        process.terminate()  # and torchrun ends what it started, if need be by force
        return process.communicate(timeout=60.0)[0]
    finally:
        if process.poll() is None:
            process.kill()


def trained_alone(out: Path, config: RunConfig, *, resume: bool = False) -> None:
    """Train with float64 numbers in this process."""
    with float64():
        train(config, out, resume=resume, progress=False)


@pytest.mark.slow
def test_two_processes_equal_one(tmp_path: Path) -> None:
    kinds = ("softmax", "linear", "hyla")
    shared: dict[str, dict[Path, RunConfig]] = {dtype: {
        tmp_path / f"{dtype} {kind} {how}": config(kind, **fields)
        for kind in kinds for how, fields in HOW.items()} for dtype in BOUNDS}
    for kind in kinds:
        trained_alone(tmp_path / f"float64 {kind} alone", config(kind))
        train(config(kind), tmp_path / f"float32 {kind} alone", progress=False)
    trained_together(2, shared["float64"] | shared["float32"], float32=shared["float32"])
    for dtype, bound in BOUNDS.items():
        for out in shared[dtype]:
            alone = out.with_name(" ".join([*out.name.split()[:2], "alone"]))
            assert np.abs(weights(out) - weights(alone)).max() <= bound, out.name
            mine, other = (Run.open(path).metrics() for path in (out, alone))
            assert mine.drop(columns=["mean", "se"]).equals(other.drop(columns=["mean", "se"]))
            np.testing.assert_allclose(mine["mean"], other["mean"], rtol=bound * 100)
    # Another seed of the dropout masks or of the batches is far beyond the bound.
    hyla, linear = (weights(tmp_path / f"float32 {kind} alone") for kind in ("hyla", "linear"))
    assert np.abs(hyla - linear).max() > 0.01


@pytest.mark.slow
def test_resuming_with_other_processes(tmp_path: Path) -> None:
    whole, pieces = tmp_path / "whole", tmp_path / "pieces"
    trained_alone(whole, config(keep_checkpoints=None))

    def go_on(step: int, n: int, how: str) -> None:
        """Train on, and lose what comes after a step."""
        settings = config(keep_checkpoints=None, **HOW[how])
        if n == 1:
            trained_alone(pieces, settings, resume=True)
        else:
            trained_together(n, {pieces: settings}, resume=pieces.exists())
        for newer in [found for found in Run.open(pieces).checkpoints() if found > step]:
            shutil.rmtree(Run.open(pieces).checkpoint_path(newer))

    go_on(4, 2, "plain")
    go_on(8, 1, "micro-batches")
    go_on(12, 2, "plain")
    assert np.abs(weights(pieces) - weights(whole)).max() <= BOUNDS["float64"]
    assert [note["step"] for note in Run.open(pieces).provenance["resumed"]] == [4, 8]


@pytest.mark.slow
def test_one_killed_process_loses_nothing(tmp_path: Path) -> None:
    settings = config(steps=60, checkpoint_every=10, eval_every=30)
    (tmp_path / "config.yaml").write_text(to_yaml(settings), "utf-8")
    trained_alone(tmp_path / "whole", settings)
    once = tmp_path / "once.py"
    once.write_text("""
import os, signal, sys
import torch
from latentcode.cli import main
from latentcode.training import state

update = state.TrainingState.update

def killed(self):
    if self.step == 33 and os.environ["RANK"] == "1" and (
            os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"):
        os.kill(os.getpid(), signal.SIGKILL)
    update(self)

state.TrainingState.update = killed
torch.set_default_dtype(torch.float64)
main(sys.argv[1:])
""", "utf-8")
    said = end(start_torchrun(
        tmp_path / "killed", "--max-restarts", "1", str(once), "train", "logic", "--config",
        str(tmp_path / "config.yaml")))
    killed, whole = Run.open(tmp_path / "killed"), Run.open(tmp_path / "whole")
    assert killed.is_complete, said
    assert [note["step"] for note in killed.provenance["resumed"]] == [30]
    mine, other = killed.metrics(), whole.metrics()
    assert mine.drop(columns=["mean", "se"]).equals(other.drop(columns=["mean", "se"]))
    np.testing.assert_allclose(mine["mean"], other["mean"], rtol=1e-6)
    assert np.abs(weights(killed.path) - weights(whole.path)).max() <= BOUNDS["float64"]


@pytest.mark.slow
def test_a_signal_to_torchrun_leaves_a_checkpoint(tmp_path: Path) -> None:
    settings = config(steps=1_000_000, checkpoint_every=1_000_000, eval_every=1_000_000)
    (tmp_path / "config.yaml").write_text(to_yaml(settings), "utf-8")
    out = tmp_path / "run"
    process = start_torchrun(out, "-m", "latentcode", "train", "logic", "--config",
                             str(tmp_path / "config.yaml"))
    try:
        deadline = time.monotonic() + 120.0
        while time.monotonic() < deadline and not (
                (out / "metrics.jsonl").exists() and "training_loss" in (
                    out / "metrics.jsonl").read_text("utf-8")):
            time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
    finally:
        said = end(process)
    kept = Run.open(out).checkpoints()
    assert kept[0] == 0, said
    assert kept[-1] > 0, said
    assert said.count("a checkpoint is in") == 1
    timing = [json.loads(line) for line in (out / "timing.jsonl").read_text("utf-8").splitlines()]
    assert all(record["tokens_per_second"] > 0 for record in timing if record["event"] == "log")


@pytest.mark.slow
def test_mistakes_are_named_once(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(to_yaml(config(batch_size=13)), "utf-8")
    words = ["-m", "latentcode", "train", "logic", "--config", str(tmp_path / "config.yaml"),
             "--out", str(tmp_path / "run")]
    first, second = run_all(2, words)
    assert first.splitlines() == [
        "error: training.batch_size is 13; expected a multiple of 2: 2 process(es) with "
        "training.accumulate = 1 micro-batches each"]
    assert second == "failed"
    assert not (tmp_path / "run").exists()
    # What only one of them finds is said, too, and by which.
    other = tmp_path / "other.py"
    other.write_text("""
import os, sys
from latentcode.cli import main
rank = os.environ["RANK"]
main([*sys.argv[1:], "--training.batch-size", "12", "--training.seed", rank])
""", "utf-8")
    first, second = run_all(2, [str(other), *words[2:]])
    assert "the configuration is" in first
    assert len(first.splitlines()) == 1
    assert second == "failed"


def test_the_environment_of_a_launcher(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    for name in ("RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_PORT"):
        monkeypatch.setenv(name, "1")
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    with pytest.raises(ConfigError, match=r"WORLD_SIZE=2 and no MASTER_ADDR; expected torchrun"):
        train(config(), tmp_path / "run")
    with pytest.raises(ConfigError, match=r"is called by 2 processes \(WORLD_SIZE\)"):
        train_ensemble({tmp_path / "run": config()})
    with pytest.raises(ConfigError, match=r"is called by 2 processes \(WORLD_SIZE\)"):
        sweep(Grid(config(), {"training.seed": (0,)}), tmp_path / "sweep")
    monkeypatch.setenv("WORLD_SIZE", "many")
    with pytest.raises(ConfigError, match="WORLD_SIZE='many'; expected a number of processes"):
        train(config(), tmp_path / "run")
    assert not list(tmp_path.iterdir())


def test_an_error_without_a_message_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Group, "texts", lambda group, text: [text, ""])
    with pytest.raises(OSError, match=r"^$"), Group(0, 2).together():
        raise OSError


@pytest.mark.parametrize("how", [name for name in HOW if name != "plain"])
def test_micro_batches_and_recomputation_change_nothing(how: str) -> None:
    weights = []
    for fields in (HOW["plain"], HOW[how]):
        with float64():
            state = TrainingState.start(config(**fields))
            for _ in range(3):
                state.update()
        assert next(state.model.parameters()).dtype == torch.float64
        weights.append(torch.cat([p.flatten() for p in state.model.parameters()]))
    assert float((weights[0] - weights[1]).detach().abs().max()) <= 1e-12


COMPILED = """
import sys
from pathlib import Path
import torch
from latentcode.config import load_config
from latentcode.errors import ConfigError
from latentcode.training import state
from latentcode.training.processes import ALONE

state.COMPILER = "aot_eager"
states = []
for file in sys.argv[1:]:
    one = state.TrainingState.start(load_config(file))
    one.join(ALONE)
    for _ in range(3):
        one.update()
    states.append(one)
for mine, other in zip(*(one.model.parameters() for one in states), strict=True):
    torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-5)
with states[0].model.hooks(fwd_hooks=[("blocks.0.hook_resid_pre", lambda x, hook: x)]):
    states[1].update()
    try:
        states[0].update()
    except ConfigError as error:
        assert "a compiled step does not call it" in str(error)
    else:
        raise AssertionError("a hook that is never called is silently accepted")
"""


@pytest.mark.slow
def test_a_compiled_step(tmp_path: Path) -> None:
    # Apart from the tests' checks of types, which torch cannot compile.
    files = [tmp_path / "compiled.yaml", tmp_path / "plain.yaml"]
    for file, value in zip(files, (True, False), strict=True):
        file.write_text(to_yaml(config(compile=value)), "utf-8")
    (tmp_path / "script.py").write_text(COMPILED, "utf-8")
    done = subprocess.run(
        [sys.executable, str(tmp_path / "script.py"), *map(str, files)], env=environment(),
        capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr


def main(cases: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    for case in json.loads(Path(cases).read_text("utf-8")):
        torch.set_default_dtype(getattr(torch, case["dtype"]))
        train(load_config(case["config"]), case["out"], resume=case["resume"], progress=False)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
