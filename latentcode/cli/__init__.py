"""The command line: `latentcode train | extract | decode | ...`.

A command is a function; tyro makes its options from the arguments. The one that is asked for is
imported, so that `latentcode --help` is there at once.
"""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from importlib import import_module
from io import TextIOWrapper
from typing import Any, NoReturn

from latentcode.errors import ConfigError, LatentCodeError, check, is_out_of_memory
from latentcode.registry import probes_of_one_function

SIGPIPE = 141
"""Exit status of a command whose reader has gone, as of one that the signal ended."""
COMMANDS: dict[str, tuple[str, str]] = {
    "train": ("latentcode.cli.train.Train", "Train a transformer on a task."),
    "extract": ("latentcode.subjects.resolving.extract",
                "Run a model over problems, and keep the codes a[:, q, k] of named pairs."),
    "decode": ("latentcode.probes.decoding.decode",
               "Decode labels from the codes of a model, on held-out combinations."),
    "project": ("latentcode.probes.projection.project", "Map codes to two dimensions, and measure "
                "whether those of one label lie together."),
    "knn-purity": ("latentcode.probes.knn_purity.knn_purity",
                   "Measure which label the nearest neighbours among codes share."),
    "similarity": ("latentcode.probes.similarity.similarity", "Compare the mean codes of a label's "
                   "values, and count the heads that a code uses."),
    "topography": ("latentcode.probes.topography.topography", "Correlate distances of codes with "
                   "distances of tasks, and with generalisation."),
    "align": ("latentcode.probes.alignment.align",
              "Compare the codes of models, up to a permutation of heads or a rotation."),
    "value-networks": ("latentcode.probes.value_networks.value_networks",
                       "Compare the value networks that mean codes generate."),
    "heads": ("latentcode.probes.heads.heads",
              "Measure what heads attend to, what they cause, and which of them act together."),
    "intervene": ("latentcode.probes.interventions.intervene",
                  "Measure what the codes of a model cause, on held-out combinations."),
    "attribute": ("latentcode.probes.attribution.attribute",
                  "Attribute the source's answer to codes, values and other activations."),
    "das": ("latentcode.probes.das.das",
            "Find a subspace whose interchange brings the source's operation alone."),
    **{name.replace("_", "-"): (f"{module}.{name}", question)
       for name, (module, question) in probes_of_one_function().items()},
    "generate": ("latentcode.cli.commands.generate",
                 "Generate text with a model, and without some of its heads."),
    "show": ("latentcode.cli.commands.show", "Show what a folder holds."),
    "explore": ("latentcode.cli.commands.explore", "Browse codes and results in the web browser."),
    "zoo": ("latentcode.cli.commands.ZOO",
            "List the models of the library, check a language model, write texts."),
    "push": ("latentcode.cli.commands.push", "Share a run or codes on the Hugging Face hub."),
    "sweep": ("latentcode.cli.commands.sweep", "Train a grid of models, and write one table."),
    "reproduce": ("latentcode.cli.commands.reproduce",
                  "Do the figures and tables of the paper hold? Train, measure, judge, draw them.")}
"""Every command: where it lies, and its summary, the first line of its docstring."""
HEADINGS: dict[str, str] = {
    "train": "Train a model, and read its codes",
    "decode": "Ask what codes tell and cause, in a run or, with --prompts, in a language model",
    "show": "Look, and share",
    "sweep": "Many models at once"}
"""What stands above a command and those that follow it in `latentcode --help`."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; an error that a user can act on is one line and exit status 2."""
    open_streams()
    try:
        try:
            command_of(take_imports(sys.argv[1:] if arguments is None else arguments))()
        finally:
            flush()
    except LatentCodeError as error:
        _stop(2, f"error: {error}", error)
    except BrokenPipeError:
        raise SystemExit(SIGPIPE) from None
    except (MemoryError, OSError, RuntimeError) as error:
        message = of_this_machine(error)
        if message is None:
            raise  # a mistake of ours, whose traceback says where
        _stop(2, f"error: {message}", error)
    except KeyboardInterrupt as interruption:
        # Where an interruption has a message, training has shown it already.
        _stop(130, "" if interruption.args else "interrupted", interruption)


def take_imports(arguments: Sequence[str]) -> list[str]:
    """Import what every `--import FILE` names, before anything else is read; return the rest."""
    from latentcode.registry import import_file

    rest: list[str] = []
    words = iter(arguments)
    for word in words:
        flag, equals, name = word.partition("=")
        if flag != "--import":
            rest.append(word)
            continue
        name = name if equals else next(words, "")
        check(bool(name) and not name.startswith("-"), "--import names nothing; expected a file "
              "such as my_tasks.py, or a module", ConfigError)
        import_file(name)
    return rest


def command_of(arguments: Sequence[str]) -> Callable[[], None]:
    """Return the call that the arguments ask for; `SystemExit` where they ask for help."""
    name, words = next(iter(arguments), ""), arguments[1:]
    registered = registered_questions()
    if name == "help" and words:
        name, words = words[0], ["--help"]
    if name in ("-h", "--help", "help", ""):
        print(overview(registered))
        raise SystemExit(0 if name else 2)
    if name in ("-V", "--version"):
        from latentcode import __version__

        print(f"latentcode {__version__}")
        raise SystemExit(0)
    name = name.replace("_", "-")
    if name not in COMMANDS and name not in registered:
        raise ConfigError(_unknown(name, registered))
    from latentcode.cli.options import command_of_function, parse

    prog = f"latentcode {name}"
    if name == "train":  # whose flags depend on its words
        from latentcode.cli.train import train_with_defaults

        train, default = train_with_defaults(arguments)
        return parse(train, words, prog, default).run
    module, _, called = COMMANDS.get(name, ("",))[0].rpartition(".")
    command: Any = registered[name] if name in registered else getattr(
        import_module(module), called)
    if isinstance(command, Mapping):
        return parse({part: command_of_function(function) for part, function in command.items()},
                     words, prog, summary=COMMANDS[name][1])
    if module == "latentcode.cli.commands":
        return parse(command_of_function(command), words, prog)
    from latentcode.cli.questions import question

    return parse(question(command), words, prog)


def registered_questions() -> dict[str, Callable[..., Any]]:
    """Return the questions that files of the user's registered, by the names of their commands."""
    module = sys.modules.get("latentcode.probes.registered")
    if module is None:  # which whoever registers a probe imports, and which takes seconds
        return {}
    questions = {}
    for name, registered in module.PROBES.items():
        command = name.replace("_", "-")
        if registered.question.__module__ == COMMANDS.get(command, ("",))[0].rpartition(".")[0]:
            continue  # of the library
        check(command not in COMMANDS, f"probe {name!r} of {module.PROBES.file(name)} has the "
              "name of a command of latentcode; expected another one", ConfigError)
        questions[command] = registered.question
    return questions


def overview(registered: Mapping[str, Callable[..., Any]]) -> str:
    """Return the text of `latentcode --help`: every command by its summary, on one screen."""
    width = max(map(len, (*COMMANDS, *registered))) + 2
    lines = [
        "usage: latentcode COMMAND ...", "",
        "Train transformers, read latent codes of their attention, see what they tell and cause.",
        "Start with:  latentcode show sraven-hyla   (a model that comes with the library)",
        "             latentcode train logic --preset smoke --out runs/first",
        "             latentcode decode runs/first --out results/first"]
    for name, (_, summary) in COMMANDS.items():
        if name in HEADINGS:
            lines += ["", HEADINGS[name]]
        lines.append(f"  {name:{width}}{summary}")
    if registered:
        lines += ["", "Ask what probes of your own say"]
        lines += [f"  {name:{width}}{str(question.__doc__).partition(chr(10))[0]}"
                  for name, question in registered.items()]
    return "\n".join([
        *lines, "",
        "latentcode COMMAND --help           the options of a command, with an example",
        "latentcode COMMAND --import FILE    first import your file: tasks, patches, probes",
        "latentcode --version                which version this is"])


def _unknown(name: str, registered: Mapping[str, Any]) -> str:
    kind = "option" if name.startswith("-") else "command"
    close = get_close_matches(name, [*COMMANDS, *registered, "--help", "--version"], n=1)
    meant = f"; did you mean {close[0]}?" if close else (
        "" if name.startswith("-") else "; one of a probe of yours needs --import FILE")
    return f"unknown {kind} {name!r}{meant} (latentcode --help lists all)"


def _stop(status: int, line: str, error: BaseException) -> NoReturn:
    """End with one line: what happened, and what was noted of it, such as how to go on."""
    message = "; ".join(filter(None, (line, *getattr(error, "__notes__", ()))))
    if message:
        print(" ".join(message.split()), file=sys.stderr)
    raise SystemExit(status) from None


# What stops a command from outside: memory, disk, permissions, a closed pipe.


def of_this_machine(error: Exception) -> str | None:
    """Return one line about an error of memory or of the operating system; None for others."""
    if is_out_of_memory(error):
        size = re.search(r"(?:tried|unable) to allocate ([\d.]+) (\w+)", str(error), re.I)
        text = ""
        if size:
            number, unit = size.groups()
            text = f" to allocate {number} {unit}"
            if unit.startswith("byte"):
                text = f" to allocate {float(number) / 2**30:.3g} GiB"
        on = "the GPU has" if "CUDA" in str(error) else "this machine has"
        return f"{on} not enough memory{text}; expected fewer instances, or a smaller model"
    if isinstance(error, OSError) and error.errno is not None:
        what = error.strerror or errno.errorcode.get(error.errno, "unknown")
        if error.errno in (errno.EMFILE, errno.ENFILE):
            what += " (ulimit -n says how many may be)"
        file = "" if error.filename is None else f" {os.fsdecode(error.filename)}"
        return f"cannot read or write{file}: {what}"
    return None


def open_streams() -> None:
    """Let what is printed go nowhere where a stream was closed (`>&-`), not into the next file, and
    characters that its encoding does not have be printed as `\\u2227`."""
    for name, descriptor in (("stdin", 0), ("stdout", 1), ("stderr", 2)):
        if getattr(sys, name) is None:
            mode = "r" if name == "stdin" else "w"
            stream = open(os.devnull, mode, encoding="utf-8")  # noqa: SIM115  (until the end)
            if stream.fileno() != descriptor:
                os.dup2(stream.fileno(), descriptor)
            setattr(sys, name, stream)
        elif descriptor and isinstance(getattr(sys, name), TextIOWrapper):
            getattr(sys, name).reconfigure(errors="backslashreplace")


def flush() -> None:
    """Write what was printed; an `OSError` if nobody reads it, or the disk is full."""
    try:
        sys.stdout.flush()
    except OSError:
        # Python would try again at its end, and say so.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise


__all__ = ["COMMANDS", "main"]
