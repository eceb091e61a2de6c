"""Does a model go on with the same text, codes and patches, with keys and values kept or not?"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import transformers
from small_bridges import make
from small_language_models import GROUPED, SmallModels, make_tokenizer
from torch import Tensor
from transformers import AutoModelForCausalLM, DynamicCache

import latentcode as lc
from latentcode.errors import ConfigError, ProbeError
from latentcode.models.hypernetwork import effective_codes, two_ways
from latentcode.models.patched.heads import unshared
from latentcode.models.pretrained import load_pretrained
from latentcode.probes.generation import Generation
from latentcode.prompts import load_language_model

PROMPT = "The capital of France is"
N = 6
N_DRAWS = 120
COLD = 0.03
"""A temperature: at 1, the four best of the small model are nearly equally probable."""
ARCHITECTURES = ["gpt2", "llama", "neox", "qwen2", "gemma2"]


@pytest.fixture(scope="module")
def sliding(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Gemma 2 of which every other layer sees four tokens."""
    folder = tmp_path_factory.mktemp("sliding")
    with torch.random.fork_rng():
        torch.manual_seed(1)
        model = AutoModelForCausalLM.from_config(transformers.Gemma2Config(
            **GROUPED, head_dim=16, sliding_window=4, tie_word_embeddings=False))
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.3 * torch.randn_like(parameter))
    model.save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)
    return folder


@cache
def _model(folder: Path) -> Any:
    """The model in float64, opened once: tests leave it as they find it."""
    return load_pretrained(folder, dtype=torch.float64)


@cache
def _plain(folder: Path) -> Generation:
    return lc.generate(_model(folder), PROMPT, max_new_tokens=N, stop=False, logits=True)


def _alike(found: Generation, wanted: Generation, tolerance: float = 1e-9) -> None:
    assert found.tokens == wanted.tokens
    np.testing.assert_allclose(found.logits, wanted.logits, atol=max(tolerance, 1e-5))
    np.testing.assert_allclose(found.scores, wanted.scores, atol=max(tolerance, 1e-6))
    # Gemma's norms are in float32 whatever the weights are, and round as the processor does.
    np.testing.assert_allclose(
        found.table["logprob"], wanted.table["logprob"], atol=max(tolerance, 2e-6))


def _of_transformers(folder: Path, tokens: Tensor, n: int) -> tuple[list[int], np.ndarray]:
    """What `transformers` says by itself, and the rows of its attention for each new token."""
    network = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float64, attn_implementation="eager").eval()
    with torch.no_grad():
        text = network.generate(tokens, max_new_tokens=n, do_sample=False, eos_token_id=None,
                                attention_mask=torch.ones_like(tokens), use_cache=False)
        shown = network(text[:, :-1], output_attentions=True, use_cache=False).attentions
    rows = torch.stack([layer[0, :, tokens.shape[1] - 1:] for layer in shown])  # [L, H, N, K]
    return text[0].tolist(), rows.permute(2, 0, 1, 3).numpy()


@pytest.mark.parametrize("architecture", [*ARCHITECTURES, "sliding", "gptj", "opt"])
def test_it_says_what_transformers_says(
    small_models: SmallModels, sliding: Path, architecture: str
) -> None:
    folder = sliding if architecture == "sliding" else small_models(architecture)
    model = _model(folder)
    cached, whole = (lc.generate(model, PROMPT, max_new_tokens=N, stop=False, logits=True,
                                 cache=kept) for kept in (True, False))
    assert cached.cached
    assert not whole.cached
    _alike(cached, whole)
    tokens = torch.tensor([cached.tokens[:cached.n_prompt]])
    text, rows = _of_transformers(folder, tokens, N)
    assert list(cached.tokens) == text
    # What comes next is not the same at every token, or a mistake would show nothing.
    assert (np.ptp(cached.logits, axis=0) > 1e-3).all()
    np.testing.assert_allclose(cached.scores[..., :-1], rows, atol=1e-6)
    assert not cached.scores[..., -1].any()  # the last token is said, and sees nothing yet
    assert cached.text == model.tokenizer.decode(text[-N:])
    assert cached.table["position"].tolist() == list(range(len(text) - N, len(text)))


def _halved(base: Tensor, source: Tensor | None, problem: lc.Problem) -> Tensor:
    assert source is None
    return 0.5 * base


def _without_head(z: Tensor, hook: object) -> Tensor:
    z = z.clone()
    z[:, :, 2] = 0.0
    return z


PATCHES: dict[str, dict[str, Any]] = {
    "head": {"patches": lc.Patch("zero_ablation", layers=1, heads=3)},
    "prompt": {"patches": lc.Patch("zero_ablation", layers=(0, 1), heads=1, queries="prompt")},
    "generated": {"patches": lc.Patch(_halved, layers=0, queries="generated", keys=[0, -1])},
    "values": {"patches": lc.Patch(_halved, where="everything", layers=1, site="value",
                                   keys="generated")},
    "residual": {"patches": [lc.Patch(_halved, layers=1, site="residual", queries=[-2, 7])]},
    "z": {"patches": lc.Patch(_halved, layers=0, site="z", heads=2, queries=[-2, 7])},
    "renormalised": {"patches": lc.Patch("zero_ablation", layers=1, keys=0, queries="generated",
                                         renormalize=True)},
    "several": {"patches": lc.Patch(_halved, layers=0, heads=0)
                + lc.Patch("zero_ablation", layers=1, site="value", keys=1, where="everything")},
    "hook": {"fwd_hooks": [("blocks.1.attn.hook_z", _without_head)]},
}


@pytest.mark.parametrize("patch", PATCHES)
@pytest.mark.parametrize("architecture", ["llama", "sliding", "gptj"])
def test_patches_land_on_the_same_places_with_and_without_a_cache(
    small_models: SmallModels, sliding: Path, architecture: str, patch: str
) -> None:
    folder = sliding if architecture == "sliding" else small_models(architecture)
    model, plain = _model(folder), _plain(folder)
    cached, whole = (lc.generate(model, PROMPT, max_new_tokens=N, stop=False, logits=True,
                                 cache=kept, **PATCHES[patch]) for kept in (True, False))
    _alike(cached, whole)
    assert not np.allclose(cached.logits, plain.logits, atol=1e-4)
    # The first new token is said by the prompt alone.
    first = np.allclose(cached.logits[0], plain.logits[0], atol=1e-9)
    assert first == (patch in ("generated", "values", "renormalised"))


@pytest.mark.parametrize(("architecture", "site"), [
    ("gpt2", "code"), ("llama", "code"), ("llama", "z")])
def test_a_head_without_codes_or_output_is_one_without_weights(
    small_models: SmallModels, tmp_path: Path, architecture: str, site: str
) -> None:
    """Independent of hooks: rows of W_O are zero instead."""
    folder = small_models(architecture)
    network = AutoModelForCausalLM.from_pretrained(folder)
    head = slice(3 * 8, 4 * 8)
    layer = 1 if site == "code" else 0  # codes of the layer above depend on it
    with torch.no_grad():
        if architecture == "gpt2":
            network.transformer.h[layer].attn.c_proj.weight[head] = 0.0
        else:
            network.model.layers[layer].self_attn.o_proj.weight[:, head] = 0.0
    network.save_pretrained(tmp_path / "cut")
    make_tokenizer().save_pretrained(tmp_path / "cut")
    found = lc.generate(_model(folder), PROMPT, max_new_tokens=N, stop=False,
                        patches=lc.Patch("zero_ablation", layers=layer, heads=3, site=site))
    tokens = torch.tensor([found.tokens[:found.n_prompt]])
    wanted, rows = _of_transformers(tmp_path / "cut", tokens, N)
    assert list(found.tokens) == wanted
    if site == "code":
        rows[:, 1, 3] = 0.0
    np.testing.assert_allclose(found.scores[..., :-1], rows, atol=1e-6)


@pytest.mark.parametrize("n_tokens", [4, 6])  # as many as heads, and more
def test_values_that_lie_otherwise_are_not_written(tmp_path: Path, n_tokens: int) -> None:
    make("DeepseekV2ForCausalLM", tmp_path / "latent")  # [B, H, T, d]
    model = load_pretrained(tmp_path / "latent")
    with pytest.raises(ConfigError, match=r"hook_v shows \[1, 4, .* tokens; expected \[B, T,"):
        lc.generate(model, list(range(5, 5 + n_tokens)), max_new_tokens=1, stop=False,
                    patches=lc.Patch("zero_ablation", "everything", site="value", keys=0))


def test_codes_written_at_positions_are_those_of_a_pass_by_hand(small_models: SmallModels) -> None:
    """Independent of the scopes: absolute positions in whole passes."""
    model = _model(small_models("gpt2"))
    patch = lc.Patch("zero_ablation", layers=1, heads=2, queries=[-1, 6, 8], keys=[0, 5])
    found = lc.generate(model, PROMPT, max_new_tokens=N, stop=False, patches=patch)
    p = found.n_prompt

    def erase(pattern: Tensor, hook: object) -> Tensor:
        pattern = pattern.clone()
        for query in (p - 1, 6, 8):
            for key in (0, 5):
                if query < pattern.shape[2] and key < pattern.shape[3]:
                    pattern[:, 2, query, key] = 0.0
        return pattern

    tokens = list(found.tokens[:p])
    for i in range(N):
        with torch.no_grad():
            logits = model.run_with_hooks(torch.tensor([tokens]), fwd_hooks=[
                ("blocks.1.attn.hook_pattern", erase)])
        tokens.append(int(logits[0, -1].argmax()))
        assert found.table["logprob"][i] == pytest.approx(
            float(logits[0, -1].log_softmax(0)[tokens[-1]]), abs=1e-9)
    assert tokens == list(found.tokens)


def test_the_identity_changes_nothing_and_noise_does(small_models: SmallModels) -> None:
    model = load_pretrained(small_models("llama"))
    options: dict[str, Any] = {"max_new_tokens": N, "stop": False, "logits": True}
    plain = lc.generate(model, PROMPT, **options)
    same = lc.generate(model, PROMPT, patches=lc.Patch("identity", layers=(0, 1)), **options)
    assert same.tokens == plain.tokens
    np.testing.assert_array_equal(same.logits, plain.logits)
    np.testing.assert_array_equal(same.scores, plain.scores)
    noise = [lc.generate(model, PROMPT, patches=lc.Patch("random", layers=(0, 1)), seed=seed,
                         **options) for seed in (0, 0, 1)]
    np.testing.assert_array_equal(noise[0].logits, noise[1].logits)
    for other in (plain, noise[2]):
        assert not np.allclose(noise[0].logits, other.logits, atol=1e-3)


@pytest.mark.slow
def test_tokens_are_drawn_by_their_probabilities(small_models: SmallModels) -> None:
    model = _model(small_models("gpt2"))
    prompt = [5, 60, 7]
    first = model(torch.tensor([prompt]))[0, -1]
    drawn = [lc.generate(model, prompt, max_new_tokens=1, temperature=COLD, top_k=4, seed=seed,
                         layers=()).tokens[-1] for seed in range(N_DRAWS)]
    best = first.topk(4)
    wanted = dict(zip(best.indices.tolist(), (best.values / COLD).softmax(0).tolist(), strict=True))
    assert {*drawn} <= {*wanted}
    for token, probability in wanted.items():
        deviation = (probability * (1 - probability) / N_DRAWS) ** 0.5
        assert abs(drawn.count(token) / N_DRAWS - probability) < 4 * deviation + 1e-9
    texts = [lc.generate(model, prompt, temperature=1.0, seed=seed, stop=False).tokens
             for seed in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]
    greedy = lc.generate(model, prompt, stop=False)
    assert lc.generate(model, prompt, temperature=3.0, top_k=1, stop=False).tokens == greedy.tokens


def test_a_text_ends_where_the_model_says_so(small_models: SmallModels) -> None:
    model = load_pretrained(small_models("gpt2"))
    plain = lc.generate(model, PROMPT, max_new_tokens=N, stop=False)
    end = plain.tokens[plain.n_prompt + 2]
    at = plain.tokens[plain.n_prompt:].index(end)
    model.original_model.generation_config.eos_token_id = [3, end]
    ended = lc.generate(model, PROMPT, max_new_tokens=N, logits=True)
    assert ended.tokens == plain.tokens[:plain.n_prompt + at + 1]
    assert len(ended) == len(ended.scores) == len(ended.logits) == at + 1  # type: ignore[arg-type]
    assert ended.scores.shape[-1] == len(ended.tokens)
    assert lc.generate(model, PROMPT, max_new_tokens=N, stop=False).tokens == plain.tokens


def test_codes_of_some_layers_are_codes_as_any(
    small_models: SmallModels, tmp_path: Path
) -> None:
    model = load_pretrained(small_models("llama"))
    whole = lc.generate(model, PROMPT, max_new_tokens=N, stop=False)
    some = lc.generate(model, PROMPT, max_new_tokens=N, stop=False, layers=1)
    assert some.layers == (1,)
    np.testing.assert_array_equal(some.scores, whole.scores[:, 1:])
    assert lc.generate(model, PROMPT, layers=()).scores.shape[1] == 0
    codes = whole.codes(0, -1)
    last = whole.n_prompt - 1
    assert [pair.name for pair in codes.pairs] == ["query->0", f"query->{last}"]
    for layer in (0, 1):
        np.testing.assert_array_equal(codes.select(layer=layer, pair=f"query->{last}"),
                                      whole.scores[:, layer, :, last])
    assert whole.codes().scores.shape == (N, 2, whole.n_prompt, 4)
    codes.save(tmp_path / "codes")
    np.testing.assert_array_equal(lc.LatentCodes.load(tmp_path / "codes").scores, codes.scores)
    assert repr(PROMPT) in repr(whole)
    assert codes.meta["temperature"] == 0.0
    with pytest.raises(ConfigError, match=f"key is {last + 1}; expected a position of the prompt"):
        whole.codes(last + 1)


def test_a_model_that_was_trained_here_goes_on_by_whole_passes() -> None:
    asked = load_language_model("text-softmax")
    prompt = "def name(self):\n    return self."
    found = lc.generate("text-softmax", prompt, max_new_tokens=6, stop=False)
    assert not found.cached
    tokens = asked.encode(prompt)[0]
    for i in range(6):
        with torch.no_grad():
            logits, shown = asked.model.run_with_cache(torch.tensor([tokens]))
        np.testing.assert_allclose(found.scores[i, 1, :, :len(tokens)],
                                   shown["blocks.1.attn.hook_pattern"][0, :, -1], atol=1e-6)
        tokens.append(int(logits[0, -1].argmax()))
    assert list(found.tokens) == tokens
    cut = lc.generate("text-softmax", prompt, max_new_tokens=6, stop=False,
                      patches=lc.Patch("zero_ablation", layers=(0, 1)))
    assert not np.allclose(cut.table["logprob"], found.table["logprob"][:len(cut)], atol=1e-3)


def test_what_is_kept_wrongly_is_not_used(
    small_models: SmallModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers import DynamicCache

    model = load_pretrained(small_models("gpt2"))
    wanted = lc.generate(model, PROMPT, max_new_tokens=N, stop=False, cache=False)
    update = DynamicCache.update

    def late(self: Any, k: Tensor, v: Tensor, layer: int, *more: Any, **rest: Any) -> Any:
        keys, values = update(self, k, v, layer, *more, **rest)
        return keys, values if values.shape[2] == v.shape[2] else values.roll(1, 2)

    monkeypatch.setattr(DynamicCache, "update", late)
    found = lc.generate(model, PROMPT, max_new_tokens=N, stop=False)
    assert not found.cached
    assert found.tokens == wanted.tokens


@pytest.mark.parametrize(("options", "message"), [
    ({"max_new_tokens": 0}, "max_new_tokens is 0; expected a whole number of at least 1"),
    ({"max_new_tokens": 64}, "tokens, and max_new_tokens is 64; expected at most 64 tokens in all"),
    ({"temperature": -1.0}, r"temperature is -1\.0; expected a number of at least 0"),
    ({"prompt": [1, 400]}, "the prompt has token 400; expected ids below 400"),
    ({"prompt": []}, "the prompt has no tokens; expected at least one"),
    ({"patches": lc.Patch("interchange")}, "'interchange' takes activations from a source"),
    ({"patches": lc.Patch("zero_ablation", where="context")}, "where is 'context', and a text"),
    ({"patches": lc.Patch("zero_ablation", heads=4)}, "head 4 at site 'code'; expected 0 to 3"),
    ({"patches": lc.Patch("zero_ablation", queries=40)}, "queries has 40; expected positions from"),
])
def test_what_it_does_not_take(
    small_models: SmallModels, options: dict[str, Any], message: str
) -> None:
    model = load_pretrained(small_models("gpt2"))
    given = {"prompt": PROMPT, **options}
    with pytest.raises((ConfigError, ProbeError), match=message):
        lc.generate(model, given.pop("prompt"), **given)


def test_of_a_hybrid_the_layers_with_attention_are_read_and_written(
    small_models: SmallModels
) -> None:
    model = _model(small_models("lfm2"))
    options: dict[str, Any] = {"max_new_tokens": N, "stop": False, "logits": True}
    plain = lc.generate(model, PROMPT, **options)
    assert plain.layers == (1,)
    for patches in ((), lc.Patch("zero_ablation", layers=1, heads=3)):
        found, whole = (lc.generate(model, PROMPT, patches=patches, cache=kept, **options)
                        for kept in (True, False))
        _alike(found, whole)
    assert not np.allclose(found.logits, plain.logits, atol=1e-4)
    with pytest.raises(ConfigError, match="layer 0 of this model has no attention"):
        lc.generate(model, PROMPT, patches=lc.Patch("zero_ablation", layers=0))


@pytest.mark.parametrize("name", ["llama", pytest.param("text-softmax", marks=pytest.mark.slow)])
def test_threads_on_one_model_take_turns(name: str, small_models: SmallModels) -> None:
    asked = load_language_model(small_models(name) if name == "llama" else name)
    model, tokens = asked.model, torch.tensor([[5, 6, 7, 8]])
    prompts = pd.DataFrame({"prompt": ["a b c", "c b"], "query": -1, "key": 0})
    say = partial(lc.generate, asked, "a b c", max_new_tokens=2, logits=True)
    jobs: list[Callable[[], Any]] = [
        lambda: lc.extract(asked, prompts).scores,
        lambda: say().logits,
        lambda: say(patches=lc.Patch("zero_ablation", layers=0)).logits,
        lambda: say(fwd_hooks=[("blocks.1.attn.hook_z", _without_head)]).logits,
        lambda: unshared(model),
        lambda: effective_codes(model, tokens, 1).numpy()]
    if name == "text-softmax":  # a bridge's own methods are TransformerLens'
        jobs += [lambda: model.run_with_cache(tokens)[1]["pattern", 1].detach().numpy(),
                 lambda: two_ways(model, tokens[0], 1, 2).usual.numpy()]
    wanted = [job() for job in jobs]
    with ThreadPoolExecutor(len(jobs)) as pool:
        found = list(pool.map(lambda job: job(), jobs * 3))
    for one, expected in zip(found, wanted * 3, strict=True):
        np.testing.assert_array_equal(one, expected)


@pytest.mark.parametrize("name", ["past_key_values", "cache"])
def test_keys_are_kept_by_the_name_of_either_transformers(
    name: str, small_models: SmallModels
) -> None:
    model = _model(small_models("llama"))
    attention = model.blocks[0].attn
    given: dict[str, Any] = {}

    def see(module: Any, inputs: Any, options: dict[str, Any], output: Any) -> None:
        given.update({**options, "inputs": inputs})

    with attention.register_forward_hook(see, with_kwargs=True):
        model(torch.tensor([[5, 6, 7]]), use_cache=False)
    kept = DynamicCache()
    options = {key: given[key] for key in given.keys() - {"inputs", "past_key_values", "cache"}}
    attention(*given["inputs"], **options, **{name: kept})
    assert kept.get_seq_length() == 3
