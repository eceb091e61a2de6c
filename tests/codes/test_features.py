"""Are features of one's own what their function makes of an activation, and is it tried?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from reading import read_rows
from torch import Tensor

import latentcode as lc
from latentcode.errors import ConfigError

pytestmark = pytest.mark.usefixtures("own_names")


def at_query(codes: Tensor, query: Tensor, key: Tensor) -> Tensor:
    return codes[torch.arange(len(codes)), :, query, key]


def test_they_are_what_the_function_makes_of_each_site(
    smoke_run: Callable[[str, str], lc.Run]
) -> None:
    lc.register_features("paired")(at_query)
    lc.register_features("summed", site="value")(lambda values: values.sum((1, 2)))
    lc.register_features("stream", site="residual")(
        lambda stream, query: stream[torch.arange(len(stream)), query])
    run = smoke_run("logic", "hyla")
    rows = read_rows(run.load_model(), lc.make_task(run.config.task), n=20, layers=1, batch_size=8,
                     features=["code", "residual", "values", "paired", "summed", "stream"])
    values = {name: of for (name, _), of in rows.values.items()}
    np.testing.assert_array_equal(values["paired"], values["code"])
    np.testing.assert_array_equal(values["stream"], values["residual"])
    d = values["summed"].shape[1]
    assert values["values"].shape[1] % d == 0
    np.testing.assert_allclose(
        values["summed"], values["values"].reshape(20, -1, d).sum(1), atol=1e-5)


@pytest.mark.parametrize(("function", "site", "message"), [
    (lambda codes: codes.sum(), "code", r"returned torch.Size\(\[\]\); expected a tensor \[3, d\]"),
    (lambda codes: codes.tolist(), "code", r"returned list; expected a tensor \[3, d\]"),
    (lambda codes: codes.flatten(1) / 0, "code", "NaN or infinite numbers"),
    (lambda codes: codes[:, 99], "residual", "the function raised IndexError"),
    (lambda codes, pair: codes, "code", r"takes \(codes, pair\)"),
])
def test_what_cannot_be_features_is_refused(function: Any, site: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as raised:
        lc.register_features("mine", site=site)(function)
    assert "features 'mine'" in str(raised.value)


def test_a_name_is_registered_once() -> None:
    lc.register_features("mine")(at_query)
    with pytest.raises(ConfigError, match="features 'mine' is registered already"):
        lc.register_features("mine")(at_query)
    lc.register_features("mine", replace=True)(at_query)
    with pytest.raises(ConfigError, match="features 'row' come with latentcode"):
        lc.register_features("row")(at_query)
