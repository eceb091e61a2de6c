"""Do the tests catch a bug? One-line bugs of the library, drawn by seed, and what sees each.

    python tests/mutations.py draw                           # writes tests/mutations.csv
    python tests/mutations.py run --out tests/mutations_before.csv
    python tests/mutations.py compare tests/mutations_before.csv after.csv
"""

from __future__ import annotations

import argparse
import ast
import csv
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "helpers"))

from reaching import Graph, library_files

ROOT = Path(__file__).resolve().parents[1]
LIST = ROOT / "tests" / "mutations.csv"
ROOMS = ("models", "probes", "app", "experiments", "what is asked", "the rest")
ASKED = ("tasks/", "codes/", "prompts/", "subjects/", "answers.py", "metrics.py")
SWAPS: dict[type[ast.AST], tuple[str, str]] = {
    ast.Eq: ("==", "!="), ast.NotEq: ("!=", "=="), ast.Lt: ("<", ">="), ast.GtE: (">=", "<"),
    ast.Gt: (">", "<="), ast.LtE: ("<=", ">"), ast.Is: ("is", "is not"), ast.In: ("in", "not in"),
    ast.IsNot: (r"is\s+not", "is"), ast.NotIn: (r"not\s+in", "in"), ast.Add: (r"\+", "-"),
    ast.Sub: ("-", "+"), ast.Mult: (r"\*", "/"), ast.Div: ("/", "*"), ast.And: ("and", "or"),
    ast.Or: ("or", "and")}
Place = tuple[int, int]
FIELDS = ("number", "room", "file", "line", "kind", "result", "test", "seconds")


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


def compiles(mutation: dict[str, str]) -> bool:
    """Return whether the file compiles, and to something else than before."""
    lines = (ROOT / mutation["file"]).read_text(encoding="utf-8").split("\n")
    known, row = ast.dump(ast.parse("\n".join(lines))), int(mutation["line"]) - 1
    lines[row] = lines[row].replace(mutation["before"], mutation["after"])
    try:
        return ast.dump(ast.parse("\n".join(lines))) != known
    except SyntaxError:
        return False


def draw(each: int = 10) -> None:
    """Write the list: `each` a room, uniformly over the places that may change, one a line."""
    every = [found for file in library_files(ROOT) for found in mutations(file)]
    random.Random(0).shuffle(every)
    chosen: dict[str, dict[tuple[str, str], dict[str, str]]] = {name: {} for name in ROOMS}
    for found in every:
        drawn, line = chosen[found["room"]], (found["file"], found["line"])
        if len(drawn) < each and line not in drawn and compiles(found):
            drawn[line] = found
    with LIST.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(every[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(row for drawn in chosen.values() for row in drawn.values())


def rows(path: Path) -> list[dict[str, str]]:
    """Return the rows of a table."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


class Copy:
    """A copy of the commit that is checked out, in which one line is changed at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.broken = folder, set[str]()
        subprocess.run(["git", "clone", "-q", str(ROOT), str(folder / "copy")], check=True)
        self.at = folder / "copy"
        self.graph = Graph(self.at)

    def place(self, mutation: dict[str, str]) -> tuple[Path, int] | None:
        """Return where the line is now: in its file, or the only one like it in the library."""
        for files in ([mutation["file"]], library_files(self.at)):
            found = [(self.at / file, row) for file in files if (self.at / file).exists()
                     for row, line in enumerate((self.at / file).read_text("utf-8").split("\n"))
                     if line.strip() == mutation["before"]]
            if len(found) == 1:
                return found[0]
        return None

    def pytest(self, what: list[str], limit: float) -> str | None:
        """Return the first test that fails, "" if none does, None if the time ends first."""
        ignored = [f"--deselect={test}" if "::" in test else f"--ignore={test}"
                   for test in self.broken]
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-n0", "-m", "not slow", "--tb=no",
                   "-p", "no:cacheprovider", f"--basetemp={self.folder / 'tmp'}", *ignored, *what]
        with tempfile.TemporaryFile("w+", encoding="utf-8") as said:
            process = subprocess.Popen(
                command, cwd=self.at, stdout=said, stderr=subprocess.STDOUT, start_new_session=True,
                stdin=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": str(self.at)})
            try:
                ended = process.wait(max(limit, 1))
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                return None
            said.seek(0)
            failed = re.search(r"^(?:FAILED|ERROR) (.*?)(?: - .*)?$", said.read(), re.MULTILINE)
        return "" if ended in (0, 5) else failed[1] if failed else f"pytest ended with {ended}"

    def verdict(self, mutation: dict[str, str], limit: float) -> tuple[str, str]:
        """Return (result, test): the line is changed, what reaches it is run, nearest first."""
        place = self.place(mutation)
        if place is None:
            return "gone", ""
        path, row = place
        tests = self.graph.reaching(path.relative_to(self.at).as_posix())
        source, until, size = path.read_text("utf-8"), time.monotonic() + limit, 6
        lines = source.split("\n")
        lines[row] = lines[row].replace(mutation["before"], mutation["after"])
        while tests:
            path.write_text("\n".join(lines), "utf-8")
            failed = self.pytest(tests[:size], until - time.monotonic())
            path.write_text(source, "utf-8")
            if failed is None:
                return f"survived within {limit:.0f} s", ""
            if failed and ("pytest ended" in failed or self.pytest([failed], limit) == ""):
                return "caught", failed
            if failed:
                self.broken.add(failed)  # without the mutation, too
            else:
                tests, size = tests[size:], 2 * size
        return "survived", ""


def run(out: Path, only: set[int], jobs: int, limit: float) -> None:
    """Write the result of each mutation that `out` does not have yet."""
    known = {int(row["number"]) for row in rows(out)} if out.exists() else set()
    left = [(number, row) for number, row in enumerate(rows(LIST), 1)
            if number not in known and (not only or number in only)]
    if not out.exists():
        out.write_text(",".join(FIELDS) + "\n", "utf-8")
    lock = threading.Lock()

    def work(folder: Path) -> None:
        copy = Copy(folder)
        while True:
            with lock:
                if not left:
                    return
                number, mutation = left.pop(0)
            begun = time.monotonic()
            result, test = copy.verdict(mutation, limit)
            row = {"number": number, **mutation, "result": result, "test": test,
                   "seconds": round(time.monotonic() - begun)}
            with lock, out.open("a", encoding="utf-8", newline="") as file:
                csv.writer(file, lineterminator="\n").writerow([row[name] for name in FIELDS])
            print(number, mutation["file"], mutation["line"], result, test, flush=True)

    with tempfile.TemporaryDirectory() as scratch:
        workers = []
        for job in range(jobs):
            (Path(scratch) / str(job)).mkdir()
            workers.append(threading.Thread(target=work, args=[Path(scratch) / str(job)]))
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()


def compare(before: Path, after: Path) -> int:
    """Print every mutation that was caught, is still there and is not caught now."""
    now = {row["number"]: row for row in rows(after)}
    lost = 0
    for row in rows(before):
        result = now.get(row["number"], {}).get("result", "not run")
        if row["result"] == "caught" and result not in ("caught", "gone"):
            lost += 1
            print(row["number"], row["file"], row["line"], row["test"], "->", result)
    return int(lost > 0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("draw")
    running = commands.add_parser("run")
    running.add_argument("--out", type=Path, required=True)
    running.add_argument("--only", default="", help="numbers of mutations: 1,2")
    running.add_argument("--jobs", type=int, default=1)
    running.add_argument("--limit", type=float, default=240, help="seconds a mutation")
    comparing = commands.add_parser("compare")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    asked = parser.parse_args()
    if asked.command == "draw":
        draw()
    elif asked.command == "run":
        run(asked.out, {int(number) for number in asked.only.split(",") if number}, asked.jobs,
            asked.limit)
    else:
        sys.exit(compare(asked.before, asked.after))
