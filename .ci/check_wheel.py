"""Does the wheel hold everything, and work where the checkout is out of sight?

    python .ci/check_wheel.py dist/latentcode-*.whl

Run by .venv's interpreter: the wheel is installed into an empty environment outside the tree,
which sees the dependencies of .venv but not its editable install.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGED = (".py", ".typed", ".html", ".json", ".yaml", ".safetensors", ".parquet")
ZOO = (".csv", ".jsonl", ".md")
"""Files of the zoo that other folders keep to themselves."""
LEFT_OUT = "experiments/results/runs"
"""Trained runs, which no wheel carries."""
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
            if LEFT_OUT not in parent
            and (name.endswith(PACKAGED) or (name.endswith(ZOO) and "/zoo" in parent))}


def main(wheel: str) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        outside = Path(temporary).resolve()
        venv.create(outside, with_pip=False, symlinks=True)
        python = outside / "bin" / "python"
        site_packages = next(outside.glob("lib/python3*/site-packages"))
        subprocess.run([sys.executable, "-m", "pip", "--python", python, "install", "--quiet",
                        "--no-deps", "--no-index", Path(wheel).resolve()], check=True)
        missing = files_below(ROOT / "latentcode") - files_below(site_packages / "latentcode")
        if missing:
            sys.exit(f"{wheel} lacks {', '.join(sorted(missing))}")
        if (site_packages / "latentcode" / LEFT_OUT).exists():
            sys.exit(f"{wheel} carries {LEFT_OUT}, which is to be left out")
        description = next(site_packages.glob("latentcode-*.dist-info/METADATA")).read_text()
        dead = re.findall(r"\]\((?!https?:)[^)]*\)", description)
        if dead:
            sys.exit(f"{wheel} describes itself with links that lead nowhere: {', '.join(dead)}")
        # A path that a .pth file adds has its own .pth files ignored, and with them the
        # editable install.
        dependencies = [path for path in sys.path if path.endswith("-packages")]
        (site_packages / "dependencies.pth").write_text("\n".join(dependencies) + "\n")
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
