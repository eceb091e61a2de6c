"""Is a run of a text asked what other runs are asked, with all controls?"""

from __future__ import annotations

from dataclasses import replace

import pytest
from small_text import document
from text_files import write_documents

import latentcode as lc
from latentcode.presets import follow_task

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> lc.Run:
    """A run of a few updates, opened anew: its text is in its folder."""
    folder = tmp_path_factory.mktemp("language")
    start = lc.preset("smoke", "language", "hyla")
    text = write_documents(folder / "text", 200, document)
    task = replace(start.task, text=str(text), n_vocabulary=300)
    config = replace(start, task=task, model=replace(
        start.model, **follow_task(start.task, task)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LATENTCODE_CACHE", str(folder / "cache"))
        lc.train(config, folder / "run", progress=False)
    return lc.Run.open(folder / "run")


def test_copying_is_decoded_with_all_controls_by_document(run: lc.Run) -> None:
    result = lc.decode(run, n_train=300, n_heldout=200)
    assert set(result.table["features"]) == {"code", "residual", "untrained", "shuffled"}
    assert set(result.table["label"]) == set(lc.make_task(run.config.task).probe_labels)
    documents = lc.extract(run, n=200).labels["document"].nunique()
    assert set(result.table["n_heldout_combinations"]) == {documents}


def test_models_that_copy_are_patched() -> None:
    result = lc.intervene("text-softmax", n=150, n_bootstrap=100, interventions=[
        lc.Patch(value, scope, [1], site) for value, scope, site in (
            ("operation+operands", "row", "code"), ("operation+operands", "everything", "value"),
            ("control", "row", "code"), ("identity", "row", "code"))])
    rates = result.table.set_index(["patch", "site", "metric"])["value"]
    # The codes say from where to copy, and the values what stands there.
    assert rates["operation+operands", "code", "operation"] > 0.5
    assert rates["operation+operands", "value", "operands"] > 0.5
    assert rates["control", "code", "operation"] < 0.1
    assert rates["identity", "code", "unchanged"] == 1.0
