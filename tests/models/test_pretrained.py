"""Pretrained models: opened by name, refused before a weight is read, read and written."""

from __future__ import annotations

import copy
import json
import re
import shutil
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from small_factorial import factorial_prompts
from small_language_models import SmallModels, make_tokenizer
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer

import latentcode as lc
from latentcode import devices
from latentcode.errors import ArtifactError, ConfigError
from latentcode.models import pretrained
from latentcode.models.hypernetwork import identity_error, value_network
from latentcode.models.pretrained import layout, load_pretrained, one_device, untrained
from latentcode.models.transformer import HookedTransformer
from latentcode.presets import preset

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
    for fresh in (False, True):
        model = load_pretrained(small_models("gpt2"), dtype=torch.float64, untrained=fresh)
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
        (files[0], "cannot be opened"),
        *((file, "a file; expected the folder .*other formats") for file in files[1:]),
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


def test_a_gguf_file_is_the_model_that_it_was_made_from(tmp_path: Path) -> None:
    from gguf import GGUFWriter

    generator = torch.Generator().manual_seed(0)
    words = ["<unk>", "<s>", "</s>", *"abcdefgh", "ab", "abc"]
    width, heads, inner = 32, 2, 48
    file = tmp_path / "tiny.gguf"
    writer = GGUFWriter(file, "llama")
    writer.add_block_count(1)
    writer.add_context_length(16)
    writer.add_embedding_length(width)
    writer.add_feed_forward_length(inner)
    writer.add_head_count(heads)
    writer.add_head_count_kv(1)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(width // heads)
    writer.add_rope_freq_base(10_000.0)
    writer.add_vocab_size(len(words))
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(words)
    writer.add_token_types([3, 3, 3, *[1] * (len(words) - 3)])
    writer.add_token_merges(["a b", "ab c"])
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    shapes = {
        "token_embd": (len(words), width), "output": (len(words), width), "output_norm": (width,),
        "blk.0.attn_norm": (width,), "blk.0.ffn_norm": (width,), "blk.0.attn_q": (width, width),
        "blk.0.attn_k": (width // 2, width), "blk.0.attn_v": (width // 2, width),
        "blk.0.attn_output": (width, width), "blk.0.ffn_gate": (inner, width),
        "blk.0.ffn_up": (inner, width), "blk.0.ffn_down": (width, inner)}
    weights = {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}
    for name, weight in weights.items():
        writer.add_tensor(f"{name}.weight", weight.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    model = load_pretrained(file)
    network = model.original_model
    assert model.cfg.model_name == str(file)
    assert (model.cfg.n_layers, model.cfg.n_heads) == (1, heads)
    assert network.lm_head.weight.detach().tolist() == weights["output"].tolist()
    assert len(model.to_tokens("abcdh")[0]) >= 3
    logits = model(torch.tensor([[3, 4, 5]]))
    assert torch.isfinite(logits).all()
    with pytest.raises(ConfigError, match="revision is 'main'"):
        load_pretrained(file, revision="main")
    whole = file.read_bytes()
    for share in (0.05, 0.3, 0.8):
        file.write_bytes(whole[:int(share * len(whole))])
        with pytest.raises(ArtifactError, match=r"whole file \.gguf") as raised:
            load_pretrained(file)
        assert len(str(raised.value).splitlines()) == 1


def test_a_missing_package_is_called_by_its_extra(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def lacking(*_: object, **__: object) -> None:
        raise ImportError("Please install gguf>=0.10.0")

    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    monkeypatch.setattr(transformers.AutoConfig, "from_pretrained", lacking)
    with pytest.raises(ArtifactError, match=r"pip install 'latentcode\[gguf\]'"):
        load_pretrained(tmp_path / "model.gguf")


@pytest.mark.parametrize("kind", [
    "BertForMaskedLM", "RobertaModel", "DistilBertForMaskedLM", "ModernBertForMaskedLM",
    "T5EncoderModel", "T5ForConditionalGeneration"])
def test_an_encoder_is_no_causal_language_model(kind: str, tmp_path: Path) -> None:
    config = getattr(transformers, re.sub("(For.*|EncoderModel|Model)$", "Config", kind))()
    config.architectures = [kind]
    config.save_pretrained(tmp_path)
    make_tokenizer().save_pretrained(tmp_path)
    (tmp_path / "modules.json").write_text("[]")  # as folders of sentence-transformers have
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


FEW = torch.tensor([[5, 60, 7, 9]])


def _opened(folder: Path) -> tuple[Any, Any]:
    """Return the model of `transformers` as people have it, with its own attention."""
    return AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)


@pytest.mark.parametrize("architecture", ["gpt2", "llama"])
def test_a_model_in_hand_is_its_folder(small_models: SmallModels, architecture: str) -> None:
    wanted = load_pretrained(small_models(architecture))
    network, tokenizer = _opened(small_models(architecture))
    assert network.config._attn_implementation == "sdpa"
    plain = copy.deepcopy(network)(FEW).logits
    names = {*tokenizer.get_vocab()}
    bridge = lc.load_pretrained(network.train(), tokenizer=tokenizer)
    assert torch.equal(bridge(FEW), wanted(FEW))
    torch.testing.assert_close(bridge(FEW), plain, atol=1e-5, rtol=1e-5)
    assert bridge.original_model is network
    assert not network.training
    prompts = factorial_prompts()
    assert (lc.extract(bridge, prompts).scores
            == lc.extract(small_models(architecture), prompts).scores).all()
    fresh = lc.load_pretrained(_opened(small_models(architecture))[0], tokenizer=tokenizer,
                               untrained=True, seed=3)
    assert torch.equal(fresh(FEW), load_pretrained(
        small_models(architecture), untrained=True, seed=3)(FEW))
    assert {*tokenizer.get_vocab()} == names


def test_the_tokenizer_in_hand_is_the_one_that_is_used(small_models: SmallModels) -> None:
    network, tokenizer = _opened(small_models("gpt2"))
    assert tokenizer.add_tokens(["<|mine|>"]) == 1
    bridge = lc.load_pretrained(network, tokenizer=tokenizer)
    own = tokenizer.convert_tokens_to_ids("<|mine|>")
    assert bridge.tokenizer.convert_tokens_to_ids("<|mine|>") == own
    assert untrained(bridge).tokenizer.convert_tokens_to_ids("<|mine|>") == own


@pytest.mark.parametrize(("field", "value", "said"), [
    ("quantization_config", {"quant_method": "bitsandbytes", "load_in_4bit": True},
     "bitsandbytes"),
    ("quantization_config", {"quant_method": "gptq", "bits": 8}, "gptq"),
    ("quantization_config", {"quant_method": "fp8"}, "fp8"),
])
def test_quantised_weights_are_refused(
    small_models: SmallModels, tmp_path: Path, field: str, value: object, said: str
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(small_models("llama"), folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, field: value}))
    (folder / "model.safetensors").write_bytes(b"never read")
    for fresh in (False, True):
        with pytest.raises(ConfigError, match=rf"model '.*' are quantised \({said}\).*; expected "
                                              "the model that it was made from"):
            load_pretrained(folder, untrained=fresh)


def test_types_and_implementations_go_by_name(small_models: SmallModels) -> None:
    folder = small_models("gpt2")
    model = load_pretrained(folder, dtype="bfloat16", attn_implementation="eager")
    assert {p.dtype for p in model.parameters()} == {torch.bfloat16}
    with pytest.raises(ConfigError, match="is 'sdpa', which never forms the attention pattern"):
        load_pretrained(folder, attn_implementation="sdpa")


def test_all_of_a_model_is_on_one_device(small_models: SmallModels) -> None:
    folder = small_models("gpt2")
    wanted = load_pretrained(folder)(FEW)
    maps: tuple[Any, ...] = ("cpu", {"": "cpu"}, {"transformer": "cpu", "lm_head": "cpu"})
    for device_map in maps:
        assert one_device(None, device_map) == torch.device("cpu")
        assert torch.equal(load_pretrained(folder, device_map=device_map)(FEW), wanted)
    refused: tuple[tuple[Any, str], ...] = (
        ({"transformer": "cpu", "lm_head": "disk"}, "which spreads a model over devices"),
        ({"": "disk"}, "or the disk"), ("balanced", "expected 'auto', or one device"),
        ({"transformer": 0, "lm_head": 1}, "spreads"), ("gpu", "device is 'gpu'; expected cpu"))
    for device_map, message in refused:
        with pytest.raises(ConfigError, match=message):
            load_pretrained(folder, device_map=device_map)
    with pytest.raises(ConfigError, match="device is 'cpu' and device_map is 'auto'; expected one"):
        load_pretrained(folder, device="cpu", device_map="auto")


def test_auto_is_the_gpu_with_the_most_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert one_device(None, "auto") == torch.device("cpu")
    with pytest.raises(ConfigError, match=r"device is 'cuda', but torch .* finds no CUDA device"):
        one_device("cuda", None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    monkeypatch.setattr(pretrained, "available_memory", lambda gpu: (5, 9, 2)[gpu.index])
    assert one_device(None, "auto") == torch.device("cuda", 1)
    assert one_device(None, {"": 2}) == one_device(None, 2) == torch.device("cuda", 2)
    with pytest.raises(ConfigError, match="expected an index below 3"):
        one_device(None, 3)


def test_memory_is_about_what_the_machine_has() -> None:
    left = devices.available_memory(torch.device("cpu"))
    assert left is None or 2**24 < left < 2**44


def test_memory_is_what_machine_and_container_leave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cpu, machine, group = torch.device("cpu"), tmp_path / "meminfo", tmp_path / "cgroup"
    monkeypatch.setattr(devices, "MEMINFO", machine)
    monkeypatch.setattr(devices, "GROUPS", group)
    assert devices.available_memory(cpu) is None
    machine.write_text("MemTotal:       900 kB\nMemAvailable:       700 kB\n")
    assert devices.available_memory(cpu) == 700 * 1024
    group.mkdir()
    (group / "memory.current").write_text("500000\n")
    (group / "memory.stat").write_text("anon 1\ninactive_file 100000\n")
    for most, left in (("max\n", 700 * 1024), ("600000\n", 200_000), ("300000\n", 0)):
        (group / "memory.max").write_text(most)
        assert devices.available_memory(cpu) == left
    (group / "memory.max").unlink()
    old = group / "memory"  # of version 1
    old.mkdir()
    (old / "memory.limit_in_bytes").write_text("400000\n")
    (old / "memory.usage_in_bytes").write_text("300000\n")
    (old / "memory.stat").write_text("total_inactive_file 50000\n")
    assert devices.available_memory(cpu) == 150_000
    assert [devices.readable(n) for n in (0, 1, 1023, 1024, 5 * 2**39)] == [
        "0 B", "1 B", "1023 B", "1 KiB", "2.5 TiB"]


def weights(model: Any) -> dict[str, torch.Tensor]:
    return {name: weight.detach() for name, weight in model.named_parameters()}


def same(one: Any, other: Any) -> bool:
    assert set(weights(one)) == set(weights(other))
    return all(torch.equal(weight, weights(other)[name]) for name, weight in weights(one).items())


@pytest.mark.parametrize("which", ["text-softmax", "gpt2", "llama", "gemma2"])
def test_fresh_weights_are_seeded_and_leave_the_rest_alone(
    which: str, small_models: SmallModels
) -> None:
    model: Any = (lc.load_model(which) if which == "text-softmax"
                  else load_pretrained(small_models(which)))
    before = {name: weight.clone() for name, weight in weights(model).items()}
    state = torch.random.get_rng_state()
    first, again, other = (untrained(model, seed) for seed in (3, 3, 4))
    assert torch.equal(torch.random.get_rng_state(), state)
    assert type(first) is type(model)
    assert not first.training
    assert same(first, again)
    assert not same(first, other)
    assert not same(first, model)
    assert all(torch.equal(weight, weights(model)[name]) for name, weight in before.items())
    with torch.no_grad():
        tokens = TOKENS % 300  # which all of these models know
        logits, trained = first(tokens), model(tokens)
    assert logits.shape == trained.shape
    assert (logits - trained).abs().max() > 1e-2


def test_of_a_run_they_are_its_initial_weights() -> None:
    run = lc.load_run("text-softmax")
    initial = HookedTransformer(run.config.model, seed=run.config.training.seed)
    assert same(untrained(run.load_model(), run.config.training.seed), initial)


@pytest.mark.parametrize("architecture", ["gpt2", "llama", "gemma2"])
def test_of_a_bridge_they_are_those_of_its_name(
    architecture: str, small_models: SmallModels
) -> None:
    folder = small_models(architecture)
    model = untrained(load_pretrained(folder), 5)
    named = load_pretrained(folder, untrained=True, seed=5)
    assert same(model, named)
    with torch.no_grad():
        assert torch.equal(model(TOKENS), named(TOKENS))
    assert model.cfg.model_name == named.cfg.model_name
    assert torch.equal(model.to_tokens("Lima and Rome"), named.to_tokens("Lima and Rome"))


def test_they_have_the_type_of_the_model(small_models: SmallModels) -> None:
    bridge = load_pretrained(small_models("gpt2"), dtype=torch.float64)
    for model in (bridge, lc.load_model("text-softmax").double()):
        assert {w.dtype for w in untrained(model).parameters()} == {torch.float64}
