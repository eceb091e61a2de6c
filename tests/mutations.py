"""Do the tests catch a bug? One-line bugs of the library, drawn by seed, and what sees each.

    python tests/mutations.py draw      # anew, in tests/mutations.csv, where code is gone
    python tests/mutations.py run --out tests/mutations_caught.csv
"""

from __future__ import annotations

import argparse
import ast
import csv
import os
import random
import re
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from queue import SimpleQueue
from resource import RLIMIT_CPU, setrlimit
from signal import SIGKILL

sys.path.insert(0, str(Path(__file__).parent / "helpers"))

from reaching import Graph, library_files

ROOT = Path(__file__).resolve().parents[1]
LIST = ROOT / "tests" / "mutations.csv"
ROOMS = ("models", "probes", "app", "experiments", "what is asked", "the rest")
ASKED = ("tasks/", "codes/", "prompts/", "subjects/", "metrics.py")
SWAPS: dict[type[ast.AST], tuple[str, str]] = {
    ast.Eq: ("==", "!="), ast.NotEq: ("!=", "=="), ast.Lt: ("<", ">="), ast.GtE: (">=", "<"),
    ast.Gt: (">", "<="), ast.LtE: ("<=", ">"), ast.Is: ("is", "is not"), ast.In: ("in", "not in"),
    ast.IsNot: (r"is\s+not", "is"), ast.NotIn: (r"not\s+in", "in"), ast.Add: (r"\+", "-"),
    ast.Sub: ("-", "+"), ast.Mult: (r"\*", "/"), ast.Div: ("/", "*"), ast.And: ("and", "or"),
    ast.Or: ("or", "and")}
Place = tuple[int, int]
FIELDS = ("number", "room", "file", "line", "kind", "result", "test")


def room(file: str) -> str:
    """Return the room of a file of the library."""
    top, _, rest = file.partition("/")
    return top if top != "latentcode" else ROOMS[4 if rest.startswith(ASKED) else 5]


def code(node: ast.AST) -> Iterator[ast.AST]:
    """Return the nodes that run: no annotations, no `__all__`, nothing for type checkers alone."""
    yield node
    if isinstance(node, ast.Assign) and "__all__" in ast.unparse(node.targets[0]):
        return
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns"):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test) \
                and name != "orelse":
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from code(child)


def sites(tree: ast.AST) -> Iterator[tuple[str, Place, Place, str, str]]:
    """Return (kind, start, end, pattern, replacement): what is replaced lies in start:end."""
    def start(node: ast.expr) -> Place:
        return node.lineno, node.col_offset

    def end(node: ast.expr) -> Place:
        return node.end_lineno or 0, node.end_col_offset or 0

    whole = r"(?s)^.*$"
    for node in code(tree):
        if isinstance(node, ast.Compare):
            right = start(node.comparators[0])
            yield "comparison", end(node.left), right, *SWAPS[type(node.ops[0])]
        elif isinstance(node, ast.BinOp) and type(node.op) in SWAPS:
            yield "arithmetic", end(node.left), start(node.right), *SWAPS[type(node.op)]
        elif isinstance(node, ast.BoolOp):
            yield "and or", end(node.values[0]), start(node.values[1]), *SWAPS[type(node.op)]
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            yield "not", start(node), start(node.operand), r"not\s*", ""
        elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
            yield "truth", start(node), end(node), whole, str(not node.value)
        elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
            yield "number", start(node), end(node), whole, repr(node.value + 1)
        elif isinstance(node, ast.Return) and node.value and ast.unparse(node.value) != "None":
            yield "returned", start(node.value), end(node.value), whole, "None"
        elif isinstance(node, ast.If) and "TYPE_CHECKING" not in ast.unparse(node.test):
            yield "condition", start(node.test), end(node.test), whole, r"not (\g<0>)"


def mutations(file: str) -> list[dict[str, str]]:
    """Return what may be changed in a file: in one line, whose text is there once."""
    source = (ROOT / file).read_text(encoding="utf-8")
    lines, found = source.split("\n"), []
    texts = Counter(line.strip() for line in lines)
    for kind, (row, left), (last, right), pattern, replacement in sites(ast.parse(source)):
        line = lines[row - 1].encode()  # columns of ast count bytes
        if row == last and texts[lines[row - 1].strip()] == 1:
            middle = re.sub(pattern, replacement, line[left:right].decode(), count=1)
            after = line[:left].decode() + middle + line[right:].decode()
            found.append({"room": room(file), "file": file, "line": str(row), "kind": kind,
                          "before": lines[row - 1].strip(), "after": after.strip()})
    return found


def changed(source: str, row: int, mutation: dict[str, str]) -> str:
    """Return a file with another line in the place of the one that is there."""
    lines = source.split("\n")
    lines[row] = lines[row].replace(mutation["before"], mutation["after"])
    return "\n".join(lines)


def compiles(mutation: dict[str, str]) -> bool:
    """Return whether the file compiles, and to something else than before."""
    source = (ROOT / mutation["file"]).read_text(encoding="utf-8")
    try:
        tree = ast.parse(changed(source, int(mutation["line"]) - 1, mutation))
    except SyntaxError:
        return False
    return ast.dump(tree) != ast.dump(ast.parse(source))


def draw(each: int = 10) -> None:
    """Write the list: `each` a room, uniformly over the places that may change, one a line.

    Mutations of the list whose line is still there stay; others are drawn in their place.
    """
    every = [found for file in library_files(ROOT) for found in mutations(file)]
    random.Random(0).shuffle(every)
    listed = {key(row) for row in rows(LIST)}
    every.sort(key=lambda found: key(found) not in listed)  # stable: the rest stays shuffled
    chosen: dict[str, dict[tuple[str, str], dict[str, str]]] = {name: {} for name in ROOMS}
    for found in every:
        drawn, line = chosen[found["room"]], (found["file"], found["line"])
        if len(drawn) < each and line not in drawn and compiles(found):
            drawn[line] = found
    write(LIST, [*every[0]], [row for drawn in chosen.values() for row in drawn.values()])


def key(mutation: dict[str, str]) -> tuple[str, str, str]:
    """Return what tells a mutation from others while lines move: its file and texts."""
    return mutation["file"], mutation["before"], mutation["after"]


def rows(path: Path | None) -> list[dict[str, str]]:
    """Return the rows of a table; none if there is no file yet."""
    if path is None or not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def write(path: Path, columns: Sequence[str], table: list[dict[str, str]]) -> None:
    """Write a table, with a line that names its columns."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(table)


class Copy:
    """A copy of the commit that is checked out, in which one line is changed at a time."""

    def __init__(self, folder: Path, broken: set[str]) -> None:
        self.at, self.temporary, self.broken = folder / "copy", folder / "tmp", broken
        subprocess.run(["git", "clone", "-q", str(ROOT), str(self.at)], check=True)
        self.graph = Graph(self.at)

    def place(self, mutation: dict[str, str]) -> tuple[str, int] | None:
        """Return where the line is now: in its file, or the only one like it in the library."""
        for files in ([mutation["file"]], library_files(self.at)):
            found = [(file, row) for file in files if (self.at / file).exists()
                     for row, line in enumerate((self.at / file).read_text("utf-8").split("\n"))
                     if line.strip() == mutation["before"]]
            if len(found) == 1:
                return found[0]
        return None

    def pytest(self, what: list[str], limit: float, *options: str) -> tuple[str, list[str], float]:
        """Return how pytest ended, the tests that failed or else the last one, seconds used.

        Seconds are those of the processor: on a busy machine, others cost no time.
        """
        ignored = [f"--deselect={test}" if "::" in test else f"--ignore={test}"
                   for test in self.broken]
        command = [sys.executable, "-m", "pytest", "-v", "-n0", "-m", "not slow", "--tb=no",
                   "-p", "no:cacheprovider", f"--basetemp={self.temporary}",
                   *options, *ignored, *what]
        seconds = max(round(limit), 1)
        with tempfile.TemporaryFile("w+", encoding="utf-8") as said:
            process = subprocess.Popen(
                command, cwd=self.at, stdin=subprocess.DEVNULL, stdout=said, stderr=said,
                env={**os.environ, "PYTHONPATH": str(self.at)}, start_new_session=True,
                preexec_fn=lambda: setrlimit(RLIMIT_CPU, (seconds, seconds)))
            waited = threading.Timer(20 * seconds, lambda: os.killpg(process.pid, SIGKILL))
            waited.start()
            _, status, used = os.wait4(process.pid, 0)
            waited.cancel()
            process.returncode = os.waitstatus_to_exitcode(status)
            said.seek(0)
            words = said.read()
        spent = used.ru_utime + used.ru_stime
        if process.returncode in (0, 5):  # 5: there are none, or all are slow
            return "passed", [], spent
        if process.returncode < 0:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, SIGKILL)  # what it has started
            begun = re.findall(r"^(tests/.+?::.+?) *(?:[A-Z]{4}.*)?$", words, re.MULTILINE)
            return "stopped", begun[-1:], spent
        failed = re.findall(r"^(?:FAILED|ERROR) (.*?)(?: - .*)?$", words, re.MULTILINE)
        return "failed", failed or [f"pytest ended with {process.returncode}"], spent

    def verdict(self, mutation: dict[str, str], first: str, limit: float) -> tuple[str, str]:
        """Return (result, test): the line is changed, what reaches it is run, nearest first.

        The test `first`, which is known to catch it, stands before these if it is still there.
        """
        place = self.place(mutation)
        if place is None:
            return "gone", ""
        (file, row), source = place, (self.at / place[0]).read_text("utf-8")
        reaching, left = self.graph.reaching(file, row + 1), limit
        parts = [reaching[begin:end] for begin, end in pairwise((0, 6, 18, 42, 90, 999))]
        (self.at / file).write_text(changed(source, row, mutation), "utf-8")
        try:
            if (self.at / first.partition("::")[0]).is_file() \
                    and self.pytest([first], limit, "-x")[1] == [first]:
                return "caught", first
            for part in filter(None, parts):
                result, tests, spent = self.pytest(part, left, "-x")
                left -= spent
                if result == "failed":
                    return "caught", tests[0]
                if result == "stopped":
                    return f"survived within {limit:.0f} s", "".join(tests)
            return "survived", ""
        finally:
            (self.at / file).write_text(source, "utf-8")


def run(out: Path, only: set[int], jobs: int, limit: float, first: Path | None) -> None:
    """Write the result of each mutation that `out` does not have yet; `first` is one of before."""
    catching = {row["number"]: row["test"] for row in rows(first)}
    every = [{"number": str(number), **row} for number, row in enumerate(rows(LIST), 1)
             if not only or number in only]
    lock, copies, broken = threading.Lock(), SimpleQueue[Copy](), set[str]()

    def judge(mutation: dict[str, str]) -> None:
        copy = copies.get()
        result, test = copy.verdict(mutation, catching.get(mutation["number"], ""), limit)
        copies.put(copy)
        with lock:
            write(out, FIELDS, [*rows(out), {**mutation, "result": result, "test": test}])
        print(mutation["number"], mutation["file"], mutation["line"], result, test, flush=True)

    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(jobs) as pool:
        for job in range(jobs):
            copies.put(Copy(Path(scratch, str(job)), broken))
        while True:
            known = {row["number"] for row in rows(out)}
            list(pool.map(judge, [row for row in every if row["number"] not in known]))
            caught = sorted({row["test"] for row in rows(out) if row["test"].startswith("tests/")
                             and row["result"] == "caught"})
            copy = copies.get()  # those that fail without a mutation have caught nothing
            failed = copy.pytest(caught, 3600)[1] if caught else []
            copies.put(copy)
            if not failed:
                return
            print("fail without a mutation:", *failed)
            broken.update(failed)
            write(out, FIELDS, [row for row in rows(out) if row["test"] not in broken])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("draw")
    running = commands.add_parser("run")
    running.add_argument("--out", type=Path, required=True)
    running.add_argument("--only", default="", help="numbers of mutations: 1,2")
    running.add_argument("--jobs", type=int, default=1)
    running.add_argument("--limit", type=float, default=40, help="seconds a mutation")
    running.add_argument("--first", type=Path, help="results of before: their tests go first")
    asked = parser.parse_args()
    if asked.command == "draw":
        draw()
    else:
        run(asked.out, {int(number) for number in asked.only.split(",") if number}, asked.jobs,
            asked.limit, asked.first)
