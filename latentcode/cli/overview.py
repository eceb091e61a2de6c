"""`latentcode --help`: every command by its question, on one screen."""

from __future__ import annotations

from collections.abc import Mapping

from latentcode.cli.asking import Verb

HEADINGS: dict[str, str] = {
    "train": "Train a model, and read its codes",
    "decode": "Ask what codes tell and cause, in a run or, with --prompts, in a language model",
    "show": "Look, and share",
    "sweep": "Many steps at once"}
"""What stands above a command and those that follow it."""


def overview(
    commands: Mapping[str, type | Verb], own: Mapping[str, type | Verb] | None = None
) -> str:
    """Return the text of `latentcode --help`.

    own  commands of probes that were registered by files of the user's
    """
    own = own or {}
    width = max(map(len, (*commands, *own))) + 2
    lines = [
        "usage: latentcode COMMAND ...", "",
        "Train transformers, read latent codes of their attention, see what they tell and cause.",
        "Start with:  latentcode show sraven-hyla   (a model that comes with the library)",
        "             latentcode train logic --preset smoke --out runs/first",
        "             latentcode decode runs/first --out results/first"]
    for name, command in commands.items():
        if name in HEADINGS:
            lines += ["", HEADINGS[name]]
        lines.append(f"  {name:{width}}{summary(command)}")
    if own:
        lines += ["", "Ask what probes of your own say"]
        lines += [f"  {name:{width}}{summary(command)}" for name, command in own.items()]
    return "\n".join([
        *lines, "",
        "latentcode COMMAND --help           the options of a command, with an example",
        "latentcode COMMAND --import FILE    first import your file: tasks, patches, probes",
        "latentcode --version                which version this is"])


def summary(command: type | Verb) -> str:
    """Return the first line of what a command says of itself: mostly its question."""
    about = command.about if isinstance(command, Verb) else str(command.__doc__)
    return about.partition("\n")[0]


__all__ = ["overview", "summary"]
