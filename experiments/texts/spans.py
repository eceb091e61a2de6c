"""A text in which copying pays: documents whose few spans of random words come again and again.

    latentcode zoo text spans FOLDER

writes `FOLDER/documents.jsonl`. Nothing but what a document has shown before says which word comes
next within a span, so that a model that predicts it well copies (as in the repeated random tokens
of Olsson et al., In-context Learning and Induction Heads, 2022).
"""

from __future__ import annotations

import json
from itertools import islice, product
from pathlib import Path
from random import Random

from latentcode.files.storage import replace_folder, write_text

WORDS = tuple(a + b for a, b in product(
    ("ba", "de", "fi", "go", "hu", "ja", "ke", "li"),
    ("bek", "dal", "fom", "gur", "hin", "jop", "kes", "lat")))
DOCUMENTS = "documents.jsonl"
N_DOCUMENTS = 8_000
N_SPANS, LENGTH, N_COPIES = 2, (6, 10), 12
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


def write_spans(out: str | Path, n: int = N_DOCUMENTS, *, overwrite: bool = False) -> None:
    """Write n documents as JSONL into a folder; the same on every machine.

    overwrite  replace a folder that was written so before

    `RunError` where `out` is occupied.
    """
    with replace_folder(Path(out), overwrite=overwrite, marker=DOCUMENTS) as folder:
        write_text(folder / DOCUMENTS, "".join(
            json.dumps({"text": document(seed), "name": f"{seed}"}) + "\n" for seed in range(n)))
