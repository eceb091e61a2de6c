"""What the first page says of a move: in the words of the criteria, and no more than they do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from latentcode.app.words import KINDS

TASKS: Mapping[str, str] = {"sraven": "SRAVEN", "logic": "Fuzzy logic", "text": "Text that copies"}
SITES: Mapping[str, str] = {"code": "codes", "value": "values", "code+value": "codes and values"}
PLACES: Mapping[str, Mapping[str, str]] = {
    "sraven": {"context": "rows 1 and 2, where the rule can be inferred",
               "operands": "the last row's given panels",
               "response": "the last panel, where the answer is read"},
    "logic": {"context": "the examples, where the function can be inferred",
              "response": "the query, which holds the operand, too"},
    "text": {"from where": "codes of the query", "what": "values of all tokens",
             "both": "codes and values of all tokens"}}
"""What each place of a task holds; of text, what is put where."""
OUTCOMES: Mapping[str, Mapping[str, str]] = {
    "sraven": {"base": "It keeps its own answer",
               "operation": "It gives the source's rule on this problem's own operands",
               "operands": "It gives its own rule on the source's operands",
               "answer": "It gives the source's whole answer",
               "else": "It gives none of the four answers"},
    "logic": {"base": "It keeps its own answer",
              "operation": "It gives the source's function of this problem's own input",
              "operands": "It gives its own function of the source's input",
              "answer": "It gives the source's whole answer",
              "else": "It gives none of the four answers"},
    "text": {"base": "It keeps its own answer",
             "operation": "It copies from the source's place what stands there in this text",
             "operands": "It copies from its own place what stands there in the source",
             "answer": "It gives the source's whole answer",
             "else": "It gives none of the four answers"}}
"""Whose answer came, by the classes of `latentcode.answers`."""
CAME: Mapping[str, Mapping[str, str]] = {
    "sraven": {"base": "its own answer", "operation": "source's rule, own operands",
               "operands": "own rule, source's operands", "answer": "source's whole answer",
               "else": "none of these"},
    "logic": {"base": "its own answer", "operation": "source's function, own input",
              "operands": "own function, source's input", "answer": "source's whole answer",
              "else": "none of these"},
    "text": {"base": "its own answer", "operation": "source's place, own text",
             "operands": "own place, source's text", "answer": "source's whole answer",
             "else": "none of these"}}
"""The same in few words."""
ROWS: Mapping[str, Mapping[str, str]] = {
    "sraven": {"source": "as here: another rule, other operands",
               "another problem": "another problem with the source's rule",
               "control operands": "control: other operands alone",
               "control interchange": "control: another rule alone",
               "control unrelated": "control: a problem with a third rule"},
    "logic": {"source": "as here: another function, another input",
              "another problem": "other examples of the source's function",
              "control operands": "control: another input alone",
              "control interchange": "control: another function alone",
              "control unrelated": "control: an unrelated function"},
    "text": {"source": "as here: another place, other tokens",
             "control operands": "control: other tokens alone",
             "control interchange": "control: another place alone",
             "control unrelated": "control: another text"}}
STATEMENTS: Mapping[str, str] = {
    "says where to copy from": "codes of the query say where to copy from",
    "carries what stands there": "values carry the token that is copied",
    "carries the answer": "codes and values of both layers carry the answer"}
"""Statements of text, whose criteria do not name the place."""
VERDICTS: Mapping[str, str] = {
    "met": "criterion met", "not met": "criterion not met", "refuted": "refuted",
    "undecided": "undecided", "exploratory": "exploratory: decides nothing",
    "none": "no criterion was written"}
ABOUT: Mapping[str, str] = {
    "codes": "A code is what the heads score for one query and one key. The codes of a place are "
             "those of its queries over all keys: what they attend to, not what they read there.",
    "values": "Values are what a token offers to every query that attends to it. Those of a place "
              "are its tokens' own."}
"""What is put, for a reader who has not read the paper."""
OPERATION: Mapping[str, str] = {
    "sraven": "rule {operation}, operands {operands}", "logic": "f = {operation}",
    "text": "{operation}"}
"""What a base or a source asks for, below its name."""
NEEDED = 50
"""Problems of text that a model has to know for its run to count."""


def question(move: Mapping[str, Any], kind: str, verdict: str) -> str:
    """Return the sentence of a move: what the criterion says where it is met, else as a question.
    """
    of = f"{KINDS[kind]} attention"
    statement = str(move["statement"])
    said = STATEMENTS.get(statement, statement)
    if move["task"] == "logic":
        what = "the function" if move["brings"] == "operation" else "the query's input"
        said = f"{SITES[move['site']]} at the {move['place']} carry {what}"
    if not said:
        return f"What do {SITES[move['site']]} at the {move['place']} bring in {of}?"
    return f"In {of}, {said}." if verdict == "met" else f"Do {said} in {of}?"


def told(task: str, brings: str, rows: Sequence[Mapping[str, Any]], verdict: str) -> str:
    """Return how often what the move is about comes, and how often after controls."""
    if not rows:
        return (f"No run counts: each answers fewer than {NEEDED} of 400 such problems and their "
                "sources correctly.")
    first, controls = rows[0], [row["shares"][brings] for row in rows
                                if row["name"].startswith("control")]
    what = {"operation": {"sraven": "The source's rule", "logic": "The source's function",
                          "text": "The token at the source's place"},
            "operands": {"sraven": "The answer to the source's operands",
                         "logic": "The answer to the source's input",
                         "text": "The source's token"},
            "answer": dict.fromkeys(TASKS, "The source's whole answer")}[brings][task]
    beyond = f"; with controls, in at most {max(controls):.2f}" if controls else ""
    few = (" Fewer than three runs count." if task == "text" and verdict == "undecided" else "")
    return f"{what} comes in {_range(first, brings)} of problems{beyond}.{few}"


def _range(row: Mapping[str, Any], brings: str) -> str:
    return f"{row['shares'][brings]:.2f} ({row['low']:.2f} to {row['high']:.2f})"


def measured(task: str, state: Mapping[str, Any]) -> str:
    """Return what the stored numbers were measured on."""
    rows = state["rows"]
    if not rows:
        return "There are no stored numbers."
    n = f"{rows[0]['n']:,} problems, {state['runs']} "
    if task == "sraven":
        first, *_, last = state["seeds"]
        return (f"Bars, stored: {n}confirmatory seeds ({first} to {last}), 9,000 updates. In "
                "SRAVEN at the published size codes of the context bring next to nothing.")
    if task == "logic":
        return f"Bars, stored: {n}runs at the published setting."
    return f"Bars, stored: {n}seeds, 6,000 updates."


def here(task: str, model: str, state: Mapping[str, Any]) -> str:
    """Return how the zoo's model, whose answers are shown, compares with the stored runs."""
    one = state["here"]
    if one is None or not state["rows"]:
        return f"{model} knows too few such problems to be counted." if task == "text" else ""
    low, high, share = state["rows"][0]["low"], state["rows"][0]["high"], one["share"]
    among = "one of them" if task != "sraven" else "seed 0, on which places were chosen"
    away = (", more than in any of them" if f"{share:.2f}" > f"{high:.2f}" else
            ", less than in any of them" if f"{share:.2f}" < f"{low:.2f}" else "")
    return f"Mark: {model} ({among}): {share:.2f}{away}."


def refuting(move: Mapping[str, Any], state: Mapping[str, Any]) -> list[str]:
    """Return what would refute the statement of a move, a paragraph each."""
    task, rule, brings = move["task"], move["criterion"], move["brings"]
    if state["verdict"] == "exploratory":
        return ["These runs are exploratory: places and layers had been looked at before, so that "
                "nothing is decided here. Runs of other seeds, with a criterion written before "
                "them, could refute it."]
    if not rule:
        return ["No criterion was written for this move before the runs. What is shown here "
                "decides nothing, and nothing can refute it."]
    against = [ROWS[task][row["name"]].partition(": ")[2] for row in state["rows"]
               if row["name"].startswith("control")]
    listed = " and from ".join([", ".join(against[:-1]), against[-1]] if against[1:] else against)
    what = CAME[task][brings]
    if task == "text":
        found = [f"The criterion is met where “{what}” comes more often than "
                 f"{'from ' + listed if listed else 'from controls'}: in each of "
                 f"{rule['fewest']} seeds, by {rule['least']:.2f} on average. A seed counts if "
                 f"it copies correctly in {rule['instances']} of 400 such problems."]
    else:
        found = [f"The criterion is met where “{what}” comes more often than from {listed}: to sum "
                 f"and from sum, in each of {rule['fewest']} seeds (95 % interval of the paired "
                 f"difference above 0), by {rule['least']:.2f} on average. It is refuted where one "
                 "of these differences is above 0 in no seed; all else is undecided.",
                 "Before the runs it was expected to be met." if state["expected"] else
                 "Before the runs it was expected not to be met."]
    beyond = {row["name"]: row for row in state["rows"]}
    if "another place" in beyond:
        place, frozen = (_range(beyond[name], brings) for name in ("another place", "frozen codes"))
        found.append("Though met, it would fall if another place did the same, or the inputs "
                     f"without the codes. Codes of all other queries bring it in {place}; the "
                     "context's inputs, exchanged with all codes held at the base's own, in "
                     f"{frozen}.")
    return found
