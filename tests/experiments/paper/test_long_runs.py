"""The long trainings: begun, resumed, paused, killed, gone on with elsewhere."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from here import Here
from small_long_runs import GRID, STAGES

import latentcode as lc
from latentcode.errors import RunError
from latentcode.experiments.paper import long_runs
from latentcode.experiments.paper import queue as queues
from latentcode.experiments.paper.long_runs import main, owner
from latentcode.experiments.paper.queue import (
    Stage,
    goes_on,
    is_complete,
    keep,
    members,
    queue,
    table,
    take_up,
)
from latentcode.experiments.paper.runs import trained_on
from latentcode.experiments.timing import attempts, minutes, seconds_per_step
from latentcode.runs import Run
from latentcode.seeds import make_generator
from latentcode.sweep.grid import Grid
from latentcode.training.state import TrainingState


@pytest.mark.slow
def test_finished_runs_are_left_alone(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def times() -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in trained.rglob("*") if path.is_file()
                and path.name != long_runs.LOCK}

    before = times()
    long_runs.work(trained, STAGES)
    assert times() == before
    assert "0 runs to go" in capsys.readouterr().out


@pytest.mark.slow
def test_what_is_published_is_not_trained_again(
    grids: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    at, out, other = tmp_path / "runs", tmp_path / "published", [Stage("other")]
    path, config = next(iter(queue(at, other).items()))
    run = lc.train(config, tmp_path / "lost", progress=False)
    run.publish(out / "other" / path.name)
    # Under the name of a run with another configuration, which is still to be trained.
    run.publish(out / "first" / "seed=0,kind=hyla")
    long_runs.work(at, other, published=out)
    assert "0 runs to go" in capsys.readouterr().out
    assert not path.exists()
    rows = table(at, STAGES, out).set_index(["grid", "seeds"])
    assert rows["published elsewhere"].tolist() == [0, 1, 0]
    assert rows["complete"].tolist() == [0, 0, 0]
    assert rows["steps"].tolist() == [0, 40, 0]
    assert "published elsewhere" not in table(at, STAGES)


@pytest.mark.slow
def test_what_is_unfinished_is_kept_and_gone_on_with(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(long_runs, "Workers", Here)
    whole = trained / "first" / "seed=1,kind=hyla"
    name = whole.relative_to(trained)
    begun, kept, elsewhere = (tmp_path / name for name in ("begun", "kept", "elsewhere"))
    shutil.copytree(trained, begun)
    for step in (20, 40):
        for file in (begun / name / "checkpoints").glob(f"*{step}"):
            shutil.rmtree(file)
    newest = Run.open(begun / name).checkpoints()[-1]
    assert newest < 40
    assert keep(begun, kept, STAGES) == [kept / name]
    assert keep(begun, kept, STAGES) == [kept / name]
    assert Run.open(kept / name).checkpoints() == [newest]
    row = next(line for line in (kept / "README.md").read_text().splitlines() if "seed=1" in line)
    assert f"| {newest} | 40 |" in row
    published = Path(shutil.copytree(trained, tmp_path / "published"))
    shutil.rmtree(published / name)
    long_runs.work(elsewhere, STAGES, published=published, unfinished=kept)
    assert f"{name}: taken up" in capsys.readouterr().out
    assert [path.name for path in (elsewhere / "first").iterdir() if path.is_dir()] == [name.name]
    for file in ("metrics.jsonl", "checkpoints/step_0000040/model.safetensors"):
        assert (elsewhere / name / file).read_bytes() == (whole / file).read_bytes()
    assert keep(elsewhere, kept, STAGES) == []
    assert "None." in (kept / "README.md").read_text()


@pytest.mark.slow
def test_a_run_is_gone_on_with_on_the_device_on_which_it_was_begun(
    grids: None, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    at, kept, stages = tmp_path / "runs", tmp_path / "kept", [Stage("other")]
    monkeypatch.setattr("torch.cuda.get_device_name", lambda device: "one that is not here")
    (path, config), = queue(at, stages).items()
    name = path.relative_to(at)
    half = members(stages[0], at, "cuda")[path]
    assert (half.training.device, half.training.precision) == ("cuda", "tf32")
    run = Run.create(tmp_path / "gpu" / name, half)
    state = TrainingState.start(config)
    run.save_checkpoint(20, state.model, state.optimizer, state.generators, {})
    assert keep(tmp_path / "gpu", kept, stages) == [kept / name]
    assert "| cuda | 20 | 40 |" in (kept / "README.md").read_text()
    # A CPU leaves it to the GPU, and keeps it beside what it has begun itself.
    long_runs.work(at, stages, unfinished=kept)
    assert f"{name}: left to the device" in capsys.readouterr().out
    assert not path.exists()
    assert keep(at, kept, stages) == [kept / name]
    assert take_up(kept, at, stages) == []
    assert take_up(kept, at, stages, "cuda") == [path]
    assert Run.open(path).checkpoints() == [20]
    long_runs.work(at, stages)  # likewise where it lies in the folder itself
    said = capsys.readouterr().out
    assert f"{name}: left to the device" in said
    assert "0 runs to go" in said
    # What a step takes on the one says nothing of the other.
    (path / "timing.jsonl").write_text("".join(
        f'{{"step": {step}, "event": "{event}", "seconds": {step}}}\n'
        for step, event in ((0, "start"), (20, "log"))))
    assert len(attempts(path)[0]) == 2
    assert table(at, stages)["core-hours left"].isna().all()
    exact = replace(half, training=replace(half.training, precision="float32"))
    assert not goes_on(run, exact)  # such a run could not go on either
    # What was finished elsewhere meanwhile is kept no longer.
    shutil.rmtree(at / "other")
    published = lc.train(config, tmp_path / "done" / name, progress=False)
    assert keep(at, kept, stages, published.path.parents[1]) == []


@pytest.mark.slow
def test_a_run_is_moved_to_another_device_where_that_is_asked_for(
    grids: None, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(long_runs, "Workers", Here)
    monkeypatch.setattr("torch.cuda.get_device_name", lambda device: "one that is not here")
    at, kept, stages = tmp_path / "runs", tmp_path / "kept", [Stage("other")]
    (path, config), = queue(at, stages).items()
    name = path.relative_to(at)
    begun = lc.train(config, tmp_path / "begun" / name, progress=False)
    state = TrainingState.start(config)
    state.restore([begun], 30)
    there = replace(config, training=replace(
        config.training, device="cuda", precision="tf32"))
    run = Run.create(kept / name, there)
    for step in (10, 30):  # the newest alone is moved
        run.save_checkpoint(step, state.model, state.optimizer, state.generators,
                            {"losses": []})
    for step, event in ((0, "start"), (30, "log")):
        run.append_timing({"step": step, "event": event, "seconds": 6.0 * step})
    assert take_up(kept, tmp_path / "waits", stages, move=True) == [tmp_path / "waits" / name]
    # What a step took there says nothing of this device, but it took its time.
    assert seconds_per_step(kept / name) == 6.0
    assert seconds_per_step(tmp_path / "waits" / name) is None
    assert minutes(tmp_path / "waits" / name) == 3.0
    # A move of which nothing has come yet does not take the place of what was kept.
    (kept / "README.md").touch()  # as `keep` leaves it
    assert keep(tmp_path / "waits", kept, stages) == [kept / name]
    assert Run.open(kept / name).config == there
    monkeypatch.setattr(long_runs, "work", partial(long_runs.work, stages=stages))
    main(["work", "--at", str(at), "--unfinished", str(kept), "--move"])
    said = capsys.readouterr().out
    assert f"{name}: taken up" in said
    assert "left to the device" not in said
    moved = Run.open(path)
    assert moved.config == config
    assert moved.checkpoints() == [30, 40]
    where, again = moved.provenance["resumed"]
    assert (where["step"], where["device"], where["from"]) == (
        30, "cpu", {"device": "cuda", "precision": "tf32"})
    assert (again["step"], moved.provenance["device"]) == (30, "cuda")
    assert trained_on(moved) == (["tf32", "float32"], [
        moved.provenance["device_name"], where["device_name"]])
    assert Run.open(kept / name).config == there
    # As if those weights and moments had been reached here, but for what is dropped.
    masks = make_generator(config.training.seed, "train dropout from step 30")
    run = Run.create(tmp_path / "here" / name, config)
    run.save_checkpoint(30, state.model, state.optimizer, {"dropout": masks}, {"losses": []})
    here = lc.train(config, run.path, resume=True, progress=False)
    end, same, other = ((one.checkpoint_path(40) / "model.safetensors").read_bytes()
                        for one in (moved, here, begun))
    assert end == same != other


def test_no_run_begins_where_there_is_no_gpu(
    grids: None, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    for command in ("resume", "work"):
        with pytest.raises(SystemExit):
            main([command, "--at", str(tmp_path / "at"), "--device", "cuda"])
        assert "finds no CUDA device here" in capsys.readouterr().err
    assert not (tmp_path / "at").exists()


@pytest.mark.slow
def test_a_text_is_written_beside_the_runs_that_name_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LATENTCODE_CACHE", str(tmp_path / "cache"))
    config = lc.preset("smoke", "language", "softmax")
    named = replace(config, task=replace(config.task, text="text/smoke"),
                    training=replace(config.training, steps=2, warmup_steps=0, eval_every=2))
    grid = Grid(named, {"training.seed": (0,)})
    for module in (long_runs, queues):
        monkeypatch.setattr(module, "load_grid", lambda name: grid)
    monkeypatch.setattr(long_runs, "give_way", lambda nice: None)
    here = Path.cwd()
    long_runs.work(tmp_path / "runs", [Stage("text")], processes=1)
    assert Path.cwd() == here
    assert (tmp_path / "runs" / "text/smoke" / "about.json").is_file()
    run = Run.open(tmp_path / "runs" / "text" / "seed=0")
    assert run.is_complete
    assert run.config.task.text == "text/smoke"
    assert is_complete(run.path, named)


def test_a_grid_may_change_until_its_first_run_is_begun(grids: None, tmp_path: Path) -> None:
    stage = Stage("other")
    long_runs.claim_stage(tmp_path, stage)
    kept = tmp_path / "other" / "sweep.yaml"
    wanted = kept.read_text()
    kept.write_text(wanted.replace("7", "8"))
    long_runs.claim_stage(tmp_path, stage)
    assert kept.read_text() == wanted
    kept.write_text(wanted.replace("7", "8"))
    (tmp_path / "other" / "seed=8,kind=hyla").mkdir()
    with pytest.raises(RunError, match="holds another sweep"):
        long_runs.claim_stage(tmp_path, stage)
    assert (tmp_path / "other" / "seed=8,kind=hyla").is_dir()


@pytest.mark.slow
def test_a_run_that_cannot_go_on_does_not_keep_the_others_from_it(
    grids: None, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(long_runs, "Workers", Here)
    at, foreign = tmp_path / "runs", tmp_path / "runs" / "other" / "seed=7,kind=hyla"
    foreign.mkdir(parents=True)
    (foreign / "config.yaml").write_text("not: ours")
    (at / "other" / "sweep.yaml").write_text(long_runs.load_grid("other").to_yaml())
    long_runs.work(at, [Stage("other"), Stage("first", 0, 1)])
    assert "seed=7,kind=hyla: failed:" in capsys.readouterr().out
    assert table(at, STAGES[:1])["complete"].tolist() == [2]


SCRIPT = f"""
from pathlib import Path
from latentcode.experiments.paper import long_runs, queue
from latentcode.sweep.grid import parse_yaml, read_grid

GRID = {GRID.replace("steps: 40", "steps: 4000000")!r}
if __name__ == "__main__":  # workers import this file, too
    long_runs.load_grid = queue.load_grid = lambda name: read_grid(parse_yaml(GRID, name), name)
    long_runs.give_way = lambda nice: None  # or the other tests would leave it no time
    long_runs.work(Path("runs"), [queue.Stage("first")], processes=1)
"""


@pytest.fixture
def background(tmp_path: Path) -> Iterator[Path]:
    """A folder in which a process trains something that does not end."""
    (tmp_path / "train.py").write_text(SCRIPT)
    at = tmp_path / "runs"
    with subprocess.Popen([sys.executable, "train.py"], cwd=tmp_path) as process:
        deadline = time.monotonic() + 300
        while not list(at.glob("*/*/checkpoints/step_0000015/state.json")):
            assert time.monotonic() < deadline
            assert process.poll() is None
            time.sleep(0.1)
        yield at
        process.kill()


@pytest.mark.slow
def test_pause(background: Path, capsys: pytest.CaptureFixture[str]) -> None:
    process = owner(background)
    assert process is not None
    with pytest.raises(SystemExit):
        main(["resume", "--at", str(background)])
    assert f"process {process} trains in" in capsys.readouterr().err
    main(["status", "--at", str(background)])
    assert f"process {process} is training" in capsys.readouterr().out
    main(["pause", "--at", str(background)])
    assert owner(background) is None
    run = Run.open(background / "first" / "seed=0,kind=hyla")
    # Where it was stopped, not at the last multiple.
    assert run.checkpoints()[-1] == attempts(run.path)[-1][-1]["step"]
    with pytest.raises(SystemExit):
        main(["pause", "--at", str(background)])
    assert "nothing trains in" in capsys.readouterr().err


def test_resume_begins_a_process_that_outlives_this_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    begun: list[tuple[list[str], dict[str, object]]] = []
    fails = False

    class Process:
        pid = 17

        def __init__(self, command: list[str], **settings: object) -> None:
            begun.append((command, settings))

        def poll(self) -> int | None:
            return 1 if fails else None

    monkeypatch.setattr(subprocess, "Popen", Process)
    monkeypatch.setattr(long_runs, "START_SECONDS", 0.5)
    main(["resume", "--at", str(tmp_path / "runs")])
    (command, settings), = begun
    assert "work" in command
    assert settings["start_new_session"] is True
    assert "process 17 trains in" in capsys.readouterr().out
    main(["resume", "--at", str(tmp_path / "runs"), "--published", str(tmp_path)])
    assert begun[-1][0] == [*command, "--published", str(tmp_path)]  # and no other option
    main(["resume", "--at", str(tmp_path / "runs"), "--nice", "0", "--processes", "1"])
    assert begun[-1][0] == [*command, "--processes", "1", "--nice", "0"]
    main(["resume", "--at", str(tmp_path / "runs"), "--unfinished", str(tmp_path), "--move"])
    assert begun[-1][0] == [*command, "--unfinished", str(tmp_path), "--move"]
    with pytest.raises(SystemExit):
        main(["resume", "--at", str(tmp_path / "runs"), "--move"])
    assert "move is set and unfinished is not" in capsys.readouterr().err
    fails = True
    with pytest.raises(SystemExit):
        main(["resume", "--at", str(tmp_path / "runs")])
    assert "the training ended at once" in capsys.readouterr().err


@pytest.mark.slow
def test_it_gives_way_to_everything_else() -> None:
    code = ("import os; from pathlib import Path\n"
            "from latentcode.experiments.paper import long_runs\n"
            "long_runs.give_way(); print(os.nice(0)); group = Path('/proc/self/autogroup')\n"
            "print(group.read_text() if group.exists() else 'nice 19', flush=True)\n"
            "os._exit(0)")  # with so little time left to it, an orderly end would take long
    shown = subprocess.run([sys.executable, "-c", code], start_new_session=True, check=True,
                           capture_output=True, text=True).stdout.split()
    assert shown[0] == shown[-1] == "19"


@pytest.mark.parametrize(("command", "folders"), [
    *((name, ["--at", "nowhere"]) for name in ("pause", "status", "publish")),
    *((name, ["--at", ".", "--published", "nowhere"]) for name in ("resume", "status", "work")),
    ("resume", ["--at", "at", "--unfinished", "nowhere"])])
def test_a_folder_that_is_not_there(
    command: str, folders: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(long_runs.LOCK).touch()
    with pytest.raises(SystemExit) as stopped:
        main([command, *folders])
    assert stopped.value.code == 2
    assert "nowhere" in capsys.readouterr().err
    assert not Path("nowhere").exists()


@contextmanager
def holding(lock: Path, seconds: float) -> Iterator[subprocess.Popen[bytes]]:
    """A process that holds a lock for a while."""
    code = ("import sys, time\nfrom pathlib import Path\n"
            "from latentcode.files.locks import exclusive\n"
            f"with exclusive(Path({str(lock)!r})):\n"
            f"    print('held', flush=True)\n    time.sleep({seconds})")
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        yield process


def test_the_owner_of_a_folder_is_the_process_that_holds_it(tmp_path: Path) -> None:
    assert owner(tmp_path) is None
    with holding(tmp_path / long_runs.LOCK, 60) as process:
        assert owner(tmp_path) == process.pid
        assert (tmp_path / long_runs.LOCK).read_text().startswith(f"process {process.pid} on")
        process.kill()
    assert owner(tmp_path) is None


@pytest.mark.slow
def test_a_worker_that_outlived_its_owner_is_waited_for(
    grids: None, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(long_runs, "Workers", Here)
    at = tmp_path / "runs"
    path, config = next(iter(members(Stage("other"), at).items()))
    run = Run.create(path, config)
    (at / "other" / "sweep.yaml").write_text(long_runs.load_grid("other").to_yaml())
    slept = []
    with holding(run.path / ".lock", 300) as process:
        def sleep(seconds: float) -> None:
            slept.append(seconds)
            process.kill()
            process.wait()

        monkeypatch.setattr(time, "sleep", sleep)
        long_runs.work(at, STAGES[1:2])
    assert slept == [long_runs.POLL_SECONDS]
    assert "is being written by" in capsys.readouterr().out
    assert Run.open(path).is_complete
