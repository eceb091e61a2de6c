"""Do the benchmarks measure what they say? Turns, ratios and records, never how fast it is."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from latentcode.config import LogicConfig
from latentcode.config.presets import preset
from latentcode.errors import ConfigError
from latentcode.experiments.benchmarks import (
    ensembles,
    explorer,
    extraction,
    probes,
    savings,
    training_step,
)
from latentcode.experiments.benchmarks import official_worker as worker
from latentcode.experiments.benchmarks.browser import browser_path
from latentcode.experiments.benchmarks.harness import (
    Local,
    Sitting,
    Spread,
    peak_memory,
    reset_peak_memory,
    significant,
    sit,
)
from latentcode.experiments.benchmarks.official_process import (
    OfficialError,
    OfficialSteps,
    official_process,
    official_setting,
)
from latentcode.experiments.benchmarks.ours import learner
from latentcode.models.kernels import fused
from latentcode.seeds import make_generator
from latentcode.tasks import make_task
from latentcode.training.batches import CHUNK

FRAME = {"question", "command", "started", "finished", "cores", "load_average", "settings",
         "environment", "cases"}


@dataclass
class Scripted:
    """A contestant whose n-th unit takes as long as it was told to."""

    name: str
    diary: list[tuple[str, int]]
    unit_seconds: list[float]
    multiple: int = 1
    turns: int = field(default=0)

    def seconds(self, n: int) -> float:
        self.diary.append((self.name, n))
        self.turns += 1
        return n * self.unit_seconds[self.turns % len(self.unit_seconds)]


def test_contestants_take_turns() -> None:
    diary: list[tuple[str, int]] = []
    contestants = [Scripted("a", diary, [1.0]), Scripted("b", diary, [0.25]),
                   Scripted("c", diary, [0.25], multiple=7)]
    done: list[tuple[int, int]] = []
    sitting = sit(contestants, rounds=3, turn_seconds=2.0, warmup=4,
                  progress=lambda *turn: done.append(turn))
    assert sitting.units == {"a": 2, "b": 8, "c": 14}
    warm_up, calibration, turns = diary[:3], diary[3:6], diary[6:]
    assert warm_up == [("a", 4), ("b", 4), ("c", 4)]
    assert calibration == [("a", 1), ("b", 1), ("c", 1)]
    assert turns == 3 * [("a", 1), ("a", 2), ("b", 1), ("b", 8), ("c", 1), ("c", 14)]
    assert done == [(i, 9) for i in range(1, 10)]
    assert {name: len(s) for name, s in sitting.seconds.items()} == {"a": 3, "b": 3, "c": 3}


def test_a_contestant_alone_works_only_where_it_counts() -> None:
    diary: list[tuple[str, int]] = []
    sit([Scripted("a", diary, [1.0])], rounds=2, units=5, warmup=0)
    assert diary == [("a", 5), ("a", 5)]


def test_the_ratio_is_taken_within_rounds() -> None:
    """A machine that is twice as slow in some rounds moves both sides, and no ratio."""
    sitting = Sitting({"old": 1, "new": 1}, {"old": [4.0, 8.0, 40.0], "new": [2.0, 4.0, 10.0]})
    assert sitting.ratio("old", "new") == Spread(2.0, 2.0, 2.0, 3.0, 4.0, 3)
    record = sitting.record("old")
    assert record["speedup"] == {"new": {"median": 2.0, "least": 2.0, "lower": 2.0, "upper": 3.0,
                                         "most": 4.0, "n": 3}}
    assert record["milliseconds"]["new"]["median"] == 4_000.0
    assert record["raw_seconds_per_unit"]["new"] == [2.0, 4.0, 10.0]


@given(st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=30), st.floats(1e-3, 1e3))
def test_a_spread_is_ordered_and_scales(values: list[float], factor: float) -> None:
    spread = Spread.of(values)
    ordered = (spread.least, spread.lower, spread.median, spread.upper, spread.most)
    assert list(ordered) == sorted(ordered)
    assert spread.median == pytest.approx(np.median(values))
    assert spread.scaled(factor).upper == pytest.approx(factor * spread.upper)


def test_the_clock_is_read_around_all_units() -> None:
    now = [0.0]

    def work() -> None:
        now[0] += 3.0

    assert Local("a", work, clock=lambda: now[0]).seconds(4) == 12.0


@pytest.mark.parametrize(("value", "text"), [
    (0.0, "0"), (1234.5, "1,234"), (0.012345, "0.0123"), (12.345, "12.3"), (-0.5, "-0.500"),
    (float("inf"), "inf")])
def test_significant_digits(value: float, text: str) -> None:
    assert significant(value) == text


@pytest.mark.parametrize(("settings", "message"), [
    ({"rounds": 1}, "rounds is 1; expected at least 2"),
    ({"rounds": 2, "turn_seconds": -1.0}, "turn_seconds is -1.0"),
])
def test_settings_without_a_spread_are_an_error(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        sit([Scripted("a", [], [1.0])], **settings)


def test_two_contestants_of_one_name_are_an_error() -> None:
    with pytest.raises(ConfigError, match="a name of its own"):
        sit([Scripted("a", [], [1.0]), Scripted("a", [], [1.0])], rounds=2)


def test_peak_memory_sees_an_array_that_is_gone() -> None:
    cpu = torch.device("cpu")
    if not reset_peak_memory(cpu):
        pytest.skip("the peak cannot be reset here")
    before = peak_memory(cpu)
    np.ones(8 * 2**20).sum()
    assert peak_memory(cpu) - before > 48


def test_updates_alone_draw_nothing() -> None:
    config = preset("smoke", "logic", "hyla")
    drawing, drawn = learner([config]), learner([config], sampling=False)
    drawing.update()
    drawn.update()
    batches = [x.member(0).batches for x in (drawing, drawn)]
    for step in (0, CHUNK, 3 * CHUNK):
        assert torch.equal(batches[0][step].inputs, batches[1][step].inputs) == (step == 0)
        assert torch.equal(batches[1][step].inputs, batches[1][0].inputs)
    assert drawing.recent_losses() == drawn.recent_losses()


def load(folder: Path, question: str) -> dict[str, Any]:
    """Return the JSON of a result, after a look at what lies beside it."""
    assert (folder / f"{question}.png").read_bytes()[:4] == b"\x89PNG"
    assert "|---|" in (folder / f"{question}.md").read_text(encoding="utf-8")
    result: dict[str, Any] = json.loads((folder / f"{question}.json").read_text(encoding="utf-8"))
    assert set(result) == FRAME
    assert result["question"] == question
    assert {"device_name", "torch", "numpy", "latentcode", "git_commit"} <= set(
        result["environment"])
    assert set(result["load_average"]) == {"before", "after"}
    return result


@pytest.mark.slow
def test_training_step_at_smoke_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    bfloat16: Callable[[bool], None],
) -> None:
    bfloat16(True)
    monkeypatch.setattr(sys, "argv", ["training_step", "--out", str(tmp_path)])
    training_step.TrainingStep(task=("logic",), kinds=("hyla",), smoke=True, out=tmp_path,
                               precision=("float32", "bf16")).run()
    result = load(tmp_path, "training_step")
    assert str(tmp_path) not in result["command"]
    (case,) = result["cases"]
    assert case["name"] == "logic, hyla"
    for what in ("step", "update"):
        names = list(case[what]["milliseconds"])
        ours = ["ours, float32", "ours, bf16"]
        if what == "update":
            ours.append(training_step.FLOOR)
        assert names[-len(ours):] == ours
        assert case[what]["baseline"] == names[0]
        assert set(case[what]["speedup"]) == set(names[1:])
        raw = case[what]["raw_seconds_per_unit"]
        assert all(len(raw[name]) == result["settings"]["rounds"] == 2 for name in names)
        ratios = [a / b for a, b in zip(raw[names[0]], raw["ours, bf16"], strict=True)]
        assert case[what]["speedup"]["ours, bf16"]["median"] == pytest.approx(np.median(ratios))
    assert all(n % CHUNK == 0 for n in case["step"]["units_per_turn"].values())
    assert {*case["peak_memory_mib"], training_step.FLOOR} == set(names)
    # The last block has queries and a feed-forward for one token of eight alone, and every product
    # of the forward pass comes back twice, but for the input's gradient.
    model, task = preset("smoke", "logic", "hyla").model, preset("smoke", "logic", "hyla").task
    d, inner, n = model.d_model, model.n_heads * model.d_head, task.n_tokens
    block = 2 * d * inner * n
    wanted = 32 * (2 * task.d_input * d * n * 2 + 3 * (
        (4 * block + 4 * d * model.d_mlp * n) + (2 * block + 2 * block / n + 4 * d * model.d_mlp)
        + 2 * d))
    assert case["matrix_product_operations"] == wanted
    assert "ours, bf16" in capsys.readouterr().out


@pytest.mark.slow
def test_savings_at_smoke_size(tmp_path: Path) -> None:
    savings.Savings(kinds=("hyla",), smoke=True, out=tmp_path).run()
    sraven, logic = load(tmp_path, "savings")["cases"]
    names = [savings.EVERYTHING, *savings.SAVINGS]
    assert list(sraven["step"]["milliseconds"]) == names
    assert list(logic["step"]["milliseconds"]) == names[:-1]


def test_without_a_saving_it_is_not_made() -> None:
    """Each of them, seen by what it leaves behind."""
    def made(saved: list[str]) -> tuple[bool, bool, bool]:
        with savings.without([name for name in savings.SAVINGS if name not in saved], "sraven"):
            task = make_task(preset("smoke", "sraven").task)
            batch = task.sample("train", 4, make_generator(0, "batch"))
            from latentcode.models import feedforward
            return task.n_read is not None, feedforward.gelu is fused.gelu, batch.one_hot

    names = list(savings.SAVINGS)
    assert made([]) == (False, False, False)
    for index, name in enumerate(names):
        assert made([name]) == tuple(place == index for place in range(3))
    assert made(names) == (True, True, True)


@pytest.mark.slow
def test_ensembles_at_smoke_size(tmp_path: Path) -> None:
    ensembles.Ensembles(task="logic", device="cpu", smoke=True, tokens=(4,), heads=(2,),
                        layers=(1,), out=tmp_path).run()
    cases = load(tmp_path, "ensembles")["cases"]
    assert [(c["axis"], c["value"], c["members"]) for c in cases] == [
        ("members", 1, 1), ("members", 2, 2), ("tokens", 4, 2), ("heads", 2, 2), ("layers", 1, 2)]
    spread = ensembles.per_model(cases[1])
    assert spread.median == pytest.approx(
        1e3 * np.median(cases[1]["steps"]["raw_seconds_per_unit"]["ours"]) / 2)


def test_what_is_varied_is_all_that_differs() -> None:
    config = preset("paper", "sraven", "hyla")
    assert ensembles.vary(config, "members", 8) == config
    longer = ensembles.vary(config, "tokens", 54)
    assert (longer.task.n_tokens, longer.model.n_buckets) == (54, 54)
    wide = ensembles.vary(config, "heads", 4).model
    assert (wide.n_heads, wide.d_head, wide.d_head_v) == (4, 16, 16)
    assert ensembles.vary(config, "layers", 2).model.n_layers == 2
    logic = ensembles.vary(preset("paper", "logic", "hyla"), "tokens", 64)
    assert isinstance(logic.task, LogicConfig)
    assert (logic.task.n_examples, logic.model.max_distance) == (64, 64)
    with pytest.raises(ConfigError, match="tokens is 40; expected a multiple of 9"):
        ensembles.vary(config, "tokens", 40)
    with pytest.raises(ConfigError, match="heads is 5; expected a divisor of 64"):
        ensembles.vary(config, "heads", 5)


@pytest.mark.slow
def test_extraction_at_smoke_size(tmp_path: Path) -> None:
    extraction.ExtractionSpeed(task=("logic",), kinds=("hyla",), smoke=True, out=tmp_path).run()
    (case,) = load(tmp_path, "extraction")["cases"]
    assert case["batches"]["baseline"] == "forward pass"
    assert len(case["batches"]["speedup"]) == 4
    assert case["streamed"] == []


@pytest.mark.slow
def test_streams_are_measured_one_by_one(tmp_path: Path) -> None:
    extraction.ExtractionSpeed(task=("sraven",), kinds=("hyla",), smoke=True, n=6_000,
                               out=tmp_path).run()
    (case,) = load(tmp_path, "extraction")["cases"]
    few, many = case["streamed"]
    assert (few["n"], many["n"]) == (600, 6_000)
    assert many["mib_on_disk"] > few["mib_on_disk"] > 0
    assert all(s["peak_memory_mib"] >= s["peak_memory_before_mib"] > 0 for s in (few, many))
    assert {path.suffix for path in tmp_path.iterdir()} == {".json", ".md", ".png"}


def test_probes_at_smoke_size(tmp_path: Path) -> None:
    probes.main(smoke=True, out=tmp_path)
    result = load(tmp_path, "probes")
    (case,) = result["cases"]
    settings = result["settings"]
    assert case["n_fits"] == len(settings["layers"]) * len(settings["pairs"])
    assert len(settings["pairs"]) > 1
    assert case["all_converged"]


@pytest.mark.slow
def test_the_explorer_at_smoke_size(tmp_path: Path) -> None:
    if find_spec("playwright") is None or browser_path() is None:
        pytest.skip("the explorer is timed in a real browser, and there is none")
    explorer.main(smoke=True, out=tmp_path)
    start, warm, *lassos = load(tmp_path, "explorer")["cases"]
    assert start["seconds"]["median"] > warm["seconds"]["median"] > 0
    assert [case["name"] for case in lassos] == [
        "lasso to panels, 2,000 points", "lasso to panels, 5,000 points"]
    assert all(len(case["raw_seconds"]) == 2 for case in lassos)


@pytest.mark.parametrize("task", ["sraven", "logic"])
@pytest.mark.parametrize("kind", ["hyla", "softmax", "linear"])
def test_the_official_code_is_given_our_setting(task: str, kind: str) -> None:
    setting = official_setting(preset("paper", task, kind))
    assert setting["model"]["attention_dropout_rate"] == 0.1
    assert setting["model"]["qk_dim"] == {"sraven": 64, "logic": 16}[task]
    assert setting["training"]["batch_size"] == 128
    assert setting["data"].get("seq_len") == {"sraven": None, "logic": 32}[task]
    assert json.loads(json.dumps(setting)) == setting


def test_a_kind_that_the_official_code_lacks_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"hyla_deep.*expected one of hyla, softmax, linear"):
        official_setting(preset("paper", "logic", "hyla_deep"))


def test_a_folder_that_is_no_checkout_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"has no hyla/experiment\.py; expected a checkout"):
        training_step.TrainingStep(task=("logic",), kinds=("hyla",), smoke=True,
                                   official=tmp_path, out=tmp_path / "result").run()
    assert not (tmp_path / "result").exists()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Files where those of a checkout lie, with nothing in them."""
    for name in ("hyla/experiment.py", "configs/raven.py", "configs/logic.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    return tmp_path


def test_a_python_that_is_not_there_is_an_error(checkout: Path) -> None:
    with (pytest.raises(ConfigError, match="official_python is 'no-python-here'"),
          official_process(checkout, "no-python-here", 1)):
        pass


def test_errors_of_the_worker_come_across(checkout: Path) -> None:
    """A jax of four lines: enough for requests and answers to travel, and for nothing else."""
    (checkout / "jax.py").write_text(
        "print('libraries may print')\nclass D:\n    def memory_stats(self):\n"
        "        return {'peak_bytes_in_use': 3 * 2**20}\ndef devices():\n    return [D()]\n",
        encoding="utf-8")
    with official_process(checkout, sys.executable, 1) as process:
        assert process.ask(do="memory") == {"peak_mib": 3.0}
        with pytest.raises(OfficialError, match="nothing is built yet"):
            OfficialSteps(process, "step").seconds(1)
        with pytest.raises(OfficialError, match=r"AttributeError.*get_config"):
            process.build(preset("smoke", "logic", "hyla"))
        assert process.ask(do="memory") == {"peak_mib": 3.0}
        process.process.kill()
        process.process.wait()
        with pytest.raises(OfficialError, match="ended with code -9"):
            process.ask(do="memory")


def test_a_worker_without_jax_says_so(checkout: Path) -> None:
    (checkout / "jax.py").write_text("raise ImportError('no jax here')\n", encoding="utf-8")
    with (official_process(checkout, sys.executable, 1) as process,
          pytest.raises(OfficialError, match="ImportError: no jax here")):
        process.ask(do="memory")


def test_the_worker_knows_nothing_of_us() -> None:
    text = Path(worker.__file__).read_text(encoding="utf-8")
    assert "import latentcode" not in text
    assert "from latentcode" not in text
