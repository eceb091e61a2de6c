"""How long is the way of a call through the house? Counted, not guessed.

    python docs/path.py                     the way of lc.decode("sraven-hyla")
    python docs/path.py 'lc.similarity("sraven-hyla", n=256)' [-v]

Counts what of the library runs between the call and its return: functions, the files that they
stand in, their lines, and how many calls of ours stand above each other at most. What is imported
on the way is not counted, nor are comprehensions and lambdas, which stand in functions.
"""

from __future__ import annotations

import inspect
import sys
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import latentcode as lc

CALL = 'lc.decode("sraven-hyla", n_train=256, n_heldout=256)'
ROOT = Path(__file__).resolve().parents[1]


@cache
def is_ours(code: CodeType) -> bool:
    """Tell whether a function of the library has this code."""
    path = Path(code.co_filename)
    return (path.suffix == ".py" and path.resolve().is_relative_to(ROOT)
            and not path.is_relative_to(ROOT / ".venv") and not code.co_name.startswith("<"))


def followed(call: str) -> tuple[set[CodeType], int]:
    """Return the functions of the library that run in a call, and the deepest nesting."""
    seen: set[CodeType] = set()
    depth = deepest = 0

    def follow(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal depth, deepest
        if event in ("call", "return") and is_ours(frame.f_code):
            depth += 1 if event == "call" else -1
            deepest = max(deepest, depth)
            seen.add(frame.f_code)

    eval(call, {"lc": lc})  # what is imported on the way is there from now on
    sys.setprofile(follow)
    try:
        eval(call, {"lc": lc})
    finally:
        sys.setprofile(None)
    return seen, deepest


def main(call: str = CALL) -> None:
    """Print the counts of a call."""
    seen, deepest = followed(call)
    files = {str(Path(code.co_filename).resolve().relative_to(ROOT)) for code in seen}
    lines = sum(len(inspect.getsourcelines(code)[0]) for code in seen)
    print(f"{call}: {len(seen)} functions in {len(files)} files, {lines:,} lines; "
          f"at most {deepest} calls above each other")
    if "-v" in sys.argv:
        print("\n".join(f"  {name}" for name in sorted(files)))


if __name__ == "__main__":
    main(*[word for word in sys.argv[1:] if word != "-v"][:1])
