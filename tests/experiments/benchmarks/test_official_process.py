"""The official code gets our setting, and its process says what is wrong."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from latentcode.experiments.benchmarks import official_worker as worker
from latentcode.experiments.benchmarks.training_step import (
    OfficialError,
    official_process,
    official_setting,
)
from latentcode.presets import preset


@pytest.mark.parametrize("task", ["sraven", "logic"])
@pytest.mark.parametrize("kind", ["hyla", "softmax", "linear"])
def test_the_official_code_is_given_our_setting(task: str, kind: str) -> None:
    setting = official_setting(preset("paper", task, kind))
    assert setting["model"]["attention_dropout_rate"] == 0.1
    assert setting["model"]["qk_dim"] == {"sraven": 64, "logic": 16}[task]
    assert setting["training"]["batch_size"] == 128
    assert setting["data"].get("seq_len") == {"sraven": None, "logic": 32}[task]
    assert json.loads(json.dumps(setting)) == setting


def test_errors_of_the_worker_come_across(tmp_path: Path) -> None:
    """A jax of four lines: enough for requests and answers to travel, and for nothing else."""
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "logic.py").touch()
    (tmp_path / "jax.py").write_text(
        "print('libraries may print')\nclass D:\n    def memory_stats(self):\n"
        "        return {'peak_bytes_in_use': 3 * 2**20}\ndef devices():\n    return [D()]\n",
        encoding="utf-8")
    with official_process(tmp_path, sys.executable, 1) as process:
        assert process.ask(do="memory") == {"peak_mib": 3.0}
        with pytest.raises(OfficialError, match="nothing is built yet"):
            process.contestant("step").seconds(1)
        with pytest.raises(OfficialError, match=r"KeyError.*get_config"):
            process.ask(do="build", **official_setting(preset("smoke", "logic", "hyla")))
        assert process.ask(do="memory") == {"peak_mib": 3.0}
        process.process.kill()
        process.process.wait()
        with pytest.raises(OfficialError, match="ended with code -9"):
            process.ask(do="memory")


def test_the_worker_knows_nothing_of_us() -> None:
    text = Path(worker.__file__).read_text(encoding="utf-8")
    assert "import latentcode" not in text
    assert "from latentcode" not in text
