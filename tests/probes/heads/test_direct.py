"""Direct logit attribution equals what taking a head's write away does to the logits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hand_built_heads import known_heads, sentences
from small_language_models import SmallModels
from torch import Tensor

from latentcode.models.config import TABLE_A1, ModelConfig
from latentcode.models.pretrained import load_pretrained
from latentcode.models.transformer import HookedTransformer
from latentcode.probes.heads.metrics import DirectLogits, Observer
from latentcode.prompts.texts import TextBatch
from latentcode.subjects.streams import stream_texts


def make_batch(n_tokens: int = 9, n: int = 3) -> TextBatch:
    tokens = torch.randint(1, 60, (n, n_tokens), generator=torch.Generator().manual_seed(2))
    read = torch.ones_like(tokens, dtype=torch.bool)
    read[:, -1] = False
    read[1, 5:] = False
    return TextBatch(tokens, torch.full((n,), n_tokens), tokens.roll(-1, 1), read,
                     torch.arange(n))


def taken_away(model: Any, batch: TextBatch, layer: int, head: int) -> Tensor:
    """Return by how much the next token's logit, less the mean logit, falls without the write of a
    head, in sum over the read positions of each text; every norm behind it keeps its scale.

    The layers above see the write as it was: what is taken away is taken from the stream that
    leaves the last layer, computed by the modules of the model themselves.
    """
    ours = isinstance(model, HookedTransformer)
    attn = f"blocks.{layer}.attn."
    z_name = f"{attn}hook_z"
    scales = ["ln_final.hook_scale"]
    if hasattr(model.blocks[layer], "ln1_post"):
        scales.append(f"blocks.{layer}.ln1_post.hook_scale")
    seen: dict[str, Tensor] = {}

    def keep(name: str) -> Callable[..., None]:  # hooks may have other names of their own
        def store(value: Tensor, hook: Any) -> None:
            seen[name] = value.clone()
        return store

    def frozen(name: str) -> tuple[str, Callable[..., Tensor]]:
        return name, lambda value, hook: seen[name]

    last = f"blocks.{model.cfg.n_layers - 1}.hook_resid_post"
    out = f"blocks.{layer}.hook_attn_out"
    with torch.no_grad():
        model.run_with_hooks(batch.tokens, fwd_hooks=[
            (name, keep(name)) for name in (z_name, out, *scales)])
        whole = seen[out]
        # The same layer with this head's z at 0: what is missing of its output is its write.
        without = seen[z_name].clone()
        without[:, :, head] = 0.0
        hooks: list[Any] = [(z_name, lambda value, hook: without)]
        hooks += map(frozen, scales[1:])
        model.run_with_hooks(batch.tokens, fwd_hooks=[*hooks, (out, keep(out))])
        write = whole - seen[out]

        def less(stream: Tensor, hook: Any) -> Tensor:
            return stream - write

        unembedded: list[Tensor] = []
        for edits in ([], [(last, less)]):
            before_caps = "unembed.hook_out"
            returned = model.run_with_hooks(batch.tokens, fwd_hooks=[
                *edits, frozen(scales[0]), *([] if ours else [(before_caps, keep(before_caps))])])
            unembedded.append(returned if ours else seen[before_caps])
    target = [x.gather(-1, batch.targets[..., None])[..., 0] - x.mean(-1) for x in unembedded]
    return ((target[0] - target[1]) * batch.read).sum(1)


def attributed(model: Any, batch: TextBatch) -> Tensor:
    return Observer(model).observe(batch)[0][..., -1]


def check_all_heads(model: Any) -> None:
    batch = make_batch()
    found = attributed(model, batch)
    for layer in range(model.cfg.n_layers):
        for head in range(model.cfg.n_heads):
            expected = taken_away(model, batch, layer, head)
            assert float(expected.abs().max()) > 1e-3
            torch.testing.assert_close(found[:, layer, head], expected, rtol=2e-3, atol=2e-4)


@pytest.mark.filterwarnings("ignore:A forward hook edited")
@pytest.mark.parametrize("architecture", ["gpt2", "llama", "neox", "gemma2", "gptj"])
def test_it_is_what_is_missing_without_the_write(
    architecture: str, small_models: SmallModels
) -> None:
    check_all_heads(load_pretrained(small_models(architecture)))


@pytest.mark.parametrize("architecture", ["gpt2", "llama", "gemma2"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_in_types_of_few_bits_it_is_what_it_is_in_float32(
    architecture: str, dtype: str, small_models: SmallModels
) -> None:
    few = load_pretrained(small_models(architecture), dtype=dtype)
    direct, batch = DirectLogits(few), make_batch()
    assert not direct.lacking
    assert [write.factor for write in direct.writes.values()] == [1.0] * 2
    expected = attributed(load_pretrained(small_models(architecture)), batch)
    torch.testing.assert_close(attributed(few, batch), expected, rtol=0.05,
                               atol=0.02 * float(expected.abs().max()))


def small(**fields: Any) -> HookedTransformer:
    return HookedTransformer(ModelConfig(
        d_input=60, d_output=60, n_layers=2, d_model=24, n_heads=3, d_head=2, d_head_v=2, d_mlp=16,
        causal=True, embedding="token", attention_dropout=0.0, **{**TABLE_A1["softmax"], **fields}),
        seed=1).eval()


@pytest.mark.parametrize("readout", ["dense", "tied"])
def test_it_is_what_is_missing_in_our_own_models(readout: str) -> None:
    check_all_heads(small(readout=readout))


@pytest.mark.parametrize("kind", ["hyla", "hyla_deep"])
def test_heads_that_write_together_have_none(kind: str) -> None:
    model = small(**TABLE_A1[kind])
    direct = DirectLogits(model)
    assert set(direct.lacking) == {0, 1}
    assert "HYLA" in direct.notes()[0]
    assert attributed(model, make_batch()).isnan().all()


def test_a_layer_whose_write_is_another_has_none(
    small_models: SmallModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = load_pretrained(small_models("gpt2"))
    wrong = torch.zeros_like(model.blocks[1].attn.W_O)
    monkeypatch.setattr(type(model.blocks[1].attn), "W_O", property(
        lambda attention: wrong if attention is model.blocks[1].attn else weight), raising=False)
    weight = torch.zeros_like(wrong)
    direct = DirectLogits(model)
    assert set(direct.lacking) == {0, 1}
    assert "any layer" in direct.notes()[0]


def test_a_head_that_raises_what_comes_next_is_found() -> None:
    """Only the induction head writes what is read out, and it writes what followed before."""
    asked = known_heads()
    repeated = [text + text for text in sentences(4, shortest=5, longest=8)]
    for batch in stream_texts(asked, repeated).batches():
        found = attributed(asked.model, batch)
        others = found.flatten(1)[:, [0, 1, 3]]
        assert float(others.abs().max()) < 1e-4
        assert bool((found[:, 1, 0] > 1.0).all())
