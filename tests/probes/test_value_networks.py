"""Are the operations that codes generate compared as the generated matrices would be?"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import latentcode as lc
from latentcode.devices import make_generator
from latentcode.models.config import ATTENTION_KINDS, ModelConfig, with_kind
from latentcode.models.hypernetwork import key_inputs, value_network
from latentcode.models.transformer import HookedTransformer
from latentcode.probes.common.labels import groups_of, make_target
from latentcode.probes.common.statistics import shuffled_labels
from latentcode.probes.value_networks import (
    ValueNetworksResult,
    centred,
    cosines,
    effective_rank,
    generated_parts,
    relative_distances,
    respond,
    stable_rank,
    value_networks,
    weight_products,
)
from latentcode.tasks import make_task
from latentcode.tasks.base import DRAW

CONFIG = ModelConfig(d_input=5, d_output=3, d_model=12, n_heads=4, d_head=2, d_head_v=3, d_mlp=16,
                     n_buckets=6, max_distance=6, attention_dropout=0.0)


def model_of(kind: str) -> HookedTransformer:
    return HookedTransformer(with_kind(CONFIG, kind), seed=1).double().eval()


@given(st.integers(1, 9), st.integers(0, 20))
def test_ranks_of_equal_singular_values_are_their_number(n: int, zeros: int) -> None:
    singular = torch.cat([torch.full((n,), 0.7), torch.zeros(zeros)]).double()
    assert float(effective_rank(singular)) == pytest.approx(n)
    assert float(stable_rank(singular)) == pytest.approx(n)


def test_ranks_by_hand() -> None:
    singular = torch.tensor([[3.0, 1.0], [1.0, 0.0], [0.0, 0.0]]).double()
    ranks = effective_rank(singular)
    assert float(ranks[0]) == pytest.approx(math.exp(-0.75 * math.log(0.75) - 0.25 * math.log(.25)))
    assert float(ranks[1]) == pytest.approx(1.0)
    assert torch.isnan(ranks[2])
    assert stable_rank(singular)[:2].tolist() == pytest.approx([10 / 9, 1.0])


@pytest.mark.parametrize("kind", ATTENTION_KINDS)
def test_products_of_weights_are_those_of_the_materialised_weights(kind: str) -> None:
    model = model_of(kind)
    codes = torch.randn(7, 4, dtype=torch.float64)
    with torch.no_grad():
        products = weight_products(model, 1, codes)
        network = value_network(model, 1, codes)
    if network.is_linear:
        materialised = {"matrix": network.matrix}
    else:
        names = ["weights 1", "weights 2", "weights 3"][:len(network.weights)]
        materialised = dict(zip(names, network.weights, strict=True))
        if kind == "linear_rms_head_relu":  # no code generates its first layer
            del materialised["weights 1"]
    assert set(products) == set(materialised) == set(generated_parts(model, 1, codes))
    for part, weights in materialised.items():
        flat = weights.detach().flatten(1)
        torch.testing.assert_close(products[part], flat @ flat.T)
        expected = torch.nn.functional.cosine_similarity(flat[:, None], flat[None], dim=-1)
        torch.testing.assert_close(cosines(products[part]), expected)
        apart = flat - flat.mean(dim=0)
        torch.testing.assert_close(centred(products[part]), apart @ apart.T)


def test_distances_from_the_mean_network_by_hand() -> None:
    weights = torch.tensor([[3.0, 0.0], [0.0, 0.0], [0.0, 3.0]]).double()
    distances = relative_distances(weights @ weights.T)
    assert float(distances[0]) == pytest.approx(math.sqrt(5.0) / 3.0)  # from (1, 1)
    assert torch.isnan(distances[1])


def test_networks_that_are_all_the_same_have_no_differences() -> None:
    model = model_of("softmax")
    code = torch.rand(1, 4, dtype=torch.float64)
    with torch.no_grad():
        products = weight_products(model, 0, code.expand(3, 4) * (1.0 + 1e-7 * torch.rand(3, 1)))
    difference = centred(products["matrix"])
    assert (difference == 0.0).all()
    assert torch.isnan(cosines(difference)).all()


@pytest.mark.parametrize("kind", ["hyla", "hyla_deep", "linear_rms_head_relu"])
def test_units_are_active_as_in_the_forward_pass(kind: str) -> None:
    model = model_of(kind)
    with torch.no_grad():
        _, cache = model.run_with_cache(torch.randn(1, 6, 5, dtype=torch.float64))
        x = model.layer(1).ln1(cache["resid_pre", 1])[0]  # [K, D]
        codes = cache["pattern", 1][0, :, -1].T  # [K, H], the last query's
        outputs, active = respond(model, 1, codes, x)
    assert active is not None
    own = torch.arange(6)
    if kind != "linear_rms_head_relu":
        hidden = cache["blocks.1.attn.hook_value_hidden"][0, -1]
        assert torch.equal(active[own, own], hidden > 0.0)
    assert 0.1 < float(active.double().mean()) < 0.9
    layer_output = outputs[own, own].sum(dim=0) + model.layer(1).attn.b_O
    torch.testing.assert_close(layer_output, cache["attn_out", 1][0, -1])


def test_an_affine_network_has_no_units() -> None:
    model = model_of("hyla_linear")
    with torch.no_grad():
        _, active = respond(model, 0, torch.randn(2, 4).double(), torch.randn(3, 12).double())
    assert active is None


@pytest.fixture(scope="module")
def run(smoke_run: Callable[[str, str], lc.Run]) -> lc.Run:
    return smoke_run("sraven", "hyla")


@pytest.fixture(scope="module")
def result(run: lc.Run) -> ValueNetworksResult:
    return value_networks(run, n=512, n_inputs=32, pairs=["response->row3.panel1"])


def test_inputs_belong_to_the_instances_that_are_extracted(run: lc.Run) -> None:
    model = run.load_model()
    pairs = ["response->response", "response->row3.panel1"]
    codes = lc.extract(run, split="ood", n=20, pairs=pairs, residuals=True, seed=3)
    x = key_inputs(model, lc.subject(run).reader(
        "ood", n=20, pairs=pairs, seed=3).inputs_and_keys(), [1])
    assert x.shape == (1, 2, 20, 16)
    # The query of the first pair is its key.
    with torch.no_grad():
        stream = torch.from_numpy(codes.select_residual(layer=1, pair=pairs[0]).copy())
        torch.testing.assert_close(x[0, 0], model.layer(1).ln1(stream[:, None])[:, 0])
    assert not torch.allclose(x[0, 0], x[0, 1])


def test_the_tables_say_what_the_mean_codes_generate(
    run: lc.Run, result: ValueNetworksResult
) -> None:
    assert set(result.networks["features"]) == {"code", "shuffled", "untrained"}
    assert set(result.networks["part"]) == {"weights 1", "weights 2", "response"}
    codes = lc.extract(run, split="ood", n=512, pairs=["response->row3.panel1"])
    means = codes.mean_by("rule", layer=1, pair="response->row3.panel1")
    with torch.no_grad():
        weight = value_network(run.load_model(), 1, torch.tensor(means.to_numpy())).weights[1]
    singular = torch.linalg.svdvals(weight[list(means.index).index("sum")])
    found = result.spectra.query("layer == 1 and `class` == 'sum' and part == 'weights 2' and "
                                 "features == 'code'")["singular_value"].to_numpy()
    np.testing.assert_allclose(found, singular.numpy()[:len(found)], rtol=1e-4)
    row = result.networks.query("layer == 1 and `class` == 'sum' and part == 'weights 2' and "
                                "features == 'code'").iloc[0]
    assert row["norm"] == pytest.approx(float(weight[list(means.index).index("sum")].norm()),
                                        rel=1e-4)
    assert row["n"] == int((codes.label("rule", "response->row3.panel1") == "sum").sum())
    responses = result.networks[result.networks["part"] == "response"]
    assert responses["active"].between(0.0, 1.0).all()
    assert result.networks[result.networks["part"] != "response"]["active"].isna().all()
    same = result.cosines[result.cosines["class"] == result.cosines["other"]]
    assert same["cosine"].dropna().to_numpy() == pytest.approx(1.0)


def test_untrained_networks_are_those_of_the_initial_weights(
    run: lc.Run, result: ValueNetworksResult
) -> None:
    norms = result.networks[result.networks["part"] == "weights 1"].pivot_table(
        index=["layer", "class"], columns="features", values="norm")
    assert not np.allclose(norms["untrained"], norms["code"], rtol=1e-3)
    assert not np.allclose(norms["shuffled"], norms["code"], rtol=1e-6)
    without = value_networks(run, n=512, n_inputs=32, pairs=["response->row3.panel1"],
                            controls=False)
    pd.testing.assert_frame_equal(
        without.networks,
        result.networks[result.networks["features"] == "code"].reset_index(drop=True))
    assert "Without controls: untrained, shuffled." in without.caveats


def test_a_saved_result_has_a_figure(result: ValueNetworksResult, tmp_path: Path) -> None:
    rules = ("sum", "+1")  # drawing all of them takes seconds
    cosine = result.cosines[result.cosines[["class", "other"]].isin(rules).all(axis=1)]
    few = ValueNetworksResult(result.networks, result.spectra, cosine, result.settings)
    assert (few.save(tmp_path / "result") / "figure.png").is_file()
    assert "effective_rank" in repr(few)


def test_silent_networks_are_pointed_out(result: ValueNetworksResult) -> None:
    networks = result.networks.copy()
    silent = (networks["part"] == "response") & (networks["layer"] == 0)
    networks.loc[silent, "norm"] = 0.0
    told = ValueNetworksResult(networks, result.spectra, result.cosines, result.settings).caveats
    n = networks["class"].nunique()
    assert any(note.startswith("Layer 0, response->row3.panel1, label rule: the mean networks of "
                               f"{n} classes are silent") for note in told)
    assert not any(note.startswith("Layer 1") for note in told)


@pytest.mark.parametrize("kind", ["softmax", "linear"])
@pytest.mark.slow
def test_fuzzy_logic_and_the_other_kinds(kind: str, tmp_path: Path) -> None:
    trained = lc.train(lc.preset("smoke", "logic", kind), tmp_path / kind, progress=False)
    seen: list[tuple[int, int]] = []
    found = value_networks(trained, n=128, n_inputs=16, controls=False,
                          progress=lambda done, total: seen.append((done, total)))
    assert set(found.networks["label"]) == {"term_1", "term_2"}
    assert set(found.networks["part"]) == {"matrix", "response"}
    assert found.networks["active"].isna().all()
    assert seen[-1] == (4, 4)
    assert found.networks["effective_rank"].dropna().between(1.0, 8.01).all()  # H d_head_v


def test_shuffled_labels_are_dealt_to_whole_combinations(
    run: lc.Run, result: ValueNetworksResult
) -> None:
    pair = "response->row3.panel1"
    codes = lc.extract(run, split="ood", n=512, pairs=[pair])
    target = make_target(codes.labels, codes.labels, "rule", codes.pair(pair))
    dealt, = shuffled_labels(target.train, groups_of(codes.labels), np.random.default_rng(0),
                             1)
    rows = result.networks.query("layer == 1 and part == 'response'").set_index(
        ["features", "class"])["n"]
    expected = {str(c): int(n) for c, n in zip(target.classes, dealt.sum(axis=0), strict=True)
                if n}
    assert rows["shuffled"].to_dict() == expected
    assert (dealt != target.train).any()


def test_units_of_the_own_code_are_those_of_the_forward_pass(
    run: lc.Run, result: ValueNetworksResult
) -> None:
    pair = "response->row3.panel1"
    task, model = make_task(make_task(run.config.task).probe_config), run.load_model()
    batch = task.sample("ood", DRAW, make_generator(0, "extract ood 0"))[:32]
    query, key = (place[:, 0] for place in task.positions([pair], batch))
    with torch.no_grad():
        _, cache = model.run_with_cache(batch.inputs)
    active = cache["blocks.1.attn.hook_value_hidden"][torch.arange(32), query, key] > 0.0
    rules = lc.extract(run, split="ood", n=32, pairs=[pair]).label("rule", pair).to_numpy()
    found = result.networks.query("layer == 1 and part == 'response' and features == 'code'")
    for row in found[["class", "active_own"]].itertuples(index=False):
        mine = torch.from_numpy(rules == row[0])
        if mine.any():
            assert row.active_own == pytest.approx(float(active[mine].double().mean()), abs=1e-3)
        else:
            assert np.isnan(row.active_own)
    assert abs(float(active.double().mean()) - 0.5) > 0.01  # a flipped sign would show
