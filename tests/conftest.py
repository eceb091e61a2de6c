"""What holds for every test: one thread, hubs offline, no display, shapes checked."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

# Before torch or numpy is imported; processes that tests start inherit it. Two threads per
# worker on a busy machine are slower than one, and results must not depend on their number.
for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS",
                 "NUMBA_NUM_THREADS"):
    os.environ[variable] = "1"
os.environ["MPLBACKEND"] = "Agg"
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["WANDB_MODE"] = "offline"

import torch

if not torch.cuda.is_available():
    # Before triton is imported: its kernels are tried by its interpreter.
    os.environ["TRITON_INTERPRET"] = "1"

from hypothesis import settings
from jaxtyping import install_import_hook


def modules_with_shapes() -> list[str]:
    """Return the modules of the package that annotate the shapes of arrays."""
    package = find_spec("latentcode")
    assert package is not None
    assert package.submodule_search_locations is not None
    root = Path(package.submodule_search_locations[0])
    files = [Path(folder, name) for folder, _, names in os.walk(root, followlinks=True)
             for name in names if name.endswith(".py")]
    return [".".join(("latentcode", *file.relative_to(root).with_suffix("").parts))
            for file in files if "jaxtyping" in file.read_text(encoding="utf-8")]


# Signatures are enforced where they state shapes. Elsewhere, above all in the configuration
# classes, a value of the wrong type has to reach the error of ours that tests ask for.
install_import_hook(modules_with_shapes(), "beartype.beartype")

import jaxtyping
import pytest
import torch
from small_factorial import LearntModels
from small_language_models import SmallModels

import latentcode as lc

torch.set_num_threads(1)

# A shell ignores these for what it starts in the background, as `nohup` does, and a training
# leaves an ignored signal so; the tests that send them must find them as in a foreground.
signal.signal(signal.SIGINT, signal.default_int_handler)
if hasattr(signal, "SIGHUP"):
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

settings.register_profile("latentcode", derandomize=True, deadline=None)
settings.load_profile("latentcode")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Slow tests do what users do, who have no checks of signatures."""
    if "unchecked_signatures" not in item.fixturenames:
        slow = item.get_closest_marker("slow") is not None
        jaxtyping.config.update("jaxtyping_disable", slow)


@pytest.fixture(scope="session", autouse=True)
def no_waiting_for_disks() -> Iterator[None]:
    """Files are flushed to the disk for the day on which the power fails, which no test is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture(scope="module")
def unchecked_signatures() -> Iterator[None]:
    """Users have no checks of signatures: what comes from files and notebooks must meet errors of
    our own, not those that the checks would raise first."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run a command that must fail with exit status 2, and return what it says, one line."""
    from latentcode.cli import main

    def run_command(*arguments: object) -> str:
        capsys.readouterr()  # what an earlier command said, such as how far it was
        with pytest.raises(SystemExit) as stopped:
            main([str(argument) for argument in arguments])
        assert stopped.value.code == 2, arguments
        said = capsys.readouterr().err.strip()
        assert len(said.splitlines()) == 1, said
        return said

    return run_command


@pytest.fixture(scope="session")
def small_models(tmp_path_factory: pytest.TempPathFactory) -> SmallModels:
    """Folders of tiny language models with random weights, made when they are first asked for."""
    return SmallModels(tmp_path_factory.mktemp("language_models"))


@pytest.fixture(scope="session")
def learnt_models(tmp_path_factory: pytest.TempPathFactory) -> LearntModels:
    """Folders of tiny language models that have learnt the factorial of `small_factorial`."""
    return LearntModels(tmp_path_factory.mktemp("learnt_models"))


@pytest.fixture(scope="session")
def smoke_run(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], lc.Run]:
    """Return a function that gives the run of a task and a kind, trained once; for reading only."""
    @cache
    def trained(task: str, kind: str) -> lc.Run:
        return lc.train(lc.preset("smoke", task, kind), tmp_path_factory.mktemp("smoke") / kind,
                        progress=False)

    return trained


@pytest.fixture
def own_names(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """Forget afterwards, or when called, which names a test registers and what it imports."""
    from latentcode import registry
    from latentcode.codes.features import FEATURES
    from latentcode.config import TASKS
    from latentcode.models.config import ATTENTION_KINDS, OWN
    from latentcode.probes.interventions.patches import PATCHES
    from latentcode.probes.registered import PROBES
    from latentcode.tasks.registry import REGISTRY

    registries = (TASKS, REGISTRY, PATCHES, ATTENTION_KINDS, *OWN.values(), FEATURES, PROBES)
    known = [(names, dict(names)) for names in registries]

    def forget() -> None:
        for module, _ in registry.asked_for():
            sys.modules.pop(module, None)
        monkeypatch.setattr(registry, "_imported", [])
        for names, values in known:
            monkeypatch.setattr(names, "_values", dict(values))
            monkeypatch.setattr(names, "_sources", {})

    monkeypatch.setattr(sys, "path", [*sys.path])
    forget()
    yield forget
    forget()


@pytest.fixture
def bfloat16(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], None]:
    """Return a function that gives this machine arithmetic in bfloat16, or takes it away."""
    def pretend(able: bool) -> None:
        capabilities = {"avx2": True, "avx512_bf16": able, "amx_bf16": False}
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities, raising=False)

    return pretend
