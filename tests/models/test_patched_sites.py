"""Messages and feed-forward layers that are written: closed forms, in our models and in bridges."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from small_language_models import SmallModels
from torch import Tensor

import latentcode as lc
from latentcode.errors import ConfigError
from latentcode.models.patched.passes import clean_pass, unshared
from latentcode.models.patched.sites import (
    SITES,
    InScope,
    Place,
    Put,
    capture,
    check_written,
    run_patched,
)

OURS = ("softmax", "linear", "hyla", "hyla_deep")
BRIDGES = ("gpt2", "llama", "gemma2", "gptj")
LAYER, QUERY = 1, -2


@pytest.fixture(scope="module", params=(*OURS, *BRIDGES))
def model(request: pytest.FixtureRequest, small_models: SmallModels) -> Any:
    if request.param in BRIDGES:
        return lc.load_pretrained(small_models(request.param))
    config = lc.preset("smoke", "sraven", request.param).model
    return lc.HookedTransformer(config, seed=1).eval()


@pytest.fixture(scope="module")
def problems(model: Any) -> tuple[Tensor, Tensor]:
    """Inputs of bases and of sources."""
    generator = torch.Generator().manual_seed(0)
    if hasattr(model, "original_model"):
        return tuple(torch.randint(400, (3, 9), generator=generator) for _ in "bs")  # type: ignore[return-value]
    return tuple(torch.randn(3, 9, model.config.d_input, generator=generator) for _ in "bs")  # type: ignore[return-value]


def from_source(model: Any, source: Tensor, site: str, scope: Tensor) -> dict[Place, InScope]:
    place = site, LAYER
    _, theirs = capture(model, source, [place])
    return {place: InScope(Put(theirs[place]), SITES[site].mask(scope, None, model.cfg.n_heads),
                           scope)}


def test_messages_of_all_keys_are_z(model: Any, problems: tuple[Tensor, Tensor]) -> None:
    base, source = problems
    scope = torch.zeros(3, 9, 9, dtype=torch.bool)
    scope[:, QUERY] = True
    _, own = capture(model, base, [("message", LAYER), ("z", LAYER)])
    torch.testing.assert_close(own["message", LAYER].sum(2), own["z", LAYER], rtol=1e-4, atol=1e-5)
    clean = clean_pass(model, base, [("message", LAYER)], shared=not unshared(model))
    edits = from_source(model, source, "message", scope)
    whole, shared = run_patched(model, base, edits), clean.patched(edits)
    z = run_patched(model, base, from_source(model, source, "z", scope))
    assert (z - clean.logits).abs().max() > 1e-4
    torch.testing.assert_close(whole, z, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(shared, z, rtol=1e-4, atol=1e-5)
    # Some keys, then the others: messages add.
    place, some = ("message", LAYER), scope & (torch.arange(9) < 4)
    first, rest = (from_source(model, source, "message", part)[place]
                   for part in (some, scope & ~some))
    both = run_patched(model, base, {place: lambda live: rest(first(live))})
    torch.testing.assert_close(both, z, rtol=1e-4, atol=1e-5)


def test_what_the_feed_forward_layer_adds(model: Any, problems: tuple[Tensor, Tensor]) -> None:
    base, source = problems
    everything = torch.ones(3, 9, 9, dtype=torch.bool)
    names = [f"blocks.{LAYER}.{name}" for name in ("hook_resid_post", "hook_mlp_out")]
    seen: list[dict[str, Tensor]] = []
    given = from_source(model, source, "mlp_out", everything)

    def note(kept: dict[str, Tensor], name: str) -> tuple[str, Any]:
        return name, lambda x, hook: kept.__setitem__(name, x.clone())

    for inputs, edits in ((base, {}), (source, {}), (base, given)):
        kept: dict[str, Tensor] = {}
        with torch.no_grad():
            model.run_with_hooks(inputs, fwd_hooks=[
                *((SITES[site].hook.format(layer), lambda x, hook, edit=edit: edit(x))
                  for (site, layer), edit in edits.items()), *(note(kept, n) for n in names)])
        seen.append(kept)
    post, out = names
    added = [x[post] - x[out] for x in seen]
    if not getattr(model.cfg, "use_normalization_before_and_after", False):
        torch.testing.assert_close(seen[2][post], seen[0][post] - seen[0][out] + seen[1][out],
                                   rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(added[2], added[0], rtol=1e-4, atol=1e-5)
    # What it is given decides what it adds.
    clean = clean_pass(model, base, [(site, LAYER) for site in ("mlp_in", "mlp_out")],
                       shared=not unshared(model))
    by_out = clean.patched(given)
    assert (by_out - clean.logits).abs().max() > 1e-4
    for edits in (given, from_source(model, source, "mlp_in", everything)):
        torch.testing.assert_close(run_patched(model, base, edits), by_out, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(clean.patched(edits), by_out, rtol=1e-4, atol=1e-5)
    assert torch.equal(clean.patched({("mlp_in", LAYER): lambda live: live}), clean.logits)


def test_messages_of_a_registered_value_network_are_refused(own_names: Any) -> None:
    lc.register_value_network("half", lambda code, v, phi: torch.einsum(
        "...hqk,...khd->...qhd", code, v) / 2.0)
    config = replace(lc.preset("smoke", "sraven", "softmax").model, value_network="half")
    model = lc.HookedTransformer(config, seed=1).eval()
    with pytest.raises(ConfigError, match="what each key contributes to it is not known"):
        check_written(model, torch.randn(2, 9, config.d_input), [("message", 0)])
