"""Nothing written changes nothing, bit for bit; something written changes something."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from asked import put

import latentcode as lc
from latentcode.devices import make_generator
from latentcode.errors import ConfigError, ProbeError
from latentcode.models.attention import rms_head
from latentcode.models.config import ATTENTION_KINDS
from latentcode.models.patched.sites import SITES, capture, constrained, run_patched
from latentcode.probes.interventions import Patch
from latentcode.probes.interventions.intervention import intervene_model
from latentcode.probes.interventions.patches import measure
from latentcode.tasks.counterfactuals import Counterfactuals, MinimalPairs

KINDS = tuple(ATTENTION_KINDS)


def model_of(kind: str, task: str = "sraven") -> lc.HookedTransformer:
    return lc.HookedTransformer(lc.preset("smoke", task, kind).model, seed=1).eval()


@pytest.fixture(scope="module")
def sraven() -> Counterfactuals:
    return lc.make_counterfactuals(lc.make_task(lc.preset("smoke", "sraven").task), factorial=False)


@pytest.fixture(scope="module")
def logic() -> Counterfactuals:
    return lc.make_counterfactuals(lc.make_task(lc.preset("smoke", "logic").task), factorial=False)


@pytest.fixture(scope="module")
def pairs(sraven: Counterfactuals) -> MinimalPairs:
    return sraven.sample("ood", 12, make_generator(0, "pairs"))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("site", list(SITES))
def test_identity_is_bit_equal_and_noise_is_not(kind: str, site: str, pairs: MinimalPairs) -> None:
    model, inputs = model_of(kind), pairs.bases.inputs
    places = [(site, layer) for layer in range(2)]
    clean, own = capture(model, inputs, places)
    torch.testing.assert_close(clean, model(inputs), rtol=1e-4, atol=1e-5)
    for place in places:
        assert torch.equal(run_patched(model, inputs, {place: lambda live: live}), clean)
        assert torch.equal(
            run_patched(model, inputs, {place: lambda live, x=own[place]: x.clone()}), clean)
        noise = torch.randn(own[place].shape, generator=torch.Generator().manual_seed(0))
        patched = run_patched(model, inputs, {place: lambda live, x=noise: x})
        assert (patched - clean).abs().amax((1, 2)).min() > 1e-6  # of every instance
    assert torch.equal(capture(model, inputs, places)[0], clean)  # no hook is left behind


@pytest.mark.parametrize("kind", ["softmax", "hyla"])
@pytest.mark.parametrize("renormalize", [False, True])
def test_an_intervention_edits_its_layers_heads_and_scope(
    kind: str, renormalize: bool, pairs: MinimalPairs, sraven: Counterfactuals
) -> None:
    model, where = model_of(kind), sraven.scope("pair", pairs)
    code = torch.rand((12, 4, 18, 18), generator=torch.Generator().manual_seed(0))
    edits = put(lambda live: live + 1.0, model, where, layers=1, heads=(1, 3),
                renormalize=renormalize)
    wanted = torch.where(SITES["code"].mask(where, (1, 3), 4), code + 1.0, code)
    if renormalize:
        wanted = constrained(wanted, where, model.cfg.normalization)
    assert list(edits) == [("code", 1)]
    assert torch.equal(edits["code", 1](code), wanted)


@pytest.mark.parametrize("normalization", ["softmax", "rms_head", "softmax_rms_head"])
def test_renormalised_codes_obey_the_constraint(
    normalization: str, pairs: MinimalPairs, sraven: Counterfactuals
) -> None:
    where = sraven.scope("pairs", pairs)
    generator = torch.Generator().manual_seed(0)
    code = torch.rand((12, 4, 18, 18), generator=generator) + 0.1
    out = constrained(code, where, normalization)
    if normalization == "softmax":
        rows = where.any(2)
        sums = out.sum(-1).transpose(1, 2)[rows]
        torch.testing.assert_close(sums, torch.ones_like(sums))
        assert torch.equal(out.movedim(1, 2)[~rows], code.movedim(1, 2)[~rows])
        # The proportions inside a row stay.
        row = (out / code).movedim(1, 2)[rows]
        torch.testing.assert_close(row, row[..., :1].expand_as(row))
    else:
        torch.testing.assert_close(out.movedim(1, -1)[where],
                                   rms_head(code).movedim(1, -1)[where])
        assert torch.equal(out.movedim(1, -1)[~where], code.movedim(1, -1)[~where])
    # A model's own codes obey it already.
    own = code.softmax(-1) if normalization == "softmax" else rms_head(code)
    torch.testing.assert_close(constrained(own, where, normalization), own, rtol=1e-4, atol=1e-5)
    with pytest.raises(ConfigError, match="expected renormalize=False"):
        constrained(code, where, "none")
    # A new normalisation must not be taken for one of those above.
    with pytest.raises(ConfigError, match="'sparsemax', whose codes obey"):
        constrained(code, where, "sparsemax")


def test_means_are_those_of_the_constituents(sraven: Counterfactuals) -> None:
    model = model_of("hyla")
    place = ("code", 1)
    references = measure(model, sraven, [place], n=300, batch_size=300, split="train")
    pairs = sraven.sample("train", 300, make_generator(0, "interventions reference train"))
    _, activations = capture(model, pairs.bases.inputs, [place])
    member = sraven.membership(pairs.bases)
    for slot, constituent in ((0, 0), (1, 7)):
        expected = activations[place][member[:, slot, constituent]].mean(0)
        torch.testing.assert_close(references.means[place][slot, constituent], expected,
                                   rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(references.overall[place], activations[place].mean(0), rtol=1e-4,
                               atol=1e-5)
    assert torch.equal(references.count, member.sum(0).float())


def test_erasers_are_those_of_the_package(logic: Counterfactuals) -> None:
    from concept_erasure import LeaceFitter

    model = model_of("hyla", "logic")
    place = ("code", 1)
    erasers = measure(model, logic, [place], n=400, batch_size=400, split="train",
                      erase=[("pair", False)]).erasers["pair", False][place]
    pairs = logic.sample("train", 400, make_generator(0, "interventions reference train"))
    _, activations = capture(model, pairs.bases.inputs, [place])
    code = activations[place]
    x = code[:, :, -1, -1].double()
    term = int(pairs.base_label[0])
    z = logic.membership(pairs.bases)[:, 0, term].double()
    eraser = LeaceFitter(4, 1, dtype=torch.float64).update(x, z[:, None]).eraser
    erased = erasers.erase(code, logic.scope("pair", pairs), pairs.slot,
                           torch.full_like(pairs.slot, term))
    torch.testing.assert_close(erased[:, :, -1, -1].double(), eraser(x), rtol=1e-4, atol=1e-5)
    assert torch.equal(erased[:, :, :-1], code[:, :, :-1])
    # No linear map of what is left tells the label on these instances.
    left = erased[:, :, -1, -1].double()
    covariance = ((left - left.mean(0)) * (z - z.mean())[:, None]).mean(0)
    assert covariance.abs().max() < 1e-6 < ((x - x.mean(0)) * (z - z.mean())[:, None]).mean(
        0).abs().max()


@pytest.mark.parametrize(("change", "message"), [
    ({"value": "sources"}, "unknown patch 'sources'; expected one of: interchange, control"),
    ({"where": "column"}, "unknown scope 'column'; expected one of: pair, pairs, row"),
    ({"layers": (2,)}, "unknown layer 2; expected one of: 0, 1"),
    ({"heads": (4,)}, "head 4 at site 'code'; expected 0 to 3"),
    ({"value": "erase", "site": "value"}, "expected .code., where it can be put"),
    ({"site": "value"}, "where it covers every key"),
    ({"value": "elsewhere", "where": "everything"}, "leaves no other position"),
])
def test_what_does_not_fit_is_one_error(
    change: dict[str, object], message: str, sraven: Counterfactuals
) -> None:
    wrong = replace(Patch("interchange", "row", (0,)), **change)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=message.replace("(", r"\(")):
        intervene_model(model_of("hyla"), sraven, [wrong], n=10)


@pytest.mark.parametrize(("patch", "treatment"), [
    ("shuffled", "interchange"), ("elsewhere", "interchange"), ("class_mean_base", "class_mean"),
    ("class_mean_shuffled", "class_mean"),
    ("steer_random", "steer"), ("mean_ablation", "zero_ablation"), ("random", "interchange"),
    ("resample", "interchange"), ("control", "interchange")])
def test_every_write_does_something_of_its_own(
    patch: str, treatment: str, sraven: Counterfactuals
) -> None:
    table = intervene_model(model_of("hyla"), sraven, [
        Patch(name, "row", (0, 1)) for name in (patch, treatment, "identity")],
        n=200, n_reference=200, n_bootstrap=100).table
    changed = table[table["metric"] == "kl"].set_index("patch")["value"]
    others = table[table["metric"] == "kl_others"].set_index("patch")["value"]
    assert changed["identity"] == 0.0
    assert changed[patch] + others[patch] > 1e-6
    assert changed[patch] != changed[treatment]
    if patch == "elsewhere":  # the answer elsewhere changes, not this one
        assert others[patch] > changed[patch]


def test_messages_and_feed_forward_layers_are_sites(sraven: Counterfactuals) -> None:
    sites, names = ("message", "mlp_in", "mlp_out"), ("interchange", "class_mean", "identity")
    table = intervene_model(model_of("hyla"), sraven, [
        *(Patch(name, "row", (0, 1), site) for site in sites for name in names),
        Patch("interchange", "row", (0,), "z"), Patch("interchange", "row", (0,), "message"),
        Patch("interchange", "row", (0,), "message", keys="context", heads=(1,)),
    ], n=600, n_reference=200, n_bootstrap=100).table
    place = ["patch", "site", "layers", "scope"]
    changed = table[table["metric"] == "kl"].set_index(place)["value"]
    for site in sites:
        assert changed["identity", site, "0,1", "row"] == 0.0
        assert changed["interchange", site, "0,1", "row"] > 0.0
        assert changed["class_mean", site, "0,1", "row"] > 0.0
    whole = changed["interchange", "message", "0", "row"]
    assert whole == pytest.approx(changed["interchange", "z", "0", "row"], rel=1e-3)
    assert 0.0 < changed["interchange", "message", "0", "row, keys context"] != whole
    for wrong, message in ((Patch(site="mlp_in", keys=0), "mlp_in is of queries alone"),
                           (Patch(site="mlp_out", heads=1), "head 1 at site 'mlp_out'")):
        with pytest.raises(ConfigError, match=message):
            intervene_model(model_of("hyla"), sraven, [wrong], n=10)


def test_shuffled_labels_erase_something_else_than_the_label(logic: Counterfactuals) -> None:
    model = model_of("hyla", "logic")
    place = ("code", 1)
    fitted = measure(model, logic, [place], n=400, split="train",
                     erase=[("pair", False), ("pair", True)]).erasers
    true, shuffled = fitted["pair", False][place], fitted["pair", True][place]
    seen = true.matrices.abs().amax((0, 2, 3, 4)) > 0
    assert seen.any()
    assert not torch.allclose(true.matrices[:, seen], shuffled.matrices[:, seen])


def test_a_constituent_that_was_not_measured_is_not_written() -> None:
    config = replace(lc.preset("smoke", "logic").task, n_variables=4, unknown_fraction=0.25)
    task = lc.make_counterfactuals(lc.make_task(config), factorial=False)
    model = lc.HookedTransformer(replace(lc.preset("smoke", "logic").model, d_input=5),
                                 seed=1).eval()
    names = ("interchange", "class_mean", "class_mean_base", "steer", "erase",
             "class_mean_shuffled", "mean_ablation")
    table = intervene_model(model, task, [Patch(name, "row", (1,)) for name in names],
                            split="unknown", n=600, n_reference=600).table
    n = table[table["metric"] == "flip"].set_index("patch")["n"]
    assert n["interchange"] == n["class_mean_shuffled"] == n["mean_ablation"] > 0
    assert (n[["class_mean", "class_mean_base", "steer", "erase"]] == 0).all()
    assert table[table["patch"] == "steer"]["value"].isna().all()


def test_the_control_counts_where_the_model_answers_it(sraven: Counterfactuals) -> None:
    table = intervene_model(model_of("hyla"), sraven, [
        Patch(name, "everything", (0,), site="residual") for name in ("interchange",
                                                                             "control")],
        n=600).table
    rates = table.pivot(index="patch", columns="metric", values="value")
    # With the whole input of the source or the control, the answer is the one that counts there.
    assert rates.loc["interchange", "flip"] == 1.0
    assert rates.loc["control", "unchanged"] == 1.0
    assert rates.loc["control", "flip"] == 0.0
    n = table[table["metric"] == "unchanged"].set_index("patch")["n"]
    assert 0 < n["control"] < n["interchange"]


def test_numbers_that_cannot_be_used_are_one_error(sraven: Counterfactuals) -> None:
    for wrong, message in (({"n_reference": 0}, "n_reference is 0"), ({"n": 1}, "n is 1"),
                           ({"n_bootstrap": 0}, "n_bootstrap is 0; expected a whole number")):
        with pytest.raises((ConfigError, ProbeError), match=message):
            intervene_model(model_of("hyla"), sraven, [Patch("class_mean", "row", (0,))],
                            **wrong)
    with pytest.raises(ConfigError, match="is given 2 times; expected each intervention once"):
        intervene_model(model_of("hyla"), sraven, [Patch(), Patch()])
    with pytest.raises(ProbeError, match="gives logits that are not finite"):
        intervene_model(model_of("linear"), sraven, [
            Patch("steer", "row", (0,), alpha=1e38)], n=200, n_reference=200)
