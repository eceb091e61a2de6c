"""Prompts of five tasks that are often asked of language models, made against a tokenizer.

    prompts = lc.make_prompts("ioi", tokenizer=model, n=64)
    lc.heads(model, prompts)

Where a task needs words that are tokens of their own, others are left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise, product
from typing import Any, Literal

import numpy as np
import pandas as pd

from latentcode.devices import checked_seed
from latentcode.errors import check, check_choice, check_count
from latentcode.models.transformer import HookedTransformer
from latentcode.prompts.language_models import LanguageModel, as_language_model
from latentcode.prompts.prompts import Prompts

TaskName = Literal["ioi", "greater_than", "agreement", "capitals", "induction"]
HELD_OUT = ("words", "wordings")

NAMES = """Mary John Tom James Dan Sarah Paul Anna Mark Emma Peter Laura David Alice Robert Jane
    Michael Lisa Kevin Susan Daniel Kate Adam Rachel Jack Emily Simon Julia Andrew Amy Martin Helen
    George Lucy Brian Sophie Richard Maria Steven Rose Thomas Claire Henry Grace Edward Ruth Charles
    Linda Frank Nancy"""
IOI = ("When {A} and {B} went to the store, {S} gave a drink to",
       "When {A} and {B} went to the school, {S} gave a book to",
       "Then {A} and {B} had lunch at the office, and {S} gave a ring to",
       "Then {A} and {B} had fun at the garden, and {S} gave a kiss to")

EVENTS = """war trip siege trial project strike plague reign voyage conflict festival campaign
    drought expedition marriage dispute famine tour rebellion boycott"""
CENTURIES = range(11, 19)
YEARS = "The {noun} lasted from the year {start} to the year {century}"

NOUNS = """key label book picture car cabinet table teacher author pilot farmer doctor letter
    student friend senator window manager guard dog boy chef lamp"""
AGREEMENT = ("We know that the {noun} next to the {other}",
             "We think that the {noun} behind the {other}",
             "Everyone said that the {noun} near the {other}")
SINGULAR, PLURAL = (" is", " was", " has"), (" are", " were", " have")

RELATIONS = ("capital", "language", "currency", "continent")
SHOWN = ("Germany", "Berlin", "German", "euro", "Europe")
"""An example that wordings show."""
COUNTRIES = """
    France Paris French euro Europe, Italy Rome Italian euro Europe,
    Spain Madrid Spanish euro Europe, England London English pound Europe,
    Japan Tokyo Japanese yen Asia, Russia Moscow Russian ruble Europe,
    China Beijing Chinese yuan Asia, Greece Athens Greek euro Europe,
    Portugal Lisbon Portuguese euro Europe, Poland Warsaw Polish zloty Europe,
    Turkey Ankara Turkish lira Asia, Sweden Stockholm Swedish krona Europe,
    Denmark Copenhagen Danish krone Europe, Norway Oslo Norwegian krone Europe,
    Hungary Budapest Hungarian forint Europe, Egypt Cairo Arabic pound Africa,
    India Delhi Hindi rupee Asia, Brazil Brasilia Portuguese real America,
    Mexico Mexico Spanish peso America, Argentina Buenos Spanish peso America,
    Chile Santiago Spanish peso America, Peru Lima Spanish sol America,
    Kenya Nairobi Swahili shilling Africa, Nigeria Abuja English naira Africa,
    Thailand Bangkok Thai baht Asia, Vietnam Hanoi Vietnamese dong Asia,
    Iran Tehran Persian rial Asia, Iraq Baghdad Arabic dinar Asia,
    Israel Jerusalem Hebrew shekel Asia, Austria Vienna German euro Europe,
    Ireland Dublin English euro Europe, Finland Helsinki Finnish euro Europe,
    Romania Bucharest Romanian leu Europe, Bulgaria Sofia Bulgarian lev Europe,
    Ukraine Kyiv Ukrainian hryvnia Europe, Cuba Havana Spanish peso America,
    Colombia Bogota Spanish peso America, Indonesia Jakarta Indonesian rupiah Asia,
    Bangladesh Dhaka Bengali taka Asia, Morocco Rabat Arabic dirham Africa,
    Croatia Zagreb Croatian euro Europe, Iceland Reykjavik Icelandic krona Europe"""
CAPITALS = ("The {relation} of {shown} is {answer}. The {relation} of {country} is",
            "The {relation} of {shown} is {answer}; the {relation} of {country} is",
            "For {shown}, the {relation} is {answer}. For {country}, the {relation} is",
            "In {shown}, the {relation} is {answer}. In {country}, the {relation} is")

THINGS = """apple river stone cloud table horse music paper light green silver window garden winter
    dragon bridge coffee finger pocket sugar tiger candle button mirror basket pencil engine ladder
    forest island castle rocket camera butter summer doctor orange yellow market hammer rabbit
    valley bottle needle shadow ticket wallet carpet"""
LENGTH, ASKED_AFTER, REPEATED = 8, (2, 4, 6), 3
"""Words of a list, which is there twice; those after which its next word is asked for (from 0); and
how many come a third time."""
INDUCTION = ("Words: {words} {words} {again}", "Things: {words} {words} {again}")


def make_prompts(
    task: TaskName,
    *,
    tokenizer: Any,
    n: int = 64,
    seed: int = 0,
    held_out: Literal["words", "wordings"] | None = "words",
) -> Prompts:
    """Make prompts of a task, with sources, answers and labels, against a tokenizer.

    ============ ================================================== ===============================
    task         prompt and answer                                  operation x operands
    ============ ================================================== ===============================
    ioi          When Mary and John ... store, John gave ... to     which name is the answer, the
                 " Mary" (Wang et al. 2022, arXiv:2211.00593)       first or the second x the names
    capitals     ... The currency of Japan is " yen"                relation x country
    induction    stone cloud table horse ... stone cloud " table"   word after which the next is
                 (Olsson et al. 2022, arXiv:2209.11895)             asked for x words
    greater_than ... lasted from the year 1749 to the year 17:      minimal pairs: the source starts
                 the digits, or years, above                        earlier
                 (Hanna et al. 2023, arXiv:2305.00586)
    agreement    The keys near the cabinet " are" or " were" ...    minimal pairs: the source has
                 (Linzen et al. 2016, arXiv:1611.01368)             the other number
    ============ ================================================== ===============================

    The first three are factorials: sources of a prompt are others with another operation, other
    operands or both, in the same wording. The answers of `greater_than` and `agreement` are sets of
    tokens. Where a tokenizer has digits, not years, as tokens, `greater_than` asks of years that
    end with 9, whose decade alone decides.

    Args:
        task: One of the five.
        tokenizer: A tokenizer of transformers, a bridge, or a `LanguageModel`.
        n: Number of prompts; of a factorial so many, or as many more as complete it.
        seed: Of the words that are drawn.
        held_out: What the split `ood` has that `train` has not: half of the `words` (names,
            countries, nouns), half of the `wordings`, or None for no splits.

    Returns:
        Prompts with columns of labels (`template`, and what the task has), a column `split`, and
        the pair from the last token to the word in question.

    Raises:
        ConfigError: The tokenizer has too few of the words, or n is more than can be made.
    """
    check_choice("task", task, TASKS)
    check(held_out is None or held_out in HELD_OUT, f"held_out is {held_out!r}; expected 'words', "
          "'wordings' or None")
    check_count("n", n)
    rng = np.random.default_rng(checked_seed(seed))
    frame = pd.DataFrame(TASKS[task](Words(tokenizer, task), n, rng))
    by = {"words": "combination", "wordings": "template", None: None}[held_out]
    if by is not None:
        values = frame[by].unique()
        check(len(values) > 1, f"held_out is {held_out!r}, and task {task!r} has a single one of "
              "these for the tokenizer; expected held_out=None")
        frame["combination"] = frame[by]
        frame["split"] = frame[by].map({value: ("train", "ood")[i % 2]
                                        for i, value in enumerate(values)})
    return Prompts.from_frame(frame)


class Words:
    """A tokenizer, of which it is asked how it divides the words of a task."""

    def __init__(self, tokenizer: Any, task: str) -> None:
        self.task = task
        self.unknown = getattr(getattr(tokenizer, "tokenizer", tokenizer), "unk_token_id", None)
        if isinstance(tokenizer, LanguageModel | HookedTransformer) or hasattr(
                tokenizer, "run_with_hooks"):
            model = as_language_model(tokenizer)
            self.ids: Callable[[str], list[int]] = lambda text: model.encode(text, False)[0]
        else:
            check(callable(tokenizer), f"tokenizer is {tokenizer!r:.60}; expected a tokenizer of "
                  "transformers, or a model in hand")
            self.ids = lambda text: list(tokenizer(text, add_special_tokens=False)["input_ids"])

    def after(self, text: str, more: str) -> tuple[int, ...]:
        """Return the tokens by which a text grows; none where its own change or one is unknown."""
        before, both = self.ids(text), self.ids(text + more)
        added = tuple(both[len(before):])
        return added if both[:len(before)] == before and self.unknown not in added else ()

    def position(self, text: str, begin: str) -> int:
        """Return the index of the last token of the beginning of a text, from the end."""
        return len(self.ids(begin)) - 1 - len(self.ids(text))

    def single(self, words: Sequence[str], kind: str, least: int) -> list[str]:
        """Return the words that are one token which no other of them is."""
        tokens = [self.after("The", f" {word}") for word in words]
        kept = [word for word, ids in zip(words, tokens, strict=True)
                if len(ids) == 1 and tokens.count(ids) == 1]
        return self.enough(words, kept, f"{kind}, each a token of its own", least)

    def even(self, words: Sequence[str], kind: str, least: int) -> list[str]:
        """Return the words that have the commonest number of tokens, no two the same."""
        tokens = [self.after("The", f" {word}") for word in words]
        lengths = [len(ids) for ids in tokens if ids]
        common = max(lengths, key=lengths.count, default=0)
        kept = [word for word, ids in zip(words, tokens, strict=True)
                if len(ids) == common and tokens.count(ids) == 1]
        return self.enough(words, kept, f"{kind} of equally many tokens", least)

    def enough(self, words: Sequence[Any], kept: Sequence[Any], kind: str, least: int) -> list[Any]:
        """Return what is kept of words; `ConfigError` for less than the least."""
        check(len(kept) >= least, f"task {self.task!r} needs {least} {kind}; of {len(words)} the "
              f"tokenizer leaves {len(kept)}: expected another tokenizer or task")
        return list(kept)

    def wordings(self, templates: Sequence[str], filled: Mapping[str, Sequence[str]]) -> list[str]:
        """Return the templates whose prompts have equally many tokens, whatever fills them."""
        kept = [template for template in templates
                if len({len(self.ids(text)) for text in filled[template]}) == 1]
        return self.enough(templates, kept, "wording of equally many tokens", 1)


def _ioi(words: Words, n: int, rng: np.random.Generator) -> list[dict[str, Any]]:
    names = [str(name) for name in rng.permutation(words.single(NAMES.split(), "names", 8))]

    def text(template: str, a: str, b: str, operation: str) -> str:
        return template.format(A=a, B=b, S=b if operation == "first" else a)

    templates = words.wordings(IOI, {template: [
        text(template, a, b, "first") for a, b in pairwise(names)]
        for template in IOI})
    rows = []
    for a, b in _drawn(words, n, 2 * len(templates), [
            _matchings(half) for half in (names[::2], names[1::2])]):
        for template, operation in product(templates, ("first", "second")):
            prompt = text(template, a, b, operation)
            pieces = template.partition("{S}")
            begin = text(pieces[0] + pieces[1], a, b, operation)
            first = text(template.partition("{B}")[0].removesuffix(" and "), a, b, operation)
            second = text(template.partition("{B}")[0] + "{B}", a, b, operation)
            rows.append({
                "prompt": prompt, "operation": operation, "operands": f"{a} and {b}",
                "combination": f"{a} and {b}", "template": template,
                "answer": f" {a if operation == 'first' else b}",
                "subject": b if operation == "first" else a,
                "pairs": {"last->repeated name": (-1, words.position(prompt, begin)),
                          "last->first name": (-1, words.position(prompt, first)),
                          "last->second name": (-1, words.position(prompt, second))}})
    return rows


def _matchings(names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield every two names once, in rounds in which no name comes twice."""
    names = names[:len(names) // 2 * 2]
    half = len(names) // 2
    for turn in range(len(names) - 1):
        rest = names[1:]
        circle = [names[0], *rest[turn:], *rest[:turn]]
        yield from zip(circle[:half], circle[:half - 1:-1], strict=True)


def _drawn(
    words: Words, n: int, per_operands: int, halves: Sequence[Iterator[Any]]
) -> Iterator[Any]:
    """Yield operands of n prompts, of each half in turn; at least two of each."""
    wanted = max(4, math.ceil(n / per_operands))
    drawn = [operands for both in zip(*halves, strict=False) for operands in both]
    check(wanted <= len(drawn), f"n is {n}; expected at most {len(drawn) * per_operands}, the "
          f"prompts of task {words.task!r} that the tokenizer leaves")
    yield from drawn[:wanted]


def _capitals(words: Words, n: int, rng: np.random.Generator) -> list[dict[str, Any]]:
    table = {row.split()[0]: row.split()[1:] for row in COUNTRIES.split(",")}
    countries = words.even(list(table), "countries", 4)
    relations = words.even(RELATIONS, "relations", 2)
    countries = [str(country) for country in rng.permutation(countries)]

    def text(template: str, country: str, relation: str) -> str:
        return template.format(country=country, relation=relation, shown=SHOWN[0],
                               answer=SHOWN[1 + RELATIONS.index(relation)])

    templates = words.wordings(CAPITALS, {template: [
        text(template, *cell) for cell in product(countries, relations)] for template in CAPITALS})
    rows = []
    for country in _drawn(words, n, len(templates) * len(relations), [
            iter(countries[::2]), iter(countries[1::2])]):
        for template, relation in product(templates, relations):
            answer = table[country][RELATIONS.index(relation)]
            prompt = text(template, country, relation)
            begin = prompt[:prompt.index(country) + len(country)]
            rows.append({
                "prompt": prompt, "operation": relation, "operands": country,
                "combination": country, "template": template,
                "answer": [f" {answer}", f" {answer.capitalize()}"] if answer.islower()
                else f" {answer}", "query": -1, "key": words.position(prompt, begin)})
    return rows


def _induction(words: Words, n: int, rng: np.random.Generator) -> list[dict[str, Any]]:
    things = [str(word) for word in rng.permutation(
        words.single(THINGS.split(), "words", 2 * LENGTH))]

    def lists(some: Sequence[str]) -> Iterator[tuple[str, ...]]:
        for _ in range(n):
            yield tuple(map(str, rng.permutation(some)[:LENGTH]))

    def text(template: str, some: Sequence[str], last: int) -> str:
        return template.format(words=" ".join(some),
                               again=" ".join(some[last + 1 - REPEATED:last + 1]))

    templates = words.wordings(INDUCTION, {template: [
        text(template, things[i:i + LENGTH], last) for i in range(len(things) - LENGTH)
        for last in ASKED_AFTER] for template in INDUCTION})
    rows = []
    for some in _drawn(words, n, len(templates) * len(ASKED_AFTER), [
            lists(things[::2]), lists(things[1::2])]):
        for template, last in product(templates, ASKED_AFTER):
            prompt = text(template, some, last)
            rows.append({
                "prompt": prompt, "operation": f"word {last + 2}", "operands": " ".join(some),
                "combination": " ".join(some), "template": template, "answer": f" {some[last + 1]}",
                "pairs": {f"last->word {place + 2}": (-1, place + 1 - LENGTH - REPEATED)
                          for place in ASKED_AFTER}})
    return rows


def _greater_than(words: Words, n: int, rng: np.random.Generator) -> list[dict[str, Any]]:
    events = words.even(EVENTS.split(), "events", 4)

    def text(noun: str, century: int, year: int) -> str:
        return YEARS.format(noun=noun, start=f"{century}{year:02d}", century=century)

    def ends(century: int, width: int) -> list[str]:
        """The endings of years that are one token."""
        texts = [f"{end:0{width}d}" for end in range(10**width)]
        ids = {end: words.after(text(events[0], century, 41), end) for end in texts}
        return [end for end in texts if len(ids[end]) == 1
                and list(ids.values()).count(ids[end]) == 1]

    cells: list[tuple[int, list[int], Callable[[int], int], list[str]]] = []
    for century in CENTURIES:
        years, digits = ends(century, 2), ends(century, 1)
        width = len(words.ids(text(events[0], century, 41)))
        if len(years) >= 50:  # years of two tokens
            starts = [int(year) for year in years if 2 <= int(year) < 98
                      and len(words.ids(text(events[0], century, int(year)))) == width]
            cells.append((century, starts, lambda year: year, years))
        elif len(digits) == 10:
            cells.append((century, list(range(9, 90, 10)), lambda year: year // 10, digits))
    words.enough(CENTURIES, cells, "centuries whose years end with tokens of two digits or of one "
                 "digit", 1)
    every = [(noun, cell, above, below) for noun in events for cell in cells
             for above in cell[1] for below in cell[1] if below < above]
    check(n <= len(every), f"n is {n}; expected at most {len(every)}, the prompts of task "
          f"{words.task!r} that the tokenizer leaves")
    rows = []
    for i in rng.permutation(len(every))[:n]:
        noun, (century, _, end_of, known), above, below = every[i]
        others = [event for event in events if event != noun]
        prompt = text(noun, century, above)
        rows.append({
            "prompt": prompt, "source": text(noun, century, below),
            "control": text(others[int(rng.integers(len(others)))], century, above),
            "answer": [end for end in known if int(end) > end_of(above)],
            "source_answer": [end for end in known if end_of(below) < int(end) <= end_of(above)],
            "label": f"{end_of(above)}", "source_label": f"{end_of(below)}", "noun": noun,
            "combination": noun, "century": century, "template": YEARS,
            "query": -1, "key": words.position(prompt, prompt[:prompt.index(" to the year")])})
    return rows


def _agreement(words: Words, n: int, rng: np.random.Generator) -> list[dict[str, Any]]:
    known = NOUNS.split()
    forms = words.single([form for noun in known for form in (noun, f"{noun}s")], "nouns", 8)
    nouns = words.enough(known, [noun for noun in known if {noun, f"{noun}s"} <= {*forms}],
                         "nouns, singular and plural each a token of its own", 4)
    verbs = words.single([verb.strip() for verb in SINGULAR + PLURAL], "verbs", 2)
    answers = [[verb for verb in of_number if verb.strip() in verbs]
               for of_number in (SINGULAR, PLURAL)]
    check(all(answers), f"task {words.task!r} needs a verb of each number that is a token of its "
          f"own; the tokenizer has {', '.join(verbs)}")
    every = list(product(nouns, nouns, AGREEMENT, (0, 1), (0, 1)))
    every = [cell for cell in every if cell[0] != cell[1]]
    check(n <= len(every), f"n is {n}; expected at most {len(every)}, the prompts of task "
          f"{words.task!r} that the tokenizer leaves")
    rows = []
    for i in rng.permutation(len(every))[:n]:
        noun, other, template, number, of_other = every[i]

        def text(number: int, of_other: int, noun: str = noun, other: str = other,
                 template: str = template) -> str:
            return template.format(noun=noun + "s" * number, other=other + "s" * of_other)

        prompt = text(number, of_other)
        begin = prompt[:prompt.index(f" {noun}") + 1 + len(noun) + number]
        rows.append({
            "prompt": prompt, "source": text(1 - number, of_other),
            "control": text(number, 1 - of_other), "answer": answers[number],
            "source_answer": answers[1 - number], "label": ("singular", "plural")[number],
            "source_label": ("plural", "singular")[number], "noun": noun, "combination": noun,
            "attractor": "same number" if number == of_other else "other number",
            "template": template, "query": -1, "key": words.position(prompt, begin)})
    return rows


TASKS: Mapping[str, Callable[[Words, int, np.random.Generator], list[dict[str, Any]]]] = {
    "ioi": _ioi, "greater_than": _greater_than, "agreement": _agreement, "capitals": _capitals,
    "induction": _induction}
