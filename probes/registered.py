"""Probes that are one function: registered by a name, they become questions like all others.

    value = 1/N sum_i s_i,    s = function(points) or function(train, heldout)

with s_i what the function gives problem i. Controls are the same function on other points or
labels: every difference is paired over the same problems, and intervals resample combinations
(`latentcode.probes.common.harness`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np
import pandas as pd

from latentcode.devices import checked_seed
from latentcode.errors import ConfigError, ProbeError, as_tuple, called, check
from latentcode.figures.style import Figure
from latentcode.probes.common.figures import panels, scores_figure
from latentcode.probes.common.harness import (
    Outcome,
    Problem,
    Question,
    contrasts,
    evaluate,
    origin,
    probed_with_labels,
    read,
)
from latentcode.probes.common.labels import (
    Labels,
    groups_of,
    make_target,
    names_of,
    resolve_label,
    shared_combinations,
)
from latentcode.probes.common.results import (
    BAG,
    CONTROLS,
    TableResult,
    blocks,
    named,
    with_interval,
)
from latentcode.probes.common.statistics import (
    N_SHUFFLES,
    NONE,
    Contrasts,
    Resampled,
    contrast_columns,
    resample,
    shuffled_classes,
    varies,
)
from latentcode.progress import Progress, watched
from latentcode.registry import Registry, offered
from latentcode.subjects import subject as opened

if TYPE_CHECKING:
    from latentcode.subjects import Model, Problems, Split

HELDOUT = 0.3
"""Share of the combinations of prompts that is held out, where they have no column `split`."""
N_TRAIN, N_HELDOUT = 48, 36
"""Made-up points on which a probe is tried, of other numbers, so that none is taken for the other.
"""
ProbeQuestion = Callable[..., "ProbeResult"]


@dataclass(frozen=True, eq=False)
class Points:
    """The features of N problems, in one layer and at one pair, with the label that is asked about;
    arrays that cannot be written to.

    Attributes:
        x: float64 [N, d].
        y: int64 [N], the class of each, a number from 0; the same for points that are fitted and
            scored.
        combination: int64 [N], the combination of each, likewise.
        classes: The values of the label that the numbers stand for.
    """

    x: np.ndarray
    y: np.ndarray
    combination: np.ndarray
    classes: Sequence[object]

    def __post_init__(self) -> None:
        for name in ("x", "y", "combination"):
            view = getattr(self, name).view()
            view.setflags(write=False)
            object.__setattr__(self, name, view)

    def __len__(self) -> int:
        return len(self.x)


@dataclass(frozen=True)
class Probe:
    """One probe: a function of points, `fitted` where it takes two sets, and its question, which
    takes a model and problems in their place; `options` are keyword-only arguments and defaults."""

    name: str
    function: Callable[..., Any]
    fitted: bool
    options: Mapping[str, Any]
    features: tuple[str, ...]
    columns: tuple[str, ...]
    figure: Callable[..., Any] | None
    sentence: Callable[..., Any] | None
    question: ProbeQuestion


PROBES: Registry[Probe] = Registry("probe", "lc.register_probe", {})
"""By name: those of users, and of the library's those that were used here."""


def register_probe(
    name: str,
    *,
    features: Sequence[str] | str = ("code",),
    columns: Sequence[str] | str = ("value",),
    figure: Callable[[ProbeResult, Any], object] | None = None,
    sentence: Callable[[ProbeResult], str] | None = None,
    replace: bool = False,
) -> Callable[[Callable[..., Any]], ProbeQuestion]:
    """Make a function of points a question, known by a name: a decorator.

        @lc.register_probe("nearest", columns="accuracy")
        def nearest(train, heldout, *, k=10):
            \"""Which label do the nearest problems of other combinations have?

            Args:
                k: Number of neighbours.
            \"""
            classifier = KNeighborsClassifier(k).fit(train.x, train.y)
            return classifier.predict(heldout.x) == heldout.y

        nearest("sraven-hyla", k=5)

    The function is given `Points`: of training combinations and of held-out ones, if it takes two
    sets, else of those that are scored alone. It returns a number for each problem that is scored,
    or several, by name (a mapping or a data frame). Its keyword-only arguments are options, which
    its docstring describes; `seed` is that of the question. How it is asked then, and what stands
    in the result, is that of all questions (`ask`, `ProbeResult`). It is tried on a few made-up
    problems at once.

    Args:
        name: Lower-case letters, digits and underscores.
        features: What it is asked of unless the caller says more: `code`, others of
            `latentcode.codes.features`, or registered ones.
        columns: What the numbers are called, one name or several.
        figure: Draws a result on matplotlib axes: figure(result, axes); default: the value per
            layer, with controls and intervals.
        sentence: Says what a result found: sentence(result) -> text, which stands before its
            contrasts in words; default: these alone.
        replace: Take the place of an earlier probe of that name, as when a cell runs again.

    Raises:
        ConfigError: A name that is taken, a function with other arguments or without a docstring,
            or one that fails, changes what it is given, or returns something else than the columns.
    """
    PROBES.check_name(name)
    for what, shown in (("figure", figure), ("sentence", sentence)):
        check(shown is None or callable(shown), f"{what} of probe {name!r} is {shown!r}; expected "
              "a function of a result")

    def register(function: Callable[..., Any]) -> ProbeQuestion:
        of_library = offered().get(name) == getattr(function, "__module__", "")
        check(of_library or name not in offered(), f"probe {name!r} comes with latentcode; "
              "expected another name")
        parameters = [*inspect.signature(function).parameters.values()]
        points = [argument for argument in parameters if argument.kind in (
            argument.POSITIONAL_ONLY, argument.POSITIONAL_OR_KEYWORD)]
        options = {argument.name: argument.default for argument in parameters
                   if argument.kind is argument.KEYWORD_ONLY}
        check(len(points) in (1, 2) and len(points) + len(options) == len(parameters)
              and all((argument.default is argument.empty) == (argument in points)
                      for argument in parameters),
              f"probe {name!r} takes ({', '.join(map(str, parameters))}); expected a function of "
              "the points that are scored, or of those that it is fitted on and those that are "
              "scored, whose options are keyword-only and have defaults, such as "
              "def nearest(train, heldout, *, k=10)")
        common = {**inspect.signature(ask).parameters}
        taken = [option for option in options if option in common and option != "seed"]
        check(not taken, f"probe {name!r} has an option {' and '.join(taken)}, which every "
              f"question has; expected other names than {', '.join([*common][1:-1])}")
        check(bool((function.__doc__ or "").strip()), f"probe {name!r} has no docstring; expected "
              "one whose first line is the question that it answers")

        @wraps(function)
        def question(*arguments: Any, **given: Any) -> ProbeResult:
            bound = signature.bind(*arguments, **given)
            return ask(probe, *bound.args, **bound.kwargs)

        question.__name__ = name
        model, problems, labels, *others = [*common.values()][1:-1]
        signature = inspect.Signature([model, problems, labels, *(
            argument for argument in parameters if argument.name in {*options} - {"seed"}),
            *others], return_annotation=inspect.signature(ask).return_annotation)
        cast(Any, question).__signature__ = signature
        probe = Probe(name, function, len(points) == 2, options, tuple(as_tuple(features)),
                      tuple(as_tuple(columns)), figure, sentence, question)
        if not of_library:
            try_probe(probe)
        PROBES.add(name, probe, replace=replace)
        return question

    return register


@watched("asking a probe")
def ask(
    probe: Probe,
    model: Model,
    problems: Problems = None,
    labels: Labels | None = None,
    *,
    features: Sequence[str] | str | None = None,
    split: Split = "ood",
    n: int | None = None,
    pairs: Sequence[str] | str | None = None,
    layers: Sequence[int] | int | None = None,
    step: int | None = None,
    controls: bool = True,
    n_shuffles: int = N_SHUFFLES,
    n_bootstrap: int = 1_000,
    seed: int = 0,
    device: str | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> ProbeResult:
    """Ask a registered probe.

    Scores are means over problems. Beside those of the features stand those of the residual
    stream, of an untrained model's features and of shuffled labels; `ProbeResult.contrasts` has the
    differences. Labels that are columns of texts are asked of whole texts, beside the bag of their
    tokens. A probe that is fitted is fitted on `train` combinations.

    Args:
        model: See `subject`; or codes, of a probe that is fitted those of training combinations,
            and those of held-out ones as the problems.
        problems: See `subject`; default: what the run's task chooses for probing.
        labels: What is asked about, labels with one class for each problem; default: those that the
            task names. Or functions of a batch, `{name: function}`, as in `decode`.
        features: What it reads: `code`, `row`, `values` and others of `latentcode.codes.features`,
            or registered ones; default: those that it was registered with.
        split: Which combinations are scored.
        n: Number of problems, and as many to fit on; default: 4,096, of prompts and codes all.
        pairs: Names of pairs, or `all`; default: the paper's, the first of the task's; of prompts
            and codes all.
        layers: Layer numbers; default: all.
        step: The checkpoint of a run; default: the newest.
        controls: Also ask the residual stream and an untrained model; a result without them is
            marked.
        n_shuffles: Times that labels are shuffled (`latentcode.probes.common.statistics`).
        n_bootstrap: Replicates of the 95 % intervals, which resample the combinations.
        seed: Seed of the problems, of shuffling and bootstrap, and of the probe where it draws.
        device: `cpu` or `cuda`; default: cpu.
        progress: Called with (places done, in all).

    Raises:
        LatentCodeError: What `subject` and `extract` raise, `UnknownNameError` for a name, and
            `ProbeError` for a label that is a group or does not vary, for what the function raises,
            and for scores that are not one finite number for each problem.
    """
    seed = checked_seed(seed)
    features = probe.features if features is None else as_tuple(features)
    check(not (probe.fitted and split == "train"), f"split is 'train', which probe {probe.name!r} "
          "is fitted on; expected another one", ProbeError)
    subject, wanted = probed_with_labels(
        opened(model, problems, step=step, device=device), labels, seed=seed,
        heldout=HELDOUT if probe.fitted else None)
    parts = [(part, subject.n_of("n", n, 4_096, part))
             for part in (("train", split) if probe.fitted else (split,))]
    reads = read(subject, parts, features, pairs=pairs, layers=layers, controls=controls,
                 seed=seed, labels=labels)
    if probe.fitted:
        shared_combinations(reads.rows[0], reads.rows[1],
                            "combinations" if split == "test" else "nothing")
    groups = [groups_of(rows.labels) for rows in reads.rows]
    targets = {}
    for name in names_of(wanted):
        for pair, frames in reads.labels.items():
            _, several = resolve_label(name, frames[0], subject.pairs[pair])
            check(not several or labels is None, f"labels are {name}, of which a problem has "
                  "several; expected labels with one class for each problem", ProbeError)
            if not several:
                targets[name, pair] = make_target(
                    frames[0], frames[-1], name, subject.pairs[pair])
    check(len(targets) > 0, f"labels are {', '.join(names_of(wanted)) or 'none'}; expected labels "
          "with one class for each problem", ProbeError)
    question = Question(targets, groups[0], groups[-1:], n_shuffles, n_bootstrap, seed)
    moving = [reading for reading in reads.readings if varies(reading.points[0])]
    still = dict.fromkeys(f"{reading.name} of layer {reading.layer}, {reading.pair}"
                          for reading in reads.readings if not varies(reading.points[0]))
    check(any(reading.shuffled for reading in moving), f"the features of probe {probe.name!r} are "
          "the same in all problems, at every layer and pair; there is nothing to ask about",
          ProbeError)
    given = {**probe.options, **options}
    if "seed" in given:
        given["seed"] = seed
    order = [name for each in (*features, "residual", BAG)
             for name in (each, named(each, "shuffled"), named(each, "untrained"))]
    combinations = pd.factorize(pd.concat([
        rows.labels["combination"].astype(str) for rows in reads.rows]))[0].astype(np.int64)
    outcomes, = evaluate(moving, question, partial(
        _score, probe=probe, options=given,
        combinations=np.split(combinations, np.cumsum(list(map(len, reads.rows)))[:-1])), order,
        progress=progress)
    rows = [{"layer": layer, "pair": pair, "label": label, "features": name, "quantity": quantity,
             **value.row(), "n_combinations": value.n_clusters}
            for ((label, pair), layer, _, name), outcome in outcomes.items()
            for quantity, value in outcome.scores.items()]
    settings = {
        "probe": probe.name, "asks": str(probe.function.__doc__).strip().partition("\n")[0],
        "said": None, "options": {
            name: _plain(value) for name, value in given.items() if name != "seed"},
        "columns": list(probe.columns), "fitted": probe.fitted, "features": list(features),
        "labels": list(dict.fromkeys(label for label, _ in targets)),
        "layers": [int(layer) for layer in reads.layers], "pairs": list(reads.labels),
        "constant": list(still), "whole_texts": subject.whole_texts,
        "controls": [*CONTROLS, *((BAG,) if subject.whole_texts else ())] if controls else [],
        **question.settings, "codes": [origin(rows) for rows in reads.rows]}
    result = ProbeResult.from_rows({"table": rows, "contrasts": list(
        contrasts(outcomes, moving, first_layer=False))}, settings)
    if probe.sentence is not None:
        sentence = called(f"probe {probe.name!r}: its sentence", ProbeError, probe.sentence, result)
        check(isinstance(sentence, str), f"probe {probe.name!r}: its sentence is {sentence!r}; "
              "expected text", ProbeError)
        settings["said"] = sentence
    return result


def _score(
    problem: Problem, *, probe: Probe, options: Mapping[str, Any],
    combinations: Sequence[np.ndarray],
) -> list[list[Outcome]]:
    """Call a probe on the points of one label, and on shuffled labels, and score each."""
    reading, target, question = problem.reading, problem.target, problem.question
    classes = [truth.argmax(axis=1) for truth in (target.train, target.heldout)]
    groups = question.heldout[0]
    shuffles, bootstrap = question.streams()
    weights = resample(int(groups.max()) + 1, question.n_bootstrap, bootstrap)

    def scored(ys: Sequence[np.ndarray], where: str) -> dict[str, Resampled]:
        points = [Points(np.asarray(x, dtype=np.float64), y, combination, target.classes)
                  for x, y, combination in zip(reading.points, ys, combinations, strict=True)]
        scores = scores_of(probe, points, options, where)
        return {name: Resampled.of_mean(values, groups, weights)
                for name, values in scores.items()}

    ys = classes[-len(reading.points):]
    outcomes = [[Outcome(scored(ys, str(problem)))]]
    if reading.shuffled is not None:
        shuffled = [scored([y, *ys[1:]], f"{problem} (shuffled)") for y in shuffled_classes(
            ys[0], question.groups, shuffles, question.n_shuffles)]
        outcomes.append([Outcome({
            name: Resampled.of_shuffles([scores[name] for scores in shuffled], bootstrap)
            for name in outcomes[0][0].scores} if shuffled else {})])
    return outcomes


def scores_of(
    probe: Probe, points: Sequence[Points], options: Mapping[str, Any], where: str
) -> dict[str, np.ndarray]:
    """Return the columns that a probe gives the last of some points, float64 [N] each.

    `ProbeError` that says what the function raised, or returned and what was expected.
    """
    said = f"probe {probe.name!r}: for {where}, its function"
    given = called(said, ProbeError, probe.function, *points, **options)
    if not isinstance(given, Mapping | pd.DataFrame):
        given = {probe.columns[0]: given}
    scores = called(f"{said}: what it returned", ProbeError, lambda: pd.DataFrame(
        {name: np.asarray(values, dtype=np.float64) for name, values in given.items()}))
    finite = "" if np.isfinite(scores.to_numpy()).all() else ", not all finite"
    check(set(scores) == set(probe.columns) and len(scores) == len(points[-1]) and not finite,
          f"{said} returned {len(scores)} numbers of {', '.join(map(str, scores))}{finite}; "
          f"expected {len(points[-1])} finite numbers of {', '.join(probe.columns)}", ProbeError)
    return {name: scores[name].to_numpy() for name in probe.columns}


def try_probe(probe: Probe) -> None:
    """Raise `ConfigError` unless a probe gives a finite number to each of some made-up points."""
    points = []
    for n in (N_TRAIN, N_HELDOUT)[0 if probe.fitted else 1:]:
        y = np.arange(n) // 3 % 2
        x = np.random.default_rng([7, n]).normal(size=(n, 6)) + 4.0 * y[:, None]
        points.append(Points(x, y, np.arange(n) // 6, ("no", "yes")))
    try:
        scores_of(probe, points, probe.options, f"{N_HELDOUT} made-up problems")
    except ProbeError as error:
        raise ConfigError(str(error)) from error


def _plain(value: Any) -> Any:
    """Return the value of an option as settings keep it: what a file can hold, or as it prints."""
    if isinstance(value, list | tuple):
        return list(map(_plain, value))
    value = value.item() if isinstance(value, np.generic) else value
    return value if isinstance(value, str | int | float | None) else repr(value)


@dataclass(frozen=True, repr=False)
class ProbeResult(TableResult):
    """What a registered probe found, beside controls.

    Features: those that were asked for, `residual`, and `untrained` and `shuffled` (of features
    other than the code `untrained row` and so on); where the features do not vary there is no row.
    A result opens without the file that registers its probe. The picture is then the one that all
    probes have.

    Attributes:
        table: One row per layer, pair, label, features and `quantity` (a column of the probe's):
            the mean `value` over `n` problems with its 95 % interval `low`, `high`, which resamples
            the `n_combinations` combinations.
        settings: Everything else that determines the numbers; `probe` is its name.
        contrasts: One row per layer, pair, label, features of the trained model, quantity and what
            they are measured `against`: shuffled labels, the untrained model, the residual stream,
            of whole texts the `bag` of their tokens.
    """

    FORMAT = "latentcode.probe"
    COLUMNS: ClassVar = {
        "table": ("layer", "pair", "label", "features", "quantity", "value", "low", "high", "n",
                  "n_combinations"),
        "contrasts": contrast_columns("layer", "pair", "label", "features")}

    table: pd.DataFrame
    settings: Mapping[str, Any]
    contrasts: Contrasts = NONE

    @property
    def name(self) -> str:
        return f"{type(self).__name__} of {self.settings['probe']}"

    @property
    def title(self) -> str:
        return f"{type(self).__name__}: {self.settings['probe']}: {self.settings['asks']}"

    @property
    def caveats(self) -> tuple[str, ...]:
        return (*self.controls_caveat(), *(
            f"The {place} is the same in all problems: no score."
            for place in self.settings["constant"]))

    def said(self) -> list[str]:
        """Say what the probe's own sentence says, if it has one, and what is above its controls."""
        said = self.settings["said"]
        return [*([] if said is None else [str(said)]), *super().said()]

    def summary(self) -> pd.DataFrame:
        """Return one row per label, quantity, pair and layer, and `value [low, high]` by features.
        """
        place = ("label", "quantity", "pair", "layer")
        features = self.settings["features"]
        order = [*features, "residual", BAG, *(named(name, model)
                 for model in ("untrained", "shuffled") for name in features)]
        table = pd.DataFrame([
            key | {str(row.features): with_interval(row, digits=3) for row in block.itertuples()}
            for key, block in blocks(self.table, place)]).fillna("")
        return table[[*place, *(name for name in dict.fromkeys(order) if name in table)]]

    def figure(self) -> Figure:
        """Return the picture that the probe has; else every score per layer, beside its controls.
        """
        name = self.settings["probe"]
        draw = PROBES[name].figure if name in PROBES else None
        if draw is None:
            return scores_figure(self.table, ("label", "quantity"), title=name)
        with panels(1, 1, 5.4, 3.4) as (figure, grid):
            called(f"probe {name!r}: its figure", ProbeError, draw, self, grid[0, 0])
        return figure
