"""How long is the way of a call through the house? Counted, not guessed.

    python docs/path.py                     the way of lc.decode("sraven-hyla")
    python docs/path.py 'lc.similarity("sraven-hyla", n=256)'

Counts what of the library runs between the call and its return: functions, the files that they
stand in, their lines, and how many calls of ours stand above each other at most. What is imported
on the way is not counted, nor are comprehensions and lambdas, which stand in functions.
"""

from __future__ import annotations

import inspect
import sys
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

CALL = 'lc.decode("sraven-hyla", n_train=256, n_heldout=256)'
ROOT = Path(__file__).resolve().parents[1]


def followed(call: str) -> tuple[Counter[CodeType], int]:
    """Return how often each function of the library ran in a call, and the deepest nesting."""
    import latentcode as lc

    ours: dict[CodeType, bool] = {}
    seen: Counter[CodeType] = Counter()
    depth = deepest = 0

    def is_ours(code: CodeType) -> bool:
        if code not in ours:
            path = Path(code.co_filename)
            ours[code] = (path.suffix == ".py" and path.resolve().is_relative_to(ROOT)
                          and not path.is_relative_to(ROOT / ".venv")
                          and not code.co_name.startswith("<"))
        return ours[code]

    def follow(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal depth, deepest
        if event in ("call", "return") and is_ours(frame.f_code):
            depth += 1 if event == "call" else -1
            deepest = max(deepest, depth)
            seen[frame.f_code] += event == "call"

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
    files = {code.co_filename for code in seen}
    lines = sum(len(inspect.getsourcelines(code)[0]) for code in seen)
    print(f"{call}: {len(seen)} functions in {len(files)} files, {lines:,} lines; "
          f"at most {deepest} calls above each other")
    if "-v" in sys.argv:
        for name in sorted(str(Path(file).resolve().relative_to(ROOT)) for file in files):
            print(f"  {name}")


if __name__ == "__main__":
    main(*[word for word in sys.argv[1:] if word != "-v"][:1])
