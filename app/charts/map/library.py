"""The drawing library of the map, regl-scatterplot, out of the installed jupyter-scatter."""

from __future__ import annotations

from functools import cache
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from latentcode.errors import ConfigError, check

PACKAGE = "jupyter-scatter"
BUNDLE = "jscatter/bundle.js"
WANTED = ("createScatterplot", "createRenderer")
"""Functions of regl-scatterplot. The bundle has them, and exports a notebook's widget alone."""


def installed() -> Distribution:
    """Return the package; `ConfigError` where it is not installed."""
    try:
        return distribution(PACKAGE)
    except PackageNotFoundError:
        raise ConfigError(f"the explorer needs {PACKAGE}, which is not installed; expected "
                          "latentcode[app] (pip install 'latentcode[app]')") from None


def version() -> str:
    """Return the version of the package."""
    return installed().version


@cache
def script() -> bytes:
    """Return the bundle with the functions of regl-scatterplot among its exports.

    `ConfigError` if the installed version has no such bundle.
    """
    found = installed()
    path = Path(str(found.locate_file(BUNDLE)))
    check(path.is_file(), f"{PACKAGE} {found.version} has no {BUNDLE}; expected 1.0", ConfigError)
    text = path.read_text(encoding="utf-8")
    missing = [name for name in WANTED if f"var {name} = (" not in text]
    check(not missing, f"{PACKAGE} {found.version} does not define {', '.join(missing)}; expected "
          "a version with regl-scatterplot, such as 1.0", ConfigError)
    return f"{text}\nexport {{ {', '.join(WANTED)} }};\n".encode()
