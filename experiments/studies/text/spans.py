"""A text in which copying pays: documents whose few spans of random words come again and again.

    python -m latentcode.experiments.studies.text.spans FOLDER

writes `FOLDER/documents.jsonl`. Nothing but what a document has shown before says which word comes
next within a span, so that a model that predicts it well copies (as in the repeated random tokens
of Olsson et al., In-context Learning and Induction Heads, 2022).
"""

from __future__ import annotations

import json
import sys
from itertools import islice, product
from pathlib import Path
from random import Random

from latentcode.files.storage import write_text

WORDS = tuple(a + b for a, b in product(
    ("ba", "de", "fi", "go", "hu", "ja", "ke", "li"),
    ("bek", "dal", "fom", "gur", "hin", "jop", "kes", "lat")))
N_DOCUMENTS = 8_000
N_SPANS, LENGTH, N_COPIES = 3, (6, 10), 12
"""Different spans of a document, words of one, and spans that a document has."""


def document(seed: int) -> str:
    """Return the text of a document, the same for the same seed: spans in any order.

    No two spans share a word, so that a word which is not a span's last has one that follows.
    """
    random = Random(seed)
    lengths = [random.randint(*LENGTH) for _ in range(N_SPANS)]
    words = iter(random.sample(WORDS, sum(lengths)))
    spans = [" ".join(islice(words, length)) for length in lengths]
    return " ".join(random.choices(spans, k=N_COPIES))


def write_documents(folder: Path, n: int = N_DOCUMENTS) -> Path:
    """Write n documents as JSONL into a folder, and return it."""
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / "documents.jsonl", "".join(
        json.dumps({"text": document(seed), "name": f"{seed}"}) + "\n" for seed in range(n)))
    return folder


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m latentcode.experiments.studies.text.spans FOLDER")
    write_documents(Path(sys.argv[1]))
