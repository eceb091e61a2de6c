"""Names that are imported when they are first used (PEP 562)."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path

PACKAGE = __name__.partition(".")[0]

MOVED: dict[str, str] = {
    "AlignmentResult": "probes.alignment", "AttributionResult": "probes.attribution",
    "BenchOutcome": "probes.interventions", "DASResult": "probes.das",
    "DecodingResult": "probes.decoding", "Generation": "probes.generation",
    "HeadsResult": "probes.heads", "InterventionResult": "probes.interventions",
    "KNNPurityResult": "probes.knn_purity", "ModelCheckResult": "probes.model_checks",
    "ProbeResult": "probes.registered", "ProjectionResult": "probes.projection",
    "SimilarityResult": "probes.similarity", "TopographyResult": "probes.topography",
    "ValueNetworksResult": "probes.value_networks"}
"""Names that `latentcode` offered in 1.0, and the modules that have them."""


def lazy_module(package: str) -> tuple[Callable[[str], object], Callable[[], list[str]], list[str]]:
    """Return `__getattr__`, `__dir__` and `__all__` for a package, from its `if TYPE_CHECKING:`.

    The imports there are what type checkers and readers see; each is done when its name is first
    used.
    """
    home = _typed_imports(inspect.getsource(sys.modules[package]))

    def __getattr__(name: str) -> object:
        if name not in home:
            moved = (f"; it is in {package}.{MOVED[name]}, and {package}.load_result opens saved "
                     "results" if package == PACKAGE and name in MOVED else "")
            raise AttributeError(f"module {package!r} has no attribute {name!r}{moved}")
        return getattr(import_module(home[name]), name)

    def __dir__() -> list[str]:
        return sorted(home)

    return __getattr__, __dir__, sorted(home)


@cache
def offered() -> dict[str, str]:
    """Return every name that `import latentcode as lc` offers, and its module; imports none."""
    return _typed_imports(Path(__file__).with_name("__init__.py").read_text(encoding="utf-8"))


def _typed_imports(source: str) -> dict[str, str]:
    """Return name -> module of every `from module import name` under `if TYPE_CHECKING:`."""
    blocks = [node.body for node in ast.parse(source).body
              if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    return {alias.name: str(line.module) for block in blocks for line in block
            if isinstance(line, ast.ImportFrom) for alias in line.names}
