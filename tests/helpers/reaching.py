"""Which tests reach a module? A graph of imports, as the files state them, and nothing is run."""

from __future__ import annotations

import ast
import re
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

TOPS = ("latentcode", "models", "probes", "app", "experiments")


def files_of(root: Path, *folders: str) -> list[str]:
    """Return the Python files of a checkout that git knows."""
    listed = subprocess.run(["git", "ls-files", "--", *folders], cwd=root, check=True, text=True,
                            capture_output=True).stdout.splitlines()
    return sorted(file for file in listed if file.endswith(".py") and "/results/" not in file)


def library_files(root: Path) -> list[str]:
    """Return the files of the library, without what lies beside results."""
    return files_of(root, *TOPS)


def _module(file: str) -> str:
    name = file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    if file.startswith("tests/helpers/"):
        return Path(file).stem
    return name if name.split(".")[0] in ("latentcode", "tests") else f"latentcode.{name}"


class Graph:
    """What each file of a checkout imports: by statement, by a name that is loaded when it is
    first used (`lc.decode`), by a fixture that it asks for, or by a text that names a module."""

    def __init__(self, root: Path) -> None:
        self.tests = files_of(root, "tests")
        files = [*library_files(root), *self.tests]
        self.modules = {_module(file): file for file in files}
        self.trees = {file: ast.parse((root / file).read_text("utf-8")) for file in files}
        self.homes = {(_module(file), alias.asname or alias.name): (str(node.module), alias.name)
                      for file, tree in self.trees.items() for node in ast.walk(tree)
                      if isinstance(node, ast.ImportFrom) for alias in node.names}
        self.fixtures = {node.name: node for file in self.tests if file.endswith("conftest.py")
                         for node in self.trees[file].body if isinstance(node, ast.FunctionDef)}
        self.users: dict[str, set[str]] = defaultdict(set)
        for file, tree in self.trees.items():
            if not file.endswith("conftest.py"):
                for name in self._named(file, tree):
                    while name:  # a package is imported before what is in it
                        if name in self.modules:
                            self.users[self.modules[name]].add(file)
                        name = name.rpartition(".")[0]

    def _home(self, module: str, name: str) -> Iterator[str]:
        """Return what `from module import name` imports, also what is passed on there."""
        yield f"{module}.{name}"
        yield module
        if (module, name) in self.homes and module.startswith("latentcode"):
            yield from self._home(*self.homes[module, name])

    def _named(self, file: str, tree: ast.AST) -> Iterator[str]:
        lazy = file.endswith("/__init__.py") and "lazy_module" in ast.unparse(tree)
        package = _module(str(Path(file).parent / "__init__.py"))
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and not lazy:
                for alias in node.names:
                    yield from self._home(str(node.module), alias.name)
            elif isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) \
                    and node.value.id in ("lc", "latentcode"):
                yield from self._home("latentcode", node.attr)
            elif isinstance(node, ast.arg) and node.arg in self.fixtures:
                yield from self._named(file, self.fixtures[node.arg])
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                if node.value == "latentcode":  # python -m latentcode
                    yield "latentcode.__main__"
                yield f"{package}.{node.value}"  # the name of a page in a table of pages
                for word in re.findall(r"\w+[./][\w./]+", node.value)[:100]:
                    name = word.removesuffix(".py").replace("/", ".").strip(".")
                    yield from (name, f"latentcode.{name}")
                    if word.endswith(".") and word.count(".") > 1:  # f"latentcode.app.pages.{name}"
                        yield from (each for each in self.modules if each.startswith(word))

    def reaching(self, file: str) -> list[str]:
        """Return the test files that reach a file of the library, nearest first."""
        distances, newest = {file: 0}, [file]
        while newest:
            newest = sorted({user for used in newest for user in self.users[used]} - set(distances))
            distances |= dict.fromkeys(newest, distances[file] + 1 + max(distances.values()))
        mirror = f"tests/{file.removeprefix('latentcode/')}"
        same = {test for test in self.tests if Path(test).parent == Path(mirror).parent}
        found = [test for test in self.tests if Path(test).name.startswith("test_")
                 and "cuda/" not in test and (test in distances or test in same)]
        return sorted(found, key=lambda test: (
            Path(test).name != f"test_{Path(file).name}" or test not in same, test not in same,
            distances.get(test, 0), test))
