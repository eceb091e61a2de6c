"""Which tests reach a module? A graph of imports, as the files state them, and nothing is run."""

from __future__ import annotations

import ast
import re
import subprocess
from collections import Counter, defaultdict
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
        self.texts = {file: (root / file).read_text("utf-8") for file in files}
        self.trees = {file: ast.parse(text) for file, text in self.texts.items()}
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
                if node.value == "latentcode" and file.startswith("tests/"):  # python -m latentcode
                    yield "latentcode.__main__"
                if node.value.isidentifier() and not node.value.startswith("_"):
                    yield f"{package}.{node.value}"  # of a page, in a table of pages
                for word in re.findall(r"\w+[./][\w./]+", node.value)[:100]:
                    name = word.removesuffix(".py").replace("/", ".").strip(".")
                    yield from (name, f"latentcode.{name}")
                    if word.endswith(".") and word.count(".") > 1:  # f"latentcode.app.pages.{name}"
                        yield from (each for each in self.modules if each.startswith(word))

    def _words(self, file: str, line: int) -> set[str]:
        """Return the names of the functions that a line is in, and of those there that need it."""
        defined = [node for node in ast.walk(self.trees[file])
                   if isinstance(node, ast.FunctionDef | ast.ClassDef)]
        words = {node.name for node in defined if node.lineno <= line <= (node.end_lineno or 0)}
        for _ in defined:
            words |= {node.name for node in defined for used in ast.walk(node)
                      if getattr(used, "id", getattr(used, "attr", None)) in words}
        return words

    def reaching(self, file: str, line: int) -> list[str]:
        """Return the test files that reach a line of the library, nearest first."""
        distances, newest = {file: 0}, [file]
        while newest:
            newest = sorted({user for used in newest for user in self.users[used]} - set(distances))
            distances |= dict.fromkeys(newest, 1 + max(distances.values()))
        words, mirror = self._words(file, line), Path("tests", file.removeprefix("latentcode/"))
        found = [Path(test) for test in self.tests if "/test_" in test and "/cuda/" not in test
                 and (test in distances or Path(test).parent == mirror.parent)]
        told = {test: words & set(re.findall(r"\w+", self.texts[str(test)])) for test in found}
        common = Counter(word for those in told.values() for word in those)
        rare = {word for word in words if common[word] <= 12}

        def nearness(test: Path) -> tuple[int, int, int, Path]:
            same = test.name == f"test_{mirror.name}" and test.parts[1] == mirror.parts[1]
            score = 2 * same + (test.parent == mirror.parent) + bool(told[test] & rare)
            return "browser" in str(test), -score, distances.get(str(test), 0), test

        return [str(test) for test in sorted(found, key=nearness)]
