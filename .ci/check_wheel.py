"""Does the wheel hold everything, and work where the checkout is out of sight?

    python .ci/check_wheel.py dist/latentcode-*.whl [--examples]

Run by .venv's interpreter: the wheel is installed into an empty environment outside the tree,
which sees the dependencies of .venv but not its editable install. With --examples the examples of
the pages are run there instead, in a folder that holds them and no package.
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
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGED = (".py", ".typed", ".css", ".html", ".js", ".json", ".yaml", ".safetensors", ".parquet")
ZOO = (".csv", ".jsonl", ".md")
"""Files of the zoo that other folders keep to themselves."""
LEFT_OUT = "experiments"
"""The room that no wheel carries: it is read in a checkout."""
ONLY_IN_CLONES = "/zoo/logic-linear", "/zoo/sraven-linear"
"""Models of the zoo that no wheel carries, either."""
LARGEST = 12
"""Megabytes that a wheel may have."""

BESIDE = ("tests", "docs", "*.md", "pyproject.toml", "experiments/examples")
"""What of the tree the examples need beside the installed package."""
EXAMPLES = (
    *(f"tests/docs/test_{name}.py" for name in (
        "concepts", "examples", "own_attention", "own_patch", "own_probe", "transformer_lens")),
    "tests/cli/test_own_task.py", "tests/hub/test_share_page.py")
"""Tests of pages that need no checkout; those of the others, and of the notebooks, run in one."""

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
            if Path(parent).relative_to(folder).parts[:1] != (LEFT_OUT,)
            and not any(model in parent for model in ONLY_IN_CLONES)
            and (name.endswith(PACKAGED) or (name.endswith(ZOO) and "/zoo" in parent))}


def pip(python: Path, *arguments: str | Path) -> None:
    """Run this interpreter's pip for the environment of another."""
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


@contextmanager
def installed(wheel: Path) -> Iterator[tuple[Path, Path, Path]]:
    """Install a wheel outside the tree: yields the folder, its python and its site-packages."""
    with tempfile.TemporaryDirectory() as temporary:
        outside = Path(temporary).resolve()
        venv.create(outside, with_pip=False, symlinks=True)
        python = outside / "bin" / "python"
        site_packages = next(outside.glob("lib/python3*/site-packages"))
        pip(python, "install", "--no-deps", "--no-index", wheel)
        # A path that a .pth file adds has its own .pth files ignored, and with them the
        # editable install.
        dependencies = [path for path in sys.path if path.endswith("-packages")]
        (site_packages / "dependencies.pth").write_text("\n".join(dependencies) + "\n")
        yield outside, python, site_packages


def offline() -> dict[str, str]:
    """Return an environment without the checkout, whose proxies do not answer: whatever asks for a
    network beyond this machine fails."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    proxies = dict.fromkeys(("http_proxy", "https_proxy", "all_proxy"), "http://127.0.0.1:9")
    return environment | proxies | {"no_proxy": "127.0.0.1,localhost", "HF_HUB_OFFLINE": "1"}


def run_examples(wheel: Path) -> None:
    """Run the examples of the pages with a wheel."""
    with installed(wheel) as (outside, python, _):
        tree = outside / "tree"
        for name in subprocess.check_output(
                ["git", "ls-files", *BESIDE], cwd=ROOT, text=True).splitlines():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, tree / name)
        if subprocess.run([python, "-m", "pytest", *EXAMPLES, "--numprocesses", "2", "--dist",
                           "worksteal"], cwd=tree, env=offline()).returncode:
            sys.exit(f"an example does not run from {wheel}")


def check(wheel: Path) -> None:
    """End with a message where the wheel lacks something, is too large, or does not work."""
    size = wheel.stat().st_size / 1e6
    print(f"{wheel.name}: {size:.1f} MB")
    if size > LARGEST:
        sys.exit(f"{wheel} has {size:.1f} MB; expected at most {LARGEST}")
    with installed(wheel) as (outside, python, site_packages):
        missing = files_below(ROOT / "latentcode") - files_below(site_packages / "latentcode")
        if missing:
            sys.exit(f"{wheel} lacks {', '.join(sorted(missing))}")
        if (site_packages / "latentcode" / LEFT_OUT).exists():
            sys.exit(f"{wheel} carries {LEFT_OUT}, which are to be left out")
        description = next(site_packages.glob("latentcode-*.dist-info/METADATA")).read_text()
        dead = re.findall(r"\]\((?!https?:)[^)]*\)", description)
        if dead:
            sys.exit(f"{wheel} describes itself with links that lead nowhere: {', '.join(dead)}")
        replaced = replaced_beside_old_torch(python, site_packages)
        if replaced:
            sys.exit(f"{wheel} would replace {', '.join(replaced)} beside an old torch")
        latentcode = outside / "bin" / "latentcode"
        for command, output in (((python, "-c", IMPORT_ALL, ROOT), None),
                                ((latentcode, "--help"), subprocess.DEVNULL),
                                ((latentcode, "zoo", "list"), subprocess.DEVNULL),
                                ((latentcode, "extract", "sraven-hyla", "--n", "100", "--out",
                                  "codes"), subprocess.DEVNULL)):
            if subprocess.run(command, cwd=outside, env=offline(), stdout=output).returncode:
                sys.exit(f"{wheel} does not work outside the tree")
        reproduce = subprocess.run((latentcode, "reproduce", "fig2c"), cwd=outside, env=offline(),
                                   capture_output=True, text=True)
        if reproduce.returncode != 2 or "git clone --depth 1 https://" not in reproduce.stderr:
            sys.exit(f"{wheel} does not say where the experiments are: {reproduce.stderr}")


if __name__ == "__main__":
    (run_examples if "--examples" in sys.argv else check)(Path(sys.argv[1]).resolve())
