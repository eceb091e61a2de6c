"""Does the wheel hold everything, and work where the checkout is out of sight?

    python .ci/check_wheel.py dist/latentcode-*.whl

Run by .venv's interpreter: the wheel is installed into an empty environment outside the tree,
which sees the dependencies of .venv but not its editable install.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGED = (".py", ".typed", ".css", ".html", ".js", ".json", ".yaml", ".safetensors", ".parquet")
ZOO = (".csv", ".jsonl", ".md")
"""Files of the zoo that other folders keep to themselves."""
FIGURES = "experiments/results/reproduced/paper"
"""Folder of the figures that the explorer shows as evidence."""
LEFT_OUT = ("experiments/results/runs", "experiments/results/unfinished")
"""Trained runs, and trainings that are not finished, which no wheel carries."""
LARGEST = 20
"""Megabytes that a wheel may have."""
INSTANCES = 1_000
"""Of each split, on which the models of the zoo are evaluated again."""

IMPORT_ALL = """
import importlib, pkgutil, sys
from pathlib import Path
import latentcode
home, checkout = Path(latentcode.__file__).resolve(), Path(sys.argv[1])
assert not home.is_relative_to(checkout), f"imported from the checkout: {home}"
names = [m.name for m in pkgutil.walk_packages(latentcode.__path__, "latentcode.")
         if not m.name.endswith("__main__")]
for name in names:
    importlib.import_module(name)
foreign = [n for n, m in sys.modules.items() if (file := getattr(m, "__file__", None))
           and Path(file).resolve().is_relative_to(checkout / n.split(".")[0])]
assert not foreign, f"imported from the checkout: {foreign}"
from importlib.metadata import version
print(f"latentcode {version('latentcode')}: {len(names)} modules imported from {home.parent}")
"""


def files_below(folder: Path) -> set[str]:
    """Return the names of the package's files, following the links to the rooms."""
    return {os.path.relpath(os.path.join(parent, name), folder)
            for parent, _, names in os.walk(folder, followlinks=True) for name in names
            if not any(left_out in parent for left_out in LEFT_OUT)
            and (name.endswith(PACKAGED) or (name.endswith(ZOO) and "/zoo" in parent)
                 or (name.endswith(".png") and FIGURES in parent))}


def pip(python: Path, *arguments: str | Path) -> None:
    subprocess.run([sys.executable, "-m", "pip", "--python", python, "--quiet", *arguments],
                   check=True)


def replaced_beside_old_torch(python: Path, site_packages: Path) -> list[str]:
    """Return what pip would install to satisfy the wheel beside a torch that a user brought.

    It is as old as can be and a build of their own, and stands there in name only; the other
    dependencies are those of .venv.
    """
    requirements = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    least = next(r for r in requirements if r.startswith("torch>=")).removeprefix("torch>=")
    theirs = site_packages / "torch-0.dist-info"
    theirs.mkdir()
    (theirs / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: torch\nVersion: {least}.0+theirs\n")
    report = site_packages / "report.json"
    pip(python, "install", "--no-index", "--dry-run", "--report", report, "latentcode")
    names = [item["metadata"]["name"] for item in json.loads(report.read_text())["install"]]
    shutil.rmtree(theirs)
    report.unlink()
    return names


def main(name: str) -> None:
    wheel = Path(name).resolve()
    size = wheel.stat().st_size / 1e6
    print(f"{wheel.name}: {size:.1f} MB")
    if size > LARGEST:
        sys.exit(f"{wheel} has {size:.1f} MB; expected at most {LARGEST}")
    with tempfile.TemporaryDirectory() as temporary:
        outside = Path(temporary).resolve()
        venv.create(outside, with_pip=False, symlinks=True)
        python = outside / "bin" / "python"
        site_packages = next(outside.glob("lib/python3*/site-packages"))
        pip(python, "install", "--no-deps", "--no-index", wheel)
        missing = files_below(ROOT / "latentcode") - files_below(site_packages / "latentcode")
        if missing:
            sys.exit(f"{wheel} lacks {', '.join(sorted(missing))}")
        for folder in LEFT_OUT:
            if (site_packages / "latentcode" / folder).exists():
                sys.exit(f"{wheel} carries {folder}, which is to be left out")
        description = next(site_packages.glob("latentcode-*.dist-info/METADATA")).read_text()
        dead = re.findall(r"\]\((?!https?:)[^)]*\)", description)
        if dead:
            sys.exit(f"{wheel} describes itself with links that lead nowhere: {', '.join(dead)}")
        # A path that a .pth file adds has its own .pth files ignored, and with them the
        # editable install.
        dependencies = [path for path in sys.path if path.endswith("-packages")]
        (site_packages / "dependencies.pth").write_text("\n".join(dependencies) + "\n")
        replaced = replaced_beside_old_torch(python, site_packages)
        if replaced:
            sys.exit(f"{wheel} would replace {', '.join(replaced)} beside an old torch")
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        # Proxies that do not answer: whatever asks for a network fails.
        environment |= dict.fromkeys(("http_proxy", "https_proxy", "all_proxy"),
                                     "http://127.0.0.1:9") | {"HF_HUB_OFFLINE": "1"}
        latentcode = outside / "bin" / "latentcode"
        for command, output in (((python, "-c", IMPORT_ALL, ROOT), None),
                                ((latentcode, "--help"), subprocess.DEVNULL),
                                ((latentcode, "zoo", "verify", "--n", str(INSTANCES)), None)):
            if subprocess.run(command, cwd=outside, env=environment, stdout=output).returncode:
                sys.exit(f"{wheel} does not work outside the tree")


if __name__ == "__main__":
    main(*sys.argv[1:])
