"""The main job at smoke size: the report holds everything, and a second call goes on."""

import json
from pathlib import Path

import pytest

import latentcode as lc
from latentcode.experiments.demo import asking, demo
from latentcode.experiments.demo.asking import Sizes


@pytest.mark.slow
def test_demo_writes_a_self_contained_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # One published model, asked little: enough to count, and to be shown as a table.
    monkeypatch.setattr(demo, "PUBLISHED", ("zoo:logic-hyla",))
    monkeypatch.setattr(demo, "SIZES", {"smoke": Sizes(100, 91, 20)})
    monkeypatch.setattr(asking, "LEAST_COUNTED", 3)
    # Processes take longer to start than these probes to fit.
    monkeypatch.setattr(asking, "available_cores", lambda: 1)
    path = demo.demo(tmp_path / "demo", preset_name="smoke")
    text = path.read_text(encoding="utf-8")
    for words in ("What was found", "What the models learn", "What the codes say",
                  "How the codes lie", "What the codes cause", "SRAVEN", "residual", "untrained",
                  "shuffled", "hyla of the zoo", "softmax trained here", "one query",
                  "one context", "source's function", "<strong>A code does not tell</strong>",
                  "0 problems count"):
        assert words in text
    assert "src=\"http" not in text
    assert text.index("What was found</h2>") < text.index("The idea</h2>")
    kept = json.loads((tmp_path / "demo" / "results.json").read_text())
    assert set(kept["interventions"]) == {"hyla of the zoo"}
    assert {len(found) for found in kept["decoding"].values()} == {2}
    assert "What codes cause in hyla of the zoo:" in text
    assert {row["model"] for row in kept["found"]} >= {"hyla of the zoo", "hyla trained here"}
    for name in ("decoding", "tsne-target", "interventions-hyla-of-the-zoo"):
        assert (tmp_path / "demo" / f"{name}.png").is_file()
    lc.probes.decoding.DecodingResult.load(
        tmp_path / "demo" / "probe-hyla-trained-here-fixed_query")
    for name in ("logic-hyla", "logic-softmax", "sraven-smoke"):
        assert lc.Run.open(tmp_path / "demo" / name).is_complete
    # Once more, of one model.
    monkeypatch.setattr(demo, "PUBLISHED", ())
    monkeypatch.setattr(demo, "KINDS", ("hyla",))
    before = (tmp_path / "demo" / "logic-hyla" / "metrics.jsonl").read_bytes()
    assert demo.demo(tmp_path / "demo", preset_name="smoke") == path
    assert (tmp_path / "demo" / "logic-hyla" / "metrics.jsonl").read_bytes() == before
