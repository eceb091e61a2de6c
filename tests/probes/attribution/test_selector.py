"""Where one code provably selects the operation, attribution finds it, and it alone."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from hand_built import operation_model
from selector import K, Selector
from torch import Tensor

from latentcode.errors import ConfigError, ProbeError
from latentcode.probes.attribution import AttributionResult, attribute_model
from latentcode.tasks.counterfactuals import Counterfactuals, MinimalPairs

SYMBOL, ASKED, OTHER = range(3)


class ByRole(Selector):
    """The queries by what they are to the question: the one whose rule differs, the other."""

    def roles(self, pairs: MinimalPairs) -> tuple[tuple[str, ...], Tensor]:
        asked = 1 + pairs.slot[:, None]
        role = torch.full((len(pairs), 3), OTHER).scatter(1, asked, ASKED)
        role[:, 0] = SYMBOL
        return ("symbol", "asked", "other"), role


@pytest.fixture(scope="module")
def result() -> AttributionResult:
    return attribute_model(operation_model(), ByRole(), "interchange", split="train", n=120,
                           n_patched=60,
                           batch_size=40, n_bootstrap=200)


def test_only_the_code_that_selects_has_attribution(result: AttributionResult) -> None:
    codes = result.maps[result.maps["site"] == "code"].set_index(["query", "key"])
    assert len(codes) == 9
    assert codes.loc[("asked", "symbol"), "gradient"] > 1.0
    assert codes.loc[("asked", "symbol"), "path"] > 1.0
    others = codes.drop(index=("asked", "symbol"))
    assert others[["gradient_absolute", "path_absolute"]].max(axis=None) < 1e-3
    # The values do not differ between an instance and its source.
    assert result.maps.query("site == 'value'")["path_absolute"].max() < 1e-3


def test_the_heads_sum_to_the_place(result: AttributionResult) -> None:
    methods = ["path", "gradient"]
    heads = result.heads.query("site == 'code'").groupby(["query", "key"])[methods].sum()
    places = result.maps.query("site == 'code'").set_index(["query", "key"])[methods]
    np.testing.assert_allclose(heads, places.loc[heads.index], atol=1e-5)
    assert len(result.heads.query("site == 'code'")) == 9 * K


def test_patches_agree_in_sign_and_rank(result: AttributionResult) -> None:
    patches = result.patches.query("site == 'code'").set_index(["query", "key"])
    found = patches.loc[("asked", "symbol")]
    assert found["chosen"] == "strongest"
    assert found["rate"] == 1.0
    assert found["low"] > 1.0
    assert patches["effect"].abs().idxmax() == patches["gradient"].idxmax() == ("asked", "symbol")
    r = result.correlations.query("site == 'code' and among == 'all' and measure == 'pearson'")
    assert (r["value"] > 0.99).all()


def test_the_small_set_is_that_code(result: AttributionResult) -> None:
    small = result.smallest.set_index("site").loc["code"]
    assert (small["size"], small["rate"], small["held_all"]) == (1.0, 1.0, 1.0)
    (chosen,) = result.chosen.itertuples()
    assert (chosen.site, chosen.layer, chosen.query, chosen.key) == ("code", 0, "asked", "symbol")
    curve = result.curve.query("site == 'code'").set_index(["order", "size"])["rate"]
    assert (curve["path"] == curve["gradient"]).all()
    assert (curve["path"] == 1.0).all()
    assert curve["random", 1] < 1.0
    assert np.isnan(result.smallest.set_index("site").loc["value", "size"])
    assert "All values bring the source's answer in 0.00, not surely more than 0.2: no set" in (
        result.caveats[1])


def test_what_few_places_or_a_wide_interval_say_is_not_shown(result: AttributionResult) -> None:
    code = result.summary().set_index("site").loc["code"]
    assert (code["small set"], code["of all"]) == (1, "100%")
    low = {"searched_low": {"code": 0.19, "value": 0.0}}
    unsure = dataclasses.replace(result, settings={**result.settings, **low})
    assert "small set" not in unsure.summary()
    assert len(unsure.caveats) == 3
    few = dataclasses.replace(result, correlations=result.correlations.assign(n_places=19))
    assert "r of path" not in few.summary()
    enough = dataclasses.replace(result, correlations=result.correlations.assign(n_places=20))
    assert "r of path" in enough.summary()


def test_where_roles_are_places_both_queries_have_their_share() -> None:
    found = attribute_model(operation_model(), Selector(), "interchange", split="train", n=60,
                            sites="code", n_patched=40, n_bootstrap=100)
    asked = found.maps.query("key == 'token 0'").set_index("query")["path"]
    assert (asked[["token 1", "token 2"]] > 0.5).all()
    assert found.smallest["size"].item() == 2


def test_what_cannot_be_asked() -> None:
    class Unanswered(Counterfactuals):
        """Pairs that do not say what a model answers."""

    Unanswered.__abstractmethods__ = frozenset()
    model = operation_model()
    with pytest.raises(ConfigError, match="Unanswered, which do not say"):
        attribute_model(model, Unanswered(), "interchange")
    with torch.no_grad():
        model.unembed.W_U.copy_(model.unembed.W_U.roll(1, 1))  # now it is always wrong
    with pytest.raises(ProbeError, match="of 20 instances of train, the model answers 0 and their "
                                         "sources rightly; expected at least four"):
        attribute_model(model, Selector(), "interchange", split="train", n=20)
