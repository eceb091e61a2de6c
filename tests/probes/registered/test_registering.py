"""Is a function that cannot be a probe refused when it is registered, by one clear error?"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, get_args

import numpy as np
import pandas as pd
import pytest

import latentcode as lc
from latentcode.cli.questions import options_of
from latentcode.errors import ConfigError
from latentcode.probes.registered import PROBES

pytestmark = pytest.mark.usefixtures("own_names")


def right(train: lc.Points, heldout: lc.Points, *, k: int = 3) -> Any:
    """Is the class that of the nearest mean?

    Args:
        k: Is not used.
    """
    means = np.stack([train.x[train.y == c].mean(axis=0) for c in range(len(train.classes))])
    apart = np.linalg.norm(heldout.x[:, None] - means, axis=2)
    return apart.argmin(axis=1) == heldout.y


def registered(function: Callable[..., Any] = right, **options: Any) -> Callable[..., Any]:
    return lc.register_probe("means", **options)(function)


def test_it_is_a_question_like_the_others() -> None:
    means = registered()
    assert PROBES["means"].question is means
    assert means.__doc__ == right.__doc__
    options = options_of(means)
    assert list(options)[:4] == ["model", "problems", "labels", "k"]
    assert options["k"].default == 3
    kind, note = get_args(options["k"].annotation)
    assert (kind, note.help) == (int, "Is not used.")
    assert {"split", "pairs", "layers", "controls", "seed"} <= set(options)


def test_the_source_of_a_notebook_s_function_need_not_be_known() -> None:
    space: dict[str, Any] = {"lc": lc}
    exec('@lc.register_probe("size")\ndef size(points, *, power=2.0, which="x"):\n'
         '    """How large are the points?\n\n    Args:\n        power: Exponent.\n    """\n'
         "    return (abs(points.x) ** power).sum(1)\n", space)
    options = options_of(space["size"])
    kind, note = get_args(options["power"].annotation)
    assert (kind, note.help) == (float, "Exponent.")
    assert get_args(options["which"].annotation)[0] is str


def test_a_name_is_registered_once() -> None:
    registered()
    with pytest.raises(ConfigError, match="probe 'means' is registered already, in "):
        registered()
    again = registered(replace=True)
    assert PROBES["means"].question is again
    for name in ("decode", "knn", "train"):
        with pytest.raises(ConfigError, match=f"probe '{name}' comes with latentcode"):
            lc.register_probe(name)(right)
    with pytest.raises(ConfigError, match="the name of a probe is 'No name'"):
        lc.register_probe("No name")(right)
    with pytest.raises(ConfigError, match=r"unknown probe 'mean'.*lc.register_probe.*--import"):
        PROBES.find("mean")


def writes(train: lc.Points, heldout: lc.Points) -> Any:
    """Does it write?"""
    heldout.x[:] = 0.0
    return np.zeros(len(heldout))


def raises(train: lc.Points, heldout: lc.Points) -> Any:
    """Does it raise?"""
    return 1 // 0


def of_training(train: lc.Points, heldout: lc.Points) -> Any:
    """Is it as long as the training points?"""
    return np.zeros(len(train))


def not_finite(points: lc.Points) -> Any:
    """Is it NaN?"""
    return np.full(len(points), np.nan)


def other_column(points: lc.Points) -> Any:
    """Is the column another?"""
    return pd.DataFrame({"acuracy": np.zeros(len(points))})


def required(points: lc.Points, *, k: int) -> Any:
    """Has it no default?"""


def taken(points: lc.Points, *, layers: int = 3) -> Any:
    """Is it an option of all?"""


def mute(points: lc.Points) -> Any:
    return np.zeros(len(points))


@pytest.mark.parametrize(("function", "options", "message"), [
    (writes, {}, r"raised ValueError: .*read-only \(test_registering.py, line \d+\)"),
    (raises, {}, r"raised ZeroDivisionError: .*\(test_registering.py, line \d+\)"),
    (of_training, {}, "returned 48 numbers of value; expected 36 finite numbers of value"),
    (not_finite, {}, "returned 36 numbers of value, not all finite; expected 36"),
    (other_column, {"columns": "accuracy"}, "returned 36 numbers of acuracy; expected 36 finite"),
    (mute, {}, "has no docstring; expected one whose first line is the question"),
    (required, {}, "options are keyword-only and have defaults"),
    (taken, {}, "has an option layers, which every question has"),
    (right, {"figure": "figure.png"}, "figure of probe 'means' is 'figure.png'"),
])
def test_what_cannot_be_a_probe_is_refused(
    function: Any, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as raised:
        registered(function, **options)
    assert re.search("probe 'means'", str(raised.value))
    assert "means" not in PROBES
