"""What does an older card of the zoo not say yet? Measures entries again and rewrites their cards.

    python -m latentcode.experiments.zoo.cards sraven-hyla sraven-softmax

Whatever the library measures today is on the card afterwards; weights, codes and results stay.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import tyro

from latentcode.experiments.zoo.entries import measured
from latentcode.files.storage import check_checksum, checksums, write_text
from latentcode.runs import Run
from latentcode.runs.named import folder_of
from latentcode.tasks import make_task
from latentcode.zoo.card import README, Card


@dataclass(frozen=True)
class Renew:
    """Measure entries of the zoo again and rewrite their cards."""

    names: tyro.conf.Positional[tuple[str, ...]]
    """Models of the zoo, or the folders of entries."""

    def run(self) -> None:
        for name in self.names:
            print(f"wrote {renew(folder_of(name))}")


def renew(entry: Path) -> Path:
    """Rewrite the card of an entry and its page, and return the entry.

    `ArtifactError` where another file of the entry is not the one that the card vouches for.
    """
    card, run = Card.read(entry), Run.open(entry)
    for file, recorded in card.files.items():
        if file != README:
            check_checksum(entry / file, recorded)
    metrics = measured(run.load_model(), make_task(run.config.task), card.evaluation)
    card = replace(card, metrics=metrics)
    write_text(entry / README, card.to_markdown())
    replace(card, files={**card.files, **checksums(entry, [README])}).write(entry)
    return entry


if __name__ == "__main__":
    tyro.cli(Renew, prog="python -m latentcode.experiments.zoo.cards").run()
