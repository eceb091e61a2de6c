"""Build or update .venv. Run by the interpreter that it is to be built on, or by its own.

    python .ci/environment.py            .venv, with the versions of constraints.txt
    python .ci/environment.py lowest     .venv-lowest, with those of .ci/lowest.txt, on Python 3.11

What is there and up to date stays as it is, so that every make target can call this.

torch comes first, alone and pinned: the build that a plain machine gets must be our choice,
not the side effect of another package's requirement. A torch that is there already, in .venv
or in the environment of the interpreter, is kept: its version takes the place of the pin, so
that pip has no reason to replace it. (The lowest versions include that of torch, so .venv-lowest
takes none from elsewhere.)
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import venv
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOWEST = sys.argv[1:] == ["lowest"]
EXTRAS = "app,sweep,test,track" if LOWEST else "all"
VENV = ROOT / (".venv-lowest" if LOWEST else ".venv")
PYTHON = VENV / "bin" / "python"
ORIGIN = VENV / "built-on"
STAMP = VENV / "installed"
PROJECT = ROOT / "pyproject.toml"
PINS = ROOT / (".ci/lowest.txt" if LOWEST else "constraints.txt")
LOG = VENV / "pip.log"

VERSION = """
import sys
from importlib.metadata import PackageNotFoundError, version
try:
    print(version(sys.argv[1]))
except PackageNotFoundError:
    pass
"""
TORCH_REPORT = """
import platform, torch
device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
print(f"ready: Python {platform.python_version()}, torch {torch.__version__} on {device},",
      torch.__path__[0])
"""


def main() -> None:
    if sys.version_info < (3, 11):
        sys.exit(f"{sys.executable} is Python {sys.version.split()[0]}; expected 3.11 or newer: "
                 "install one (python.org, conda, uv) and name it, "
                 "make env PYTHON=/path/to/python3.11")
    if LOWEST and sys.version_info[:2] != (3, 11):
        sys.exit(f"{sys.executable} is Python {sys.version.split()[0]}; expected 3.11, for which "
                 "the lowest versions are made: make test-lowest PYTHON=/path/to/python3.11")
    if Path(sys.prefix).resolve() != VENV.resolve():
        create()
    digest = hashlib.sha256(PROJECT.read_bytes() + PINS.read_bytes()).hexdigest()
    if not STAMP.exists() or STAMP.read_text() != digest:
        install()
        STAMP.write_text(digest)


def create() -> None:
    """Make .venv on this interpreter, unless it was built on it already."""
    if VENV.exists():
        if not ORIGIN.exists():
            sys.exit(f"{VENV} exists and was not built by make: leave PYTHON out to use it as "
                     "it is, or remove it")
        if ORIGIN.read_text() == sys.executable:
            return
        print(f"{VENV} was built on {ORIGIN.read_text()}: building it again", flush=True)
        shutil.rmtree(VENV)
    print(f"building {VENV} on {sys.executable}", flush=True)
    try:
        # Some distributions split off ensurepip; this interpreter's pip can do its work.
        has_ensurepip = find_spec("ensurepip") is not None
        venv.create(VENV, with_pip=has_ensurepip, symlinks=True)
        if not has_ensurepip:
            run(sys.executable, "-m", "pip", "--python", PYTHON, "install", "--quiet", "pip")
        if not LOWEST:
            share_torch()
    except BaseException:
        shutil.rmtree(VENV, ignore_errors=True)
        raise
    ORIGIN.write_text(sys.executable)


def share_torch() -> None:
    """Show .venv the packages of this interpreter, if torch is among them.

    The option of `venv` for this (system_site_packages) would show those of the interpreter
    below it where this one is itself a virtual environment. What pip installs into .venv comes
    first, and pip changes nothing outside it.
    """
    torch = find_spec("torch")
    if torch is None or torch.origin is None:
        return
    folders = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
    folders.append(str(Path(torch.origin).parent.parent))
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    link = VENV / "lib" / version / "site-packages" / "packages-of-the-interpreter.pth"
    link.write_text("".join(f"{folder}\n" for folder in dict.fromkeys(folders)))


def install() -> None:
    """Install torch, unless it is there, then the package with every extra."""
    pins = PINS.read_text()
    pin, least = find(r"(?m)^torch==(.+)$", PINS), find(r'"torch>=([0-9.]+)', PROJECT)
    torch = version_of("torch")
    if not torch:
        print(f"installing torch {pin}", flush=True)
        pip("install", "--no-compile", f"torch=={pin}")
        torch = version_of("torch")
    elif release(torch) < release(least):
        sys.exit(f"the torch that {PYTHON} finds is {torch}; expected {least} or newer: update "
                 "it, or give a PYTHON that has none")
    elif torch.split("+")[0] != pin:
        print(f"keeping torch {torch}; {PINS.name} has {pin}", flush=True)
    constraints = VENV / "constraints.txt"
    pins = pins.replace(f"torch=={pin}\n", f"torch=={torch}\n")
    if triton := version_of("triton"):  # which torch for CUDA brings, and is made for
        pins = re.sub(r"(?m)^triton==.+$", f"triton=={triton}", pins)
    constraints.write_text(pins)
    print(f"installing latentcode[{EXTRAS}]", flush=True)
    pip("install", "--no-compile", "--progress-bar", "off", "--constraint", constraints,
        "--editable", f"{ROOT}[{EXTRAS}]")
    # On all cores, where pip takes one; some packages bring files that are not meant to compile.
    print("compiling what was installed, once", flush=True)
    subprocess.run([PYTHON, "-m", "compileall", "-qq", "-j", "0", VENV / "lib"], check=False)
    run(PYTHON, "-c", TORCH_REPORT)


def find(pattern: str, file: Path) -> str:
    match = re.search(pattern, file.read_text())
    assert match is not None, f"nothing in {file} matches {pattern}"
    return match[1]


def release(version: str) -> tuple[int, ...]:
    """Return (2, 11) of "2.11.0a0+cu126": enough to compare with a lower bound."""
    return tuple(map(int, re.findall(r"\d+", version)[:2]))


def version_of(name: str) -> str:
    """Return the version of a package that .venv sees, or an empty string."""
    done = subprocess.run([PYTHON, "-c", VERSION, name], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def pip(*arguments: str | os.PathLike[str]) -> None:
    """Run .venv's pip; what it does in detail goes to a log."""
    run(PYTHON, "-m", "pip", "--quiet", "--disable-pip-version-check", "--log", LOG, *arguments)


def run(*command: str | os.PathLike[str]) -> None:
    """Run a command; its failure is ours."""
    code = subprocess.run(command, check=False).returncode
    if code:
        details = f", details in {LOG}" if LOG.exists() else ""
        sys.exit(f"{' '.join(map(str, command))} failed with exit status {code}{details}")


if __name__ == "__main__":
    main()
