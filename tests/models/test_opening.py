"""Is what cannot be opened refused before a weight is read, and a model in hand opened?"""

from __future__ import annotations

import copy
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from small_factorial import factorial_prompts
from small_language_models import SmallModels
from transformers import AutoModelForCausalLM, AutoTokenizer

import latentcode as lc
from latentcode import devices
from latentcode.errors import ConfigError
from latentcode.models import pretrained
from latentcode.models.pretrained import load_pretrained, one_device

TOKENS = torch.tensor([[5, 60, 7, 9]])


def _opened(folder: Path) -> tuple[Any, Any]:
    """Return the model of `transformers` as people have it, with its own attention."""
    return AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)


@pytest.mark.parametrize("architecture", ["gpt2", "llama"])
def test_a_model_in_hand_is_its_folder(small_models: SmallModels, architecture: str) -> None:
    wanted = load_pretrained(small_models(architecture))
    network, tokenizer = _opened(small_models(architecture))
    assert network.config._attn_implementation == "sdpa"
    plain = copy.deepcopy(network)(TOKENS).logits
    names = {*tokenizer.get_vocab()}
    bridge = lc.load_pretrained(network.train(), tokenizer=tokenizer)
    assert torch.equal(bridge(TOKENS), wanted(TOKENS))
    torch.testing.assert_close(bridge(TOKENS), plain, atol=1e-5, rtol=1e-5)
    assert bridge.original_model is network
    assert not network.training
    prompts = factorial_prompts()
    assert (lc.extract(bridge, prompts).scores
            == lc.extract(small_models(architecture), prompts).scores).all()
    fresh = lc.load_pretrained(_opened(small_models(architecture))[0], tokenizer=tokenizer,
                               untrained=True, seed=3)
    assert torch.equal(fresh(TOKENS), load_pretrained(
        small_models(architecture), untrained=True, seed=3)(TOKENS))
    assert {*tokenizer.get_vocab()} == names


def test_the_tokenizer_in_hand_is_the_one_that_is_used(small_models: SmallModels) -> None:
    network, tokenizer = _opened(small_models("gpt2"))
    assert tokenizer.add_tokens(["<|mine|>"]) == 1
    bridge = lc.load_pretrained(network, tokenizer=tokenizer)
    own = tokenizer.convert_tokens_to_ids("<|mine|>")
    assert bridge.tokenizer.convert_tokens_to_ids("<|mine|>") == own
    from latentcode.models.pretrained import untrained

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
    for untrained in (False, True):
        with pytest.raises(ConfigError, match=rf"model '.*' are quantised \({said}\).*; expected "
                                              "the model that it was made from"):
            load_pretrained(folder, untrained=untrained)


def test_types_and_implementations_go_by_name(small_models: SmallModels) -> None:
    folder = small_models("gpt2")
    model = load_pretrained(folder, dtype="bfloat16", attn_implementation="eager")
    assert {p.dtype for p in model.parameters()} == {torch.bfloat16}
    with pytest.raises(ConfigError, match="is 'sdpa', which never forms the attention pattern"):
        load_pretrained(folder, attn_implementation="sdpa")


def test_all_of_a_model_is_on_one_device(small_models: SmallModels) -> None:
    folder = small_models("gpt2")
    wanted = load_pretrained(folder)(TOKENS)
    maps: tuple[Any, ...] = ("cpu", {"": "cpu"}, {"transformer": "cpu", "lm_head": "cpu"})
    for device_map in maps:
        assert one_device(None, device_map) == torch.device("cpu")
        assert torch.equal(load_pretrained(folder, device_map=device_map)(TOKENS), wanted)
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
