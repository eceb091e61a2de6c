"""`latentcode push`: share a run or codes on the Hugging Face hub."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import tyro

from latentcode.cli.parsing import default_is


@dataclass(frozen=True, kw_only=True)
class Push:
    """Share a run or codes on the Hugging Face hub.

    Example: latentcode push runs/hyla user/hyla --private

    A run is shared without what training would need to go on, and with its results; whoever may
    read it opens hf://user/hyla, with every command that takes a run. Codes are shared as a data
    set. It needs a token that may write: hf auth login, or HF_TOKEN.
    """

    path: tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="FOLDER")]]
    """A run folder, a model of the zoo such as sraven-hyla, or codes."""
    repo: tyro.conf.Positional[str]
    """The repository, user/name; made if it does not exist."""
    private: bool = False
    """Make a new repository that only you can read."""
    license: Annotated[str | None, default_is("none is named")] = None
    """License that its page names, such as mit."""
    message: Annotated[str | None, default_is("what is pushed")] = None
    """Message of the commit."""

    def run(self) -> None:
        from latentcode.codes import LatentCodes
        from latentcode.runs.run import folder_of, load_run

        folder = folder_of(self.path)
        shared = (LatentCodes.load(folder) if (folder / "codes.safetensors").is_file()
                  else load_run(folder))
        address = shared.push_to_hub(self.repo, private=self.private, license=self.license,
                                     commit_message=self.message)
        print(f"pushed {address}")
