"""Language models of few layers with random weights, saved as `save_pretrained` does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

WORDS = ("The capital of France Italy Peru Kenya is was river in Paris Rome Lima Nairobi and then "
         "we asked about naïve café")
SIZES = {"vocab_size": 400, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
         "intermediate_size": 64, "max_position_embeddings": 64, "bos_token_id": 0,
         "eos_token_id": 0}
GROUPED = {**SIZES, "num_key_value_heads": 2}
ARCHITECTURES: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt2": ("GPT2Config", {"vocab_size": 400, "n_embd": 32, "n_layer": 2, "n_head": 4,
                            "n_positions": 64, "bos_token_id": 0, "eos_token_id": 0}),
    "llama": ("LlamaConfig", GROUPED),
    "neox": ("GPTNeoXConfig", SIZES),
    "qwen2": ("Qwen2Config", GROUPED),
    "gemma2": ("Gemma2Config", {**GROUPED, "head_dim": 16}),
    # Attention of these is computed by transformers (`latentcode.models.pattern_seam`).
    "gptj": ("GPTJConfig", {"vocab_size": 400, "n_embd": 32, "n_layer": 4, "n_head": 4,
                            "n_positions": 64, "rotary_dim": 8, "bos_token_id": 0,
                            "eos_token_id": 0}),
    "opt": ("OPTConfig", {**{name: size for name, size in SIZES.items()
                             if name != "intermediate_size"}, "ffn_dim": 64,
                          "word_embed_proj_dim": 32, "pad_token_id": 0}),
    "xglm": ("XGLMConfig", {"vocab_size": 400, "d_model": 32, "num_layers": 2, "ffn_dim": 64,
                            "attention_heads": 4, "max_position_embeddings": 64,
                            "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}),
    # Has attention in its second layer alone.
    "lfm2": ("Lfm2Config", {**GROUPED, "layer_types": ["conv", "full_attention", "conv"],
                            "num_hidden_layers": 3}),
    # Has no attention at all.
    "mamba": ("MambaConfig", {"vocab_size": 400, "hidden_size": 32, "num_hidden_layers": 2,
                              "state_size": 4, "bos_token_id": 0, "eos_token_id": 0}),
}


class SmallModels:
    """Folders of models by the name of their architecture."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def __call__(self, architecture: str) -> Path:
        folder = self.root / architecture
        if not folder.exists():
            _save(architecture, folder)
        return folder


def _save(architecture: str, folder: Path) -> None:
    import torch
    import transformers
    from transformers.utils import logging

    logging.disable_progress_bar()
    name, sizes = ARCHITECTURES[architecture]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = transformers.AutoModelForCausalLM.from_config(
            getattr(transformers, name)(**sizes))
        with torch.no_grad():
            for parameter in model.parameters():  # biases too, which would be zero
                parameter.add_(0.1 * torch.randn_like(parameter))
    model.save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)


def make_tokenizer() -> Any:
    """Return a byte-level BPE tokenizer of 400 tokens."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=["<|endoftext|>"], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator([WORDS], trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<|endoftext|>", eos_token="<|endoftext|>",
        unk_token="<|endoftext|>", add_bos_token=True)
