"""What does a Python file say in words? Its docstrings and comments, in their order."""

from __future__ import annotations

import ast
import inspect
import warnings
from collections.abc import Iterator

LEAST = 60
"""Characters of a comment that is worth keeping: a sentence."""


def docstrings_and_comments(source: str) -> str:
    """Return the docstrings of a file, below the names of what they describe, and its comments.

    Empty for a file that is no Python of this version.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of invalid escapes in other people's strings
            tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return ""
    lines = source.splitlines()
    inside = {line for node in ast.walk(tree) if isinstance(node, ast.Constant | ast.JoinedStr)
              for line in range(node.lineno, (node.end_lineno or 0) + 1)}
    found = [*_docstrings(tree, ""), *_comments(lines, inside)]
    return "\n\n".join(text for _, text in sorted(found))


def _docstrings(node: ast.AST, name: str) -> Iterator[tuple[int, str]]:
    """Return line and text of the docstrings of a module, class or function and those within."""
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        if said := ast.get_docstring(node, clean=False):
            text = inspect.cleandoc(said)
            yield node.body[0].lineno, f"{name}\n{text}" if name else text
        for child in ast.iter_child_nodes(node):
            inner = getattr(child, "name", "")
            yield from _docstrings(child, f"{name}.{inner}" if name and inner else inner)


def _comments(lines: list[str], inside: set[int]) -> Iterator[tuple[int, str]]:
    """Return line and text of successive lines of comment that say a sentence.

    inside  numbers of lines in which a string lies
    """
    block: list[str] = []
    for number, line in enumerate([*lines, ""], 1):
        stripped = line.strip()
        if stripped.startswith("#") and number not in inside:
            block.append(stripped.lstrip("#").removeprefix(" "))
            continue
        text = "\n".join(block).strip()
        if len(text) >= LEAST:
            yield number - len(block), text
        block = []
