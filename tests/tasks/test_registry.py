"""Which class is a configuration's task, and what reads it?"""

from __future__ import annotations

import subprocess
import sys

import pytest

from latentcode.config import LanguageConfig, LogicConfig, SravenConfig
from latentcode.errors import ConfigError
from latentcode.tasks import as_task, make_task
from latentcode.tasks.logic.task import FuzzyLogic
from latentcode.tasks.sraven.task import Sraven


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
