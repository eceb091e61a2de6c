"""Small tokenizers of ten families, made from their parts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

WORDS = ("un", "re", "do", "über", "東京", "Un", "caf\u00e9", "cafe\u0301")
TEXT = " ".join(WORDS)
SPECIAL = ("<unk>", "<s>", "</s>")


@dataclass(frozen=True)
class Family:
    """Parts of a tokenizer.

    model     `BPE`, `Unigram`, `WordLevel` or `WordPiece`
    splitter  `bytes`, `metaspace` or `words`
    template  what stands around a text; None: nothing
    bos       its BOS token; None: it has none
    follows   whether `add_bos_token` changes what it does
    """

    model: str
    splitter: str
    template: str | None = None
    bos: str | None = "<s>"
    follows: bool = True


FAMILIES = {
    "byte-level BPE without BOS": Family("BPE", "bytes", bos=None),
    "byte-level BPE, BOS unused": Family("BPE", "bytes"),
    "byte-level BPE, BOS by template": Family("BPE", "bytes", "<s> $A"),
    "sentencepiece BPE, BOS by template": Family("BPE", "metaspace", "<s> $A"),
    "sentencepiece BPE, BOS unused": Family("BPE", "metaspace"),
    "Unigram with an end": Family("Unigram", "metaspace", "$A </s>", bos=None),
    "Unigram between BOS and an end": Family("Unigram", "metaspace", "<s> $A </s>"),
    "WordLevel, BOS by template": Family("WordLevel", "words", "<s> $A"),
    "WordLevel without BOS": Family("WordLevel", "words", bos=None),
    "WordPiece between marks": Family("WordPiece", "words", "[CLS] $A [SEP]", bos=None),
}


def make_tokenizer(family: str, add_bos_token: bool | None = None, **options: Any) -> Any:
    """Return a tokenizer of `transformers`.

    add_bos_token  as in its configuration; None: absent
    options        of `PreTrainedTokenizerFast`, too
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    parts = FAMILIES[family]
    marks = [*SPECIAL, *(["[CLS]", "[SEP]"] if parts.model == "WordPiece" else [])]
    unknown = {} if parts.model == "Unigram" else {"unk_token": "<unk>"}
    tokenizer = Tokenizer(getattr(models, parts.model)(**unknown))
    splitter, decoder = {
        "bytes": (pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()),
        "metaspace": (pre_tokenizers.Metaspace(prepend_scheme="first"), decoders.Metaspace(
            prepend_scheme="first")),
        "words": (pre_tokenizers.Whitespace(), decoders.WordPiece()),
    }[parts.splitter]
    tokenizer.pre_tokenizer, tokenizer.decoder = splitter, decoder
    name = {"BPE": "Bpe"}.get(parts.model, parts.model)
    trainer = getattr(trainers, f"{name}Trainer")(
        vocab_size=390, special_tokens=marks, show_progress=False, **(
            {"unk_token": "<unk>"} if parts.model == "Unigram" else {}), **(
            {"initial_alphabet": pre_tokenizers.ByteLevel.alphabet()}
            if parts.splitter == "bytes" else {}))
    tokenizer.train_from_iterator([TEXT], trainer)
    if parts.template is not None:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=parts.template, special_tokens=[
                (mark, tokenizer.token_to_id(mark)) for mark in marks if mark in parts.template])
    names = {} if parts.bos is None else {"bos_token": parts.bos}
    if add_bos_token is not None:
        names["add_bos_token"] = add_bos_token
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="<unk>", eos_token="</s>", **names, **options)


def bridge_of(tokenizer: Any) -> Any:
    """Return a small model with random weights and a tokenizer."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from latentcode.models.pretrained import load_pretrained

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = LlamaForCausalLM(LlamaConfig(
            vocab_size=max(400, len(tokenizer)), hidden_size=16, intermediate_size=16,
            num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2,
            max_position_embeddings=64))
    return load_pretrained(network, tokenizer=tokenizer)
