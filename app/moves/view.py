"""All that the first page shows, as its script takes it: texts, bars and drawn problems."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from latentcode.app.moves import words
from latentcode.app.moves.drawn import drawn
from latentcode.app.words import KINDS

BESIDE = ("another place", "frozen codes")
"""Rows that are told with what would refute a statement, not among the bars."""


def view(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tasks with their moves, what is said of every state, and the problems.

    stored  as `experiments.moves` writes it

    tasks     a task each: `name`, `title`, `sites` to choose between, `moves`
    kinds     `name`, `title`
    states    task/kind/move -> texts and bars
    about     what codes and values are
    criteria  file -> the paragraph of it that says when a criterion is met
    problems  task -> its problems
    """
    moves = {(move["task"], move["name"]): move for move in stored["moves"]}
    return {
        "tasks": [_task(task, [move for (of, _), move in moves.items() if of == task])
                  for task in words.TASKS],
        "kinds": [{"name": name, "title": title} for name, title in KINDS.items()],
        "states": {f"{state['task']}/{state['kind']}/{state['move']}": _state(
            moves[state["task"], state["move"]], state) for state in stored["states"]},
        "about": words.ABOUT,
        "criteria": {move["criterion"]["file"]: move["criterion"]["text"]
                     for move in stored["moves"] if move["criterion"]},
        "problems": {task: [shown_problem(task, one) for one in problems]
                     for task, problems in stored["problems"].items()}}


def _task(name: str, moves: list[Mapping[str, Any]]) -> dict[str, Any]:
    several = name != "text"
    return {
        "name": name, "title": words.TASKS[name],
        "sites": [{"name": words.SITES[site], "title": words.SITES[site]}
                  for site in dict.fromkeys(move["site"] for move in moves)] if several else [],
        "came": words.CAME[name],
        "moves": [{"name": move["name"], "site": words.SITES[move["site"]], "place": move["place"],
                   "brings": move["brings"], "about": words.PLACES[name][move["place"]],
                   "layers": _layers(move["layers"])} for move in moves]}


def _layers(written: str) -> str:
    numbers = written.split(",")
    return f"layer {numbers[0]}" if len(numbers) == 1 else (
        f"layers {', '.join(numbers[:-1])} and {numbers[-1]}")


def _state(move: Mapping[str, Any], state: Mapping[str, Any]) -> dict[str, Any]:
    task, kind, brings = move["task"], state["kind"], move["brings"]
    return {
        "question": words.question(move, kind, state["verdict"]),
        "verdict": state["verdict"].replace(" ", "-"), "said": words.VERDICTS[state["verdict"]],
        "told": words.told(task, brings, state["rows"], state["verdict"]),
        "measured": words.measured(task, state),
        "here": words.here(task, f"{task}-{kind}", state),
        "mark": state["here"]["share"] if state["here"] and state["rows"] else None,
        "rows": [{"label": words.ROWS[task][row["name"]], "n": row["n"], "low": row["low"],
                  "high": row["high"], "share": row["shares"][brings], "shares": row["shares"]}
                 for row in state["rows"] if row["name"] not in BESIDE],
        "refute": words.refuting(move, state), "file": move["criterion"].get("file", "")}


def shown_problem(task: str, problem: Mapping[str, Any]) -> dict[str, Any]:
    """Return a problem with its drawings, and in words what every move brings."""
    outcomes = words.OUTCOMES[task]
    return {
        "number": problem["number"], "four": problem["four"], "places": problem["places"],
        "own": problem["own"],
        **{name: {"html": drawn(task, problem[name], problem),
                  "asks": words.OPERATION[task].format(**problem[name])}
           for name in ("base", "source")},
        "kinds": {kind: {
            "known": one["known"], "base": one["base"], "source": one["source"],
            "moves": {move: {"class": name, "answer": answer, "said": outcomes[name]}
                      for move, (name, answer) in one["moves"].items()}}
            for kind, one in problem["kinds"].items()}}
