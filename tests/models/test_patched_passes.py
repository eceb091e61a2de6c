"""A pass that shares what no patch changes gives what the same patch gives in a pass of its own."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from itertools import cycle, product

import pytest
import torch
from small_text import text_model
from torch import Tensor

import latentcode as lc
from latentcode.devices import make_generator
from latentcode.models.kernels.fused import written_out
from latentcode.models.patched.passes import (
    CleanPass,
    Output,
    clean_pass,
    computed,
    computed_by_layers,
    run_from,
)
from latentcode.models.patched.sites import (
    SITES,
    Edit,
    InScope,
    Place,
    Put,
    capture,
    normalization_of,
    run_patched,
)

N_LAYERS, N_TOKENS = 3, 12
PLACES: list[Place] = [(site, layer) for site in SITES
                       for layer in range(N_LAYERS)]
KINDS = ("softmax", "linear", "hyla", "softmax_moe", "causal text")
CLOSE = {torch.float32: {"rtol": 1e-4, "atol": 1e-5}, torch.float64: {"rtol": 1e-11, "atol": 1e-12}}
"""Rounding: what is computed of fewer tokens at once may be summed in another order."""


def model_and_inputs(kind: str, dtype: torch.dtype) -> tuple[lc.HookedTransformer, Tensor]:
    generator = make_generator(0, "inputs")
    if kind == "causal text":
        config = text_model("softmax", N_LAYERS).config
        inputs = torch.randint(config.d_input, (9, N_TOKENS), generator=generator)
    else:
        config = replace(lc.preset("smoke", "sraven", kind).model, n_layers=N_LAYERS)
        inputs = torch.randn(9, N_TOKENS, config.d_input, generator=generator, dtype=dtype)
    return lc.HookedTransformer(config, seed=1).eval().to(dtype), inputs


def scope_of(name: str) -> Tensor:
    """Return which codes are written, bool [9, T, T]: a query of each instance, several, or all."""
    query = torch.arange(9)[:, None] % N_TOKENS
    token = torch.arange(N_TOKENS)
    rows = {"row": token == query, "rows of some": (token - query) % 6 < query % 3,
            "everything": (token >= 0).expand(9, -1)}[name]
    return rows[:, :, None].expand(-1, -1, N_TOKENS)


def noise(seed: int) -> Callable[[Place, Tensor], Tensor]:
    """Return what draws noise of the shape that it is given: calls have an order."""
    generator = make_generator(seed, "noise")
    return lambda place, live: live + torch.randn(
        live.shape, generator=generator, dtype=live.dtype)


def edits_of(
    model: lc.HookedTransformer, values: Callable[[Place, Tensor], Tensor], scope: str,
    layers: tuple[int, ...], site: str = "code", *, renormalize: bool = False,
) -> dict[Place, Edit]:
    codes, normalization = scope_of(scope), normalization_of(model) if renormalize else None
    return {(part, layer): InScope(partial(values, (part, layer)),
                                    SITES[part].mask(codes, None, model.cfg.n_heads), codes,
                                    normalization)
            for part in site.split("+") for layer in layers}


@pytest.mark.parametrize(("kind", "dtype", "kernels"), [
    ("hyla", torch.float64, False), ("softmax", torch.float32, True),
    *(pytest.param(*case, marks=pytest.mark.slow) for case in (
        *((kind, torch.float64, False) for kind in KINDS if kind != "hyla"),
        ("hyla", torch.float32, False), ("hyla", torch.float32, True),
        ("hyla", torch.float64, True)))])
def test_every_site_and_layer_as_in_a_whole_pass(
    kind: str, dtype: torch.dtype, kernels: bool
) -> None:
    """With the plain functions in place of kernels bit for bit, where as much is computed."""
    model, inputs = model_and_inputs(kind, dtype)
    clean, own = capture(model, inputs, PLACES)
    with nullcontext() if kernels else written_out():
        shared = {read: clean_pass(model, inputs, PLACES, read) for read in (None, 2)}
        logits, found = computed(model, inputs, PLACES)
        for place in PLACES:
            torch.testing.assert_close(found[place], own[place], **CLOSE[dtype])
        assert kernels or all(torch.equal(found[place], own[place]) for place in PLACES)
        assert kernels or torch.equal(logits, clean)
        for read, of in shared.items():
            torch.testing.assert_close(of.logits, _last(clean, read), **CLOSE[dtype])
        sites = ("code", "value", "z", "residual", "code+value", "code+z", "value+z+residual",
                 "message", "mlp_in", "mlp_out", "code+message+mlp_out", "message+z")
        scopes = cycle(("row", "rows of some", "everything"))  # each meets every site and layers
        for (site, layers), scope in zip(
                product(sites, ((0,), (2,), (0, 2), (1, 2))), scopes, strict=False):
            _as_in_a_whole_pass(model, shared, own, (scope, layers, site),
                                dtype, equal=scope == "everything" and not kernels)


def _as_in_a_whole_pass(
    model: lc.HookedTransformer, shared: dict[int | None, CleanPass], own: dict[Place, Tensor],
    where: tuple[str, tuple[int, ...], str], dtype: torch.dtype, *, equal: bool,
) -> None:
    given = {place: Put(noise(4)(place, x)) for place, x in own.items()}

    def written(drawn: bool) -> dict[Place, Edit]:
        edits = edits_of(model, noise(3), *where)
        return edits if drawn else {
            place: given[place] if where[0] == "everything" else replace(edit, values=given[place])
            for place, edit in edits.items() if isinstance(edit, InScope)}

    for drawn in (True, False):
        whole = run_patched(model, shared[None].inputs, written(drawn))
        assert not torch.equal(whole, shared[None].logits)
        for read, of in shared.items():
            patched = of.patched(written(drawn))
            torch.testing.assert_close(patched, _last(whole, read), **CLOSE[dtype])
            # The same products as in the whole pass.
            assert not equal or read is not None or torch.equal(patched, whole)
    of = shared[2]
    same = edits_of(model, lambda _, live: live.clone(), *where)
    assert torch.equal(of.patched(same), of.logits)


def _last(logits: Tensor, read: int | None) -> Tensor:
    return logits if read is None else logits[:, -read:]


@pytest.mark.parametrize("scope", ["row", "rows of some", "everything"])
@pytest.mark.parametrize("kind", ["softmax", "hyla"])
def test_renormalised_codes_as_in_a_whole_pass(kind: str, scope: str) -> None:
    model, inputs = model_and_inputs(kind, torch.float64)
    of = clean_pass(model, inputs, PLACES)
    whole, patched = (run(edits_of(model, noise(0), scope, (0, 1), renormalize=True)) for run in (
        lambda edits: run_patched(model, inputs, edits), of.patched))
    torch.testing.assert_close(patched, whole, **CLOSE[torch.float64])


def test_layers_below_the_patch_are_not_computed_again() -> None:
    model, inputs = model_and_inputs("hyla", torch.float32)
    of = clean_pass(model, inputs, PLACES)
    for name, weight in model.named_parameters():
        if name.startswith(("embed", "blocks.0", "blocks.1")):
            weight.data.fill_(torch.nan)
    assert of.patched(edits_of(model, noise(0), "row", (2,))).isfinite().all()
    assert not of.patched(edits_of(model, noise(0), "row", (1,))).isfinite().all()


def test_who_looks_at_a_model_sees_whole_passes() -> None:
    model, inputs = model_and_inputs("hyla", torch.float32)
    seen: list[torch.Size] = []
    assert computed_by_layers(model)
    with model.hooks(fwd_hooks=[("blocks.0.hook_resid_pre",
                                 lambda x, hook: seen.append(x.shape))]):
        assert not computed_by_layers(model)
        of = clean_pass(model, inputs, PLACES, 2)
        assert of.layers == ()
        patched = of.patched(edits_of(model, noise(0), "row", (2,)))
    assert seen == [(9, N_TOKENS, model.config.d_model)] * 2
    whole = run_patched(model, inputs, edits_of(model, noise(0), "row", (2,)))
    assert torch.equal(patched, whole[:, -2:])
    ensemble = lc.HookedTransformer(model.config, seed=[0, 1])
    assert not computed_by_layers(ensemble)


@pytest.mark.parametrize("kind", ["hyla", "causal text"])
def test_what_follows_from_a_stream_has_gradients(kind: str) -> None:
    model, inputs = model_and_inputs(kind, torch.float64)
    _, own = capture(model, inputs, [("residual", 1), ("code", 2)])
    added = torch.zeros_like(own["code", 2][:, :, -2:], requires_grad=True)
    entering = Output(Tensor, own["residual", 1])
    logits = run_from(model, 1, entering, {("code", 2): lambda live: live + added}, 2,
                      cut=True)
    (slope,) = torch.autograd.grad(logits.square().sum(), [added])
    of = CleanPass(model, inputs, 2, logits.detach(), ())
    direction = noise(0)(("code", 2), torch.zeros_like(own["code", 2]))
    steps = [of.patched({("code", 2): lambda live, h=h: live + h * direction}).square().sum()
             for h in (1e-5, -1e-5)]
    torch.testing.assert_close((slope * direction[:, :, -2:]).sum(), (steps[0] - steps[1]) / 2e-5,
                               rtol=1e-6, atol=0.0)
