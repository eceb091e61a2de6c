"""The main job at smoke size: the report holds everything, and a second call goes on."""

from pathlib import Path

import pytest

import latentcode as lc
from latentcode.experiments.demo.demo import demo


@pytest.mark.slow
def test_demo_writes_a_self_contained_report(tmp_path: Path) -> None:
    path = demo(tmp_path / "demo", preset_name="smoke")
    text = path.read_text(encoding="utf-8")
    for words in ("What the models learn", "What the codes say", "How the codes lie", "SRAVEN",
                  "residual", "untrained", "shuffled", "query-&gt;query"):
        assert words in text
    assert "src=\"http" not in text
    for name in ("logic-hyla", "logic-softmax", "sraven-smoke"):
        assert lc.Run.open(tmp_path / "demo" / name).is_complete
    before = (tmp_path / "demo" / "logic-hyla" / "metrics.jsonl").read_bytes()
    assert demo(tmp_path / "demo", preset_name="smoke") == path
    assert (tmp_path / "demo" / "logic-hyla" / "metrics.jsonl").read_bytes() == before
