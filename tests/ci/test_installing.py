"""Do the files that say what is needed, and who made this, agree?"""

from __future__ import annotations

import re
import sys
import tomllib
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version
from places import ROOT

PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
OURS = re.compile(r"\.ci/run|make [a-z-]+|ls dist/\S+ dist/\S+")
"""What a workflow may run."""


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script that sets up .venv."""
    monkeypatch.setattr(sys, "argv", ["environment.py"])
    monkeypatch.syspath_prepend(ROOT / ".ci")
    return import_module("environment")


def jobs(workflow: Path) -> dict[str, Any]:
    return yaml.safe_load(workflow.read_text("utf-8"))["jobs"]


def pins(name: str) -> dict[str, Version]:
    lines = (ROOT / name).read_text("utf-8").splitlines()
    pairs = (line.split("==") for line in lines if line and not line.startswith("#"))
    return {re.sub(r"[-_.]+", "-", name).lower(): Version(version) for name, version in pairs}


@pytest.mark.parametrize("line", [
    *PROJECT["dependencies"], *EXTRAS["app"], *EXTRAS["sweep"], *EXTRAS["track"]])
def test_lowest_versions_are_those_that_are_tried(line: str) -> None:
    requirement = Requirement(line)
    least, = (s.version for s in requirement.specifier if s.operator == ">=")
    name = requirement.name.lower()
    assert pins(".ci/lowest.txt")[name].release[:len(Version(least).release)] == Version(
        least).release
    assert pins("constraints.txt")[name] in requirement.specifier


def test_every_python_that_is_named_is_tried() -> None:
    prefix = "Programming Language :: Python :: "
    named = [c.removeprefix(prefix) for c in PROJECT["classifiers"] if c.startswith(prefix + "3.")]
    tried = jobs(ROOT / ".github" / "workflows" / "ci.yml")["fast-tests"]["strategy"]["matrix"]
    assert tried["python"] == named
    supported = SpecifierSet(PROJECT["requires-python"])
    assert all(python in supported for python in named)
    assert "3.10" not in supported


def test_a_python_that_is_too_old_is_told_so(
        environment: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 10, 13, "final", 0))
    with pytest.raises(SystemExit, match=r"expected 3\.11 or newer: .* make env PYTHON=") as exit_:
        environment.main()
    assert "\n" not in str(exit_.value)


def test_a_torch_that_is_there_is_kept(
        environment: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    installed: list[tuple[str, ...]] = []
    monkeypatch.setattr(environment, "VENV", tmp_path)
    monkeypatch.setattr(environment, "pip", lambda *given: installed.append(given))
    monkeypatch.setattr(environment, "run", lambda *_: None)
    there = {"torch": "2.6.0+theirs", "triton": "3.2.0"}
    monkeypatch.setattr(environment, "version_of", there.get)
    environment.install()
    (command,) = installed
    assert not any(str(argument).startswith("torch") for argument in command)
    pinned = (tmp_path / "constraints.txt").read_text("utf-8")
    assert "\ntorch==2.6.0+theirs\n" in pinned
    assert "\ntriton==3.2.0\n" in pinned
    there["torch"] = "2.5.1"
    with pytest.raises(SystemExit, match=r"is 2\.5\.1; expected 2\.6 or newer"):
        environment.install()


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_run_what_anybody_can_run(workflow: Path) -> None:
    steps = [step for job in jobs(workflow).values() for step in job["steps"]]
    assert all(OURS.fullmatch(step["run"]) for step in steps if "run" in step)
    assert all(re.search(r"@v\d+\.\d+\.\d+$", step["uses"]) for step in steps if "uses" in step)
    assert "secrets" not in workflow.read_text("utf-8").replace("no secret", "")


def test_citation_names_this_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert citation["cff-version"] == "1.2.0"
    assert citation["message"]
    assert citation["authors"] == [{"name": "The latentcode authors"}]
    changes = (ROOT / "CHANGELOG.md").read_text("utf-8")
    released = re.search(r"^## (\d\S+) \((\S+)\)$", changes, re.MULTILINE)
    assert (citation["title"], citation["version"], citation["date-released"]) == (
        PROJECT["name"], *released.groups())
    assert citation["version"] == PROJECT["version"]
    assert citation["license"] == PROJECT["license"]
    paper, = citation["references"]
    assert {"type", "title", "authors"} < set(paper)
