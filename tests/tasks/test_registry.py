"""Which class is a configuration's task, and is one of one's own refused by what it returns?"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from places import EXAMPLE

import latentcode as lc
from latentcode.config import LanguageConfig, LogicConfig, SravenConfig
from latentcode.errors import ConfigError
from latentcode.registry import Source, import_file
from latentcode.tasks import as_task, make_task, try_task
from latentcode.tasks.logic.task import FuzzyLogic
from latentcode.tasks.registry import REGISTRY
from latentcode.tasks.sraven.task import Sraven

pytestmark = pytest.mark.usefixtures("own_names")


def test_every_configuration_has_its_task() -> None:
    task = make_task(LogicConfig())
    assert type(task) is FuzzyLogic
    assert as_task(task) is task
    assert as_task(task.config).config == task.config
    assert type(make_task(SravenConfig())) is Sraven
    with pytest.raises(ConfigError, match="'language' has no instances to draw"):
        make_task(LanguageConfig())


@pytest.mark.slow
def test_a_task_is_imported_without_its_readers() -> None:
    code = ("import sys; from latentcode.tasks.logic.task import FuzzyLogic; "
            "from latentcode.tasks.sraven.task import Sraven; "
            "print([m for m in sys.modules if m.endswith('counterfactuals')])")
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def changed(member: str, change: Any) -> lc.Task:
    """Return the example's task, of which one member returns something else."""
    import_file(str(EXAMPLE))
    task = lc.make_task(lc.preset("smoke", task="modadd").task)
    if not callable(change):
        setattr(task, member, change)
        return task
    whole = getattr(task, member)
    setattr(task, member, lambda *arguments: change(whole(*arguments)))
    return task


WRONG = [
    ("headline", "beauty", "measures returned loss, accuracy; expected the headline 'beauty'"),
    ("sample", lambda batch: batch[:3], r"sample \(inputs\) returned a tensor \[3, 3, 3\]"),
    ("sample", lambda batch: (batch.inputs, batch.targets), "sample returned a tuple; expected a"),
    ("losses", torch.mean, r"losses returned a tensor \[\]; expected a tensor \[4\]"),
    ("measures", lambda all_: {"accuracy": 1.0}, r"measures \('accuracy'\) returned a float"),
    ("measures", lambda all_: [1.0], "measures returned a list; expected a dictionary"),
    ("sample", lambda batch: replace(batch, inputs=batch.inputs / 0),
     r"sample \(inputs\) returned NaN or infinite numbers; expected finite ones"),
    ("sample", lambda batch: replace(batch, targets=batch.targets / 0),
     r"sample \(targets\) returned NaN or infinite numbers; expected finite ones"),
    ("positions", lambda found: (found[0] + 1, found[1]),
     r"positions \(query\) returned numbers from 3 to 3; expected 0 to 2"),
    ("positions", lambda found: (found[0], found[1][:, :1]),
     r"positions \(key\) returned a tensor \[4, 1\]; expected a tensor \[4, 3\]"),
    ("labels", lambda frame: frame[1:], "labels returned 3 rows; expected 4"),
    ("labels", dict, "labels returned a dict; expected a data frame"),
    ("labels", lambda frame: frame[["sum"]], "the columns sum; expected 'combination' among them"),
]


@pytest.mark.parametrize(("member", "change", "message"), WRONG)
def test_a_member_that_returns_something_else_is_named(
    member: str, change: Any, message: str
) -> None:
    with pytest.raises(ConfigError, match=f"task 'modadd': for 4 instances of ood, .*{message}"):
        try_task(changed(member, change), "ood")


def test_training_extraction_and_instances_try_a_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = changed("constituent", "term")
    try_task(whole, *whole.splits)
    config = lc.preset("smoke", task="modadd", kind="softmax")
    model = lc.HookedTransformer(config.model)
    monkeypatch.setattr(type(whole), "losses", lambda self, logits, targets: logits.mean())
    for begin in (lambda: lc.train(config, tmp_path / "run", progress=False),
                  lambda: lc.extract(model, whole, split="ood", n=4),
                  lambda: lc.instances(whole, "ood", 4)):
        with pytest.raises(ConfigError, match=r"losses returned a tensor \[\]"):
            begin()


def test_tasks_of_the_library_keep_what_is_asked_of_others(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("logic", "sraven"):
        task = lc.make_task(lc.preset("smoke", name).task)
        monkeypatch.setitem(REGISTRY._sources, name, Source("as_if_it_were_a_users.py"))
        try_task(task, *task.splits)
