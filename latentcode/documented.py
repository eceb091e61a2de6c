"""What does a function take, and what does it say of that? Read from its source, not by importing.

An argument is described in one place, the docstring of its function, in the house's format:

    pairs     names of pairs, or `all`; default: the paper's, the first of the task's
    n_train, n_heldout  problems that probes are fitted on and scored on; default: 4,096

The command line, the pages and the explorer read it there. No module is imported for it, so that
`latentcode decode --help` is there at once, torch or not.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import NoneType
from typing import Any, Literal

PACKAGE = __name__.partition(".")[0]
ROOT = Path(__file__).parent
REQUIRED = inspect.Parameter.empty
"""The default of what cannot be left out."""
SHARED = (f"{PACKAGE}.subjects.subject", f"{PACKAGE}.subjects.extract")
"""Functions that describe what all questions take; what they say holds where a function itself
says nothing."""
REGISTERED = (f"{PACKAGE}.probes.registered.asking.ask", "register_probe")
"""What registered probes have in common, a function of the probe first, and the decorator that
makes a function one: its own options are the keyword-only arguments."""
WORDS: Mapping[str, type] = {"str": str, "int": int, "float": float, "bool": bool, "Path": Path}
SEVERAL = ("Sequence", "Iterable", "tuple", "list")
ITEM = re.compile(r"(\w+(?:, \w+)*)(?: {2,}| (?=of |called ))(\S.*)")
DEFAULT = re.compile(r"(?:^|(?<=[;,.]) )[dD]efault: ([^;]*?)(?:; |\.? ?$|(?=\. [A-Z]))")
IN_PYTHON = re.compile(r"(?:^|[;,.] )or (?:a )?functions? of a batch\b.*", re.IGNORECASE)
"""What of a text concerns only those who call the function themselves."""


@dataclass(frozen=True)
class Option:
    """One argument of a function.

    name        as in the signature
    annotation  as it stands there, or nothing
    default     its value, `REQUIRED` without one; where it is no literal, None
    text        what the docstring says of it, in one line, or nothing
    words       the type of what text can give for it: str, int, float, bool, Path, a Literal, or a
                tuple of one of them; None where text can give nothing
    optional    whether it may be None
    """

    name: str
    annotation: str
    default: Any
    text: str
    words: Any
    optional: bool

    @property
    def is_open(self) -> bool:
        """Whether it is yes, no, or left to the function."""
        return self.words is bool and self.optional

    @property
    def said(self) -> str:
        """Its text without the default and what only code can give."""
        text = DEFAULT.sub(" ", IN_PYTHON.sub("", self.text)).replace("`", "")
        return re.sub(r"[;,]?\s*\.(?= )", ".", text).strip(" ;,.")

    @property
    def said_default(self) -> str:
        """What its text says of the default, or nothing."""
        found = DEFAULT.search(IN_PYTHON.sub("", self.text))
        return found[1].replace("`", "") if found else ""


@dataclass(frozen=True)
class Described:
    """A function: its docstring without the arguments, these, and the annotation of its result."""

    text: str
    options: dict[str, Option]
    returns: str


def options_of(function: Callable[..., Any] | str) -> dict[str, Option]:
    """Return what a function takes, by name, in the order of its signature.

    function  itself, or its address, such as `latentcode.probes.decoding.decode`; a class has the
              fields of its dataclass
    """
    return described(function).options


@cache
def described(function: Callable[..., Any] | str) -> Described:
    """Return what a function takes and what it says of itself; see `options_of`."""
    is_probe = getattr(function, "registered", False) is True
    if isinstance(function, str):
        module, node = _found(*function.rpartition(".")[::2])
    else:
        written = inspect.unwrap(function)
        module, node = _found(str(written.__module__), written.__qualname__)
        node = _as_it_stands(written) if is_probe and node is None else node
    if isinstance(node, ast.FunctionDef):
        is_probe = is_probe or any(
            isinstance(one, ast.Call) and ast.unparse(one.func).endswith(REGISTERED[1])
            for one in node.decorator_list)
        arguments, returns = list(_arguments(node.args)), node.returns
    elif isinstance(node, ast.ClassDef):
        arguments, returns = list(_fields(node)), None
    else:
        raise LookupError(f"{function} is no function whose source is known")
    text, texts = _split(ast.get_docstring(node) or "", [name for name, *_ in arguments])
    options = {}
    for name, annotation, default in arguments:
        kinds = list(_kinds(module, annotation)) if annotation is not None else []
        value = REQUIRED if default is None else _value(module, default)
        if annotation is None and type(value) in WORDS.values():
            kinds = [type(value)]
        options[name] = Option(
            name, ast.unparse(annotation) if annotation is not None else "", value,
            texts.get(name, ""), _joined(kinds), NoneType in kinds)
    found = Described(text, options, "" if returns is None else ast.unparse(returns))
    if is_probe:
        assert isinstance(node, ast.FunctionDef)
        return _as_question(found, {one.arg for one in node.args.kwonlyargs})
    if function not in SHARED:
        options = {name: option if option.text else replace(option, text=_shared_text(name))
                   for name, option in options.items()}
    return replace(found, options=options)


def _as_question(probe: Described, own: Collection[str]) -> Described:
    """Return what the question takes and says that a registered probe is, with its `own` options:
    model and problems, these, and what all of them take."""
    asked = described(REGISTERED[0])
    _, *common = asked.options.values()  # the first is the probe
    of_model = [option for option in common if option.name in ("model", "problems", "labels")]
    options = [*of_model, *(option for name, option in probe.options.items()
                            if name in own and name not in asked.options),
               *(option for option in common if option not in of_model)]
    more = asked.text.partition("\n\n")[2]
    return Described(f"{probe.text}\n\n{more}", {option.name: option for option in options},
                     asked.returns)


def _as_it_stands(function: Callable[..., Any]) -> ast.AST | None:
    """Return the definition of a function that no file holds, such as one of a notebook."""
    try:
        found = ast.parse(f"def f{inspect.signature(function)}: {inspect.getdoc(function)!r}")
    except (SyntaxError, TypeError, ValueError):
        return None
    return found.body[0]


def _shared_text(name: str) -> str:
    known = (options_of(function).get(name) for function in SHARED)
    return next((option.text for option in known if option is not None and option.text), "")


def _split(docstring: str, names: Iterable[str]) -> tuple[str, dict[str, str]]:
    """Return a docstring without the paragraphs that describe arguments, and what these say."""
    names, texts, rest = {*names}, dict[str, str](), []
    for paragraph in docstring.split("\n\n"):
        found = _items(paragraph)
        if found is not None and any(name in names for name in found):
            texts |= found
        else:
            rest.append(paragraph)
    return "\n\n".join(rest), texts


def _items(paragraph: str) -> dict[str, str] | None:
    """Return name -> text of a paragraph in the house's format, or None for any other."""
    texts: dict[str, str] = {}
    last: list[str] = []
    for line in paragraph.split("\n"):
        if line.startswith(" ") and last:
            texts |= {name: f"{texts[name]} {line.strip()}" for name in last}
            continue
        item = ITEM.fullmatch(line)
        if item is None:
            return None
        last = item[1].split(", ")
        texts |= dict.fromkeys(last, item[2].strip())
    return texts


def _arguments(of: ast.arguments) -> Iterator[tuple[str, ast.expr | None, ast.expr | None]]:
    """Yield the name, the annotation and the default of every argument that has a name."""
    ordered = [*of.posonlyargs, *of.args]
    defaults = [None] * (len(ordered) - len(of.defaults)) + [*of.defaults]
    for argument, default in zip([*ordered, *of.kwonlyargs], [*defaults, *of.kw_defaults],
                                 strict=True):
        yield argument.arg, argument.annotation, default


def _fields(of: ast.ClassDef) -> Iterator[tuple[str, ast.expr | None, ast.expr | None]]:
    for line in of.body:
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
            yield line.target.id, line.annotation, line.value


@cache
def _names(module: str) -> dict[str, ast.AST]:
    """Return what the names of a module stand for, also those that only type checkers see."""
    parts = module.split(".")
    loaded = getattr(sys.modules.get(module), "__file__", None)
    files = [Path(loaded)] if loaded else []
    if parts[0] == PACKAGE:
        path = ROOT.joinpath(*parts[1:])
        files = [path.with_suffix(".py"), path / "__init__.py"]
    file = next((file for file in files if file.is_file()), None)
    if file is None:
        return {}
    known: dict[str, ast.AST] = {}
    body = ast.parse(file.read_text(encoding="utf-8")).body
    for line in [*body, *(line for block in body if isinstance(block, ast.If)
                          for line in block.body)]:
        if isinstance(line, ast.FunctionDef | ast.ClassDef):
            known[line.name] = line
        elif isinstance(line, ast.ImportFrom):
            known |= {alias.asname or alias.name: line for alias in line.names}
        elif isinstance(line, ast.Assign | ast.AnnAssign) and line.value is not None:
            targets = line.targets if isinstance(line, ast.Assign) else [line.target]
            known |= {target.id: line.value for target in targets if isinstance(target, ast.Name)}
    return known


def _found(module: str, name: str) -> tuple[str, ast.AST | None]:
    """Return what a name of a module stands for, and the module in which that stands."""
    node = _names(module).get(name)
    if not isinstance(node, ast.ImportFrom):
        return module, node
    original = next(alias.name for alias in node.names if name in (alias.asname, alias.name))
    return _found(str(node.module), original)


def _value(module: str, node: ast.AST) -> Any:
    """Return the value of a literal, or of a name that stands for one; None for anything else."""
    if isinstance(node, ast.Name):
        module, of_name = _found(module, node.id)
        return None if of_name is None else _value(module, of_name)
    try:
        return ast.literal_eval(node)
    except ValueError:
        return None


def _kinds(module: str, node: ast.AST) -> Iterator[Any]:
    """Yield the types of what text can give for an annotation, and NoneType where it has None."""
    if isinstance(node, ast.BinOp):
        yield from _kinds(module, node.left)
        yield from _kinds(module, node.right)
    elif isinstance(node, ast.Constant):
        if node.value is None:
            yield NoneType
        elif isinstance(node.value, str):
            yield from _kinds(module, ast.parse(node.value, mode="eval").body)
    elif isinstance(node, ast.Name) and node.id in WORDS:
        yield WORDS[node.id]
    elif isinstance(node, ast.Name):
        at, alias = _found(module, node.id)
        if alias is not None:
            yield from _kinds(at, alias)
    elif isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
        inner = node.slice
        if node.value.id == "Literal":
            yield Literal[ast.literal_eval(inner)]
        elif node.value.id in SEVERAL:
            first = inner.elts[0] if isinstance(inner, ast.Tuple) else inner
            kind = _joined(_kinds(module, first))
            if kind is not None:
                yield tuple[kind, ...]  # type: ignore[valid-type]


def _joined(kinds: Iterable[Any]) -> Any:
    """Return the one type of several that text is read as; None for none.

    Several values rather than one, and a Path rather than any text.
    """
    left = [kind for kind in kinds if kind is not NoneType]
    several = [kind for kind in left if kind not in WORDS.values() and "tuple" in str(kind)]
    for kind in (*several, *(kind for kind in left if kind not in WORDS.values()),
                 *(kind for kind in (Path, float, int, bool, str) if kind in left)):
        return kind
    return None


__all__ = ["REQUIRED", "Described", "Option", "described", "options_of"]
