"""Pretrained models: codes are read and written where they are used."""

from __future__ import annotations

import json
import re
import shutil
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from small_language_models import SmallModels, make_tokenizer
from torch import Tensor

from latentcode.config import preset
from latentcode.errors import ArtifactError, ConfigError
from latentcode.models import pretrained
from latentcode.models.hypernetwork import identity_error, value_network
from latentcode.models.pretrained import layout, load_pretrained
from latentcode.models.transformer import HookedTransformer

ARCHITECTURES = ("gpt2", "llama", "neox", "qwen2", "gemma2")
TOKENS = torch.randint(1, 400, (2, 6), generator=torch.Generator().manual_seed(0))


def test_a_wrong_head_or_bias_breaks_the_identity(
    small_models: SmallModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = load_pretrained(small_models("qwen2"))
    attention = type(model.blocks[0].attn)
    values, biases = attention.W_V, attention.b_V
    monkeypatch.setattr(attention, "W_V", property(lambda self: values.fget(self).flip(0)))
    assert identity_error(model, TOKENS).min() > 1e-3
    monkeypatch.setattr(attention, "W_V", values)
    assert identity_error(model, TOKENS).max() < 1e-5
    monkeypatch.setattr(attention, "b_V", property(lambda self: 2.0 * biases.fget(self)))
    assert identity_error(model, TOKENS).min() > 1e-3


def test_query_heads_of_a_group_share_their_value_head(small_models: SmallModels) -> None:
    model = load_pretrained(small_models("llama"))
    attention = model.blocks[1].attn
    assert (attention.W_V.shape[0], attention.W_O.shape[0]) == (2, 4)
    for head in range(4):
        network = value_network(model, 1, torch.eye(4)[head])
        expected = attention.W_V[head // 2] @ attention.W_O[head]
        torch.testing.assert_close(network.matrix, expected)
        assert network.biases == (None,)
    with pytest.raises(ConfigError, match=r"code has shape \(2,\); expected \[..., 4\]"):
        value_network(model, 1, torch.ones(2))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_codes_are_read_and_written(architecture: str, small_models: SmallModels) -> None:
    model = load_pretrained(small_models(architecture))
    shown = layout(model)
    assert (shown.n_layers, shown.n_heads, shown.d_model) == (2, 4, 32)
    assert shown.writable
    assert shown.causal
    with torch.no_grad():
        plain = model(TOKENS)
        hooked, seen = model.run_with_cache(
            TOKENS, names_filter=[*shown.pattern_hooks.values(), *shown.residual_hooks.values()])
        patterns = [seen[name] for name in shown.pattern_hooks.values()]
        assert torch.equal(plain, hooked)
        for pattern in patterns:
            torch.testing.assert_close(pattern.sum(dim=-1), torch.ones(2, 4, 6))
            assert (pattern.triu(1) == 0).all()
        for name, pattern in zip(shown.pattern_hooks.values(), patterns, strict=True):
            same = model.run_with_hooks(
                TOKENS, fwd_hooks=[(name, lambda a, hook, p=pattern: p.clone())])
            other = model.run_with_hooks(TOKENS, fwd_hooks=[
                (name, lambda a, hook: torch.roll(a, 1, dims=1))])
            assert torch.equal(same, plain)
            assert (other - plain).abs().max() > 1e-4


def test_a_pattern_that_is_only_shown_is_called_so(
    small_models: SmallModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pretrained, "add_seam", lambda *_: False)
    shown = layout(load_pretrained(small_models("gptj")))
    assert not shown.writable
    with pytest.raises(ConfigError, match="a code written there changes nothing"):
        shown.check_writable()


def test_our_own_models_have_a_layout() -> None:
    model = HookedTransformer(preset("smoke", "logic", "hyla").model)
    shown = layout(model)
    assert shown.writable
    assert shown.layers == tuple(range(model.config.n_layers))
    assert {*shown.pattern_hooks.values(), *shown.residual_hooks.values()} <= set(model.hook_dict)


@pytest.mark.parametrize(("architecture", "n_alive"), [
    ("gpt2", 0), *(pytest.param(*case, marks=pytest.mark.slow)
                   for case in (("llama", 0), ("neox", 0), ("gptj", 1)))])
def test_no_layer_keeps_its_pattern(
    architecture: str, n_alive: int, small_models: SmallModels
) -> None:
    import gc
    import weakref

    model = load_pretrained(small_models(architecture))
    kept: list[weakref.ref[Tensor]] = []

    def look(pattern: Tensor, hook: object) -> None:
        gc.collect()
        assert len([ref for ref in kept if ref() is not None]) <= n_alive
        kept.append(weakref.ref(pattern))

    with torch.no_grad():
        model.run_with_hooks(TOKENS, fwd_hooks=[
            (name, look) for name in layout(model).pattern_hooks.values()])
    assert len(kept) == model.cfg.n_layers > 1 + n_alive
    gc.collect()
    assert kept[-1]() is None


def test_weights_take_the_type_that_is_asked_for(small_models: SmallModels) -> None:
    for untrained in (False, True):
        model = load_pretrained(small_models("gpt2"), dtype=torch.float64, untrained=untrained)
        assert {p.dtype for p in model.parameters()} == {torch.float64}
    assert identity_error(load_pretrained(small_models("gpt2"), dtype=torch.float64),
                          TOKENS).max() < 1e-12


def _copy(source: Path, target: Path) -> Path:
    shutil.copytree(source, target)
    return target


def test_what_is_no_model_is_one_clear_error(small_models: SmallModels, tmp_path: Path) -> None:
    good = small_models("gpt2")
    (tmp_path / "empty").mkdir()
    pickled = _copy(good, tmp_path / "pickled")
    (pickled / "model.safetensors").rename(pickled / "pytorch_model.bin")
    bare = _copy(good, tmp_path / "bare")
    (bare / "model.safetensors").unlink()
    damaged = _copy(good, tmp_path / "damaged")
    (damaged / "model.safetensors").write_bytes(b"\0" * 64)
    strange = _copy(good, tmp_path / "strange")
    (strange / "config.json").write_text('{"model_type": "abacus"}')
    mute = _copy(good, tmp_path / "mute")
    (mute / "tokenizer.json").unlink()
    (mute / "tokenizer_config.json").unlink()
    files = [tmp_path / f"model{ending}" for ending in (".gguf", ".bin", ".safetensors", ".pt")]
    for file in files:
        file.write_bytes(b"GGUF")
    for folder, message in (
        *((file, "a file; expected the folder .*other formats") for file in files),
        (tmp_path / "nowhere", "model folder .* does not exist"),
        ("./nowhere", "does not exist"),
        (tmp_path / "empty", "holds no config.json"),
        (pickled, "holds no weights in safetensors; .*a pickle"),
        (bare, "holds no weights in safetensors; expected model.safetensors"),
        (damaged, "cannot be opened"),
        (strange, "cannot be opened.*abacus"),
        (mute, "holds no tokenizer"),
        ("somebody/no-such-model", "could not be fetched from the Hugging Face hub"),
    ):
        with pytest.raises(ArtifactError, match=message) as raised:
            load_pretrained(folder)
        assert len(str(raised.value).splitlines()) == 1


@pytest.mark.parametrize("kind", ["BertForMaskedLM", "RobertaModel", "DistilBertForMaskedLM"])
def test_an_encoder_is_no_causal_language_model(kind: str, tmp_path: Path) -> None:
    config = getattr(transformers, re.sub("(For.*|Model)$", "Config", kind))()
    config.architectures = [kind]
    config.save_pretrained(tmp_path)
    make_tokenizer().save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").touch()
    with pytest.raises(ConfigError, match=f"is a {kind}, .*; expected a causal language model"):
        load_pretrained(tmp_path)


def test_too_little_memory_is_no_matter_of_the_architecture(
    small_models: SmallModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    def exhausted(model: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(pretrained, "layout", exhausted)
    with pytest.raises(MemoryError):
        load_pretrained(small_models("gpt2"))


def test_weights_that_do_not_fit_are_refused(small_models: SmallModels, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    folder = _copy(small_models("llama"), tmp_path / "model")
    weights = load_file(folder / "model.safetensors")
    name = "model.layers.1.self_attn.v_proj.weight"
    save_file({k: v for k, v in weights.items() if k != name}, folder / "model.safetensors",
              {"format": "pt"})
    with pytest.raises(ArtifactError, match=f"lack {name}"):
        load_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "num_key_value_heads": 4}))
    with pytest.raises(ArtifactError):
        load_pretrained(folder)


def test_a_model_without_attention_is_refused(small_models: SmallModels) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        folder = small_models("mamba")
    with pytest.raises(ConfigError, match="Mamba"):
        load_pretrained(folder)
