"""What prompts ask of a model beyond its hooks: a pretrained one, or one that was trained here."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Bool
from torch import Tensor

from latentcode.devices import checked_seed
from latentcode.errors import ConfigError, check, check_text
from latentcode.hub import is_address
from latentcode.models.config import kind_of
from latentcode.models.pretrained import (
    AT,
    adds_bos,
    as_dtype,
    is_run,
    load_pretrained,
    tokenizer_of,
)
from latentcode.models.pretrained import untrained as with_fresh_weights
from latentcode.models.transformer import HookedTransformer
from latentcode.prompts.messages import Messages, check_messages
from latentcode.runs import Run
from latentcode.runs.run import ZOO_PREFIX, load_run
from latentcode.tasks import make_task
from latentcode.tasks.text.task import Text
from latentcode.tasks.text.tokenizer import Tokenizer, token_names
from latentcode.tasks.text.tokens import TokenTable

if TYPE_CHECKING:
    from transformer_lens.model_bridge import TransformerBridge

Encoded = tuple[list[int], list[tuple[int, int]]]
"""Ids of tokens, and the characters (first, last + 1) of the text that each stands for: (0, 0) for
a token that stands for none, such as that for a beginning."""

LOAD = "latentcode.prompts.load_language_model"
NO_TEMPLATE = ("the prompt is a list of messages, and the tokenizer has no chat template; expected "
               "text, or a model that is made for chats")


class LanguageModel(ABC):
    """A model with hooks, and the text that it is asked in.

    model       what is run: a `TransformerBridge` or a `HookedTransformer`
    settings    what results say of it: run, kind, architecture, of a run run_id and step, and of
                a model on the hub revision (where one was asked for) and commit
    context     tokens that a prompt may have at most; None: any number
    vocabulary  number of token ids, each of which can be an answer
    padding     the id that fills up shorter prompts of a batch
    bos         text of the BOS token; None where there is none
    """

    model: Any
    settings: Mapping[str, Any]
    context: int | None
    vocabulary: int
    padding: int
    bos: str | None = None

    @abstractmethod
    def encode(self, text: str, prepend_bos: bool | None = None) -> Encoded:
        """Return the tokens of a text.

        prepend_bos  whether the BOS token is put before a text that does not begin with it; None:
                     as the tokenizer does
        """

    @abstractmethod
    def begins(self, prepend_bos: bool | None = None) -> bool:
        """Return whether `encode` puts the BOS token before a text; `ConfigError` without one."""

    def beginning(self, prepend_bos: bool | None = None) -> dict[str, Any]:
        """Return the settings of a result that say how its texts begin."""
        begins = self.begins(prepend_bos)
        return {"prepend_bos": begins, "bos": (
            f"{self.bos!r} before each text that does not begin with it" if begins
            else "none but the text's own")}

    @abstractmethod
    def texts(self, ids: Sequence[int]) -> list[str]:
        """Return the names of ids, no two the same (`token_names`)."""

    def chat(self, messages: Messages) -> str:
        """Return messages as the chat template of the tokenizer renders them, up to where the
        assistant's answer begins; `ConfigError` for a tokenizer without one."""
        raise ConfigError(NO_TEMPLATE)

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of tokens that follow each other."""
        return "".join(self.texts(ids))

    @cached_property
    @abstractmethod
    def table(self) -> TokenTable:
        """What the texts of all ids say."""

    @abstractmethod
    def padded(self, mask: Bool[Tensor, "B T"]) -> dict[str, Tensor]:
        """Return arguments that tell the model which tokens are no padding (on the right)."""

    @abstractmethod
    def untrained(self, seed: int = 0) -> LanguageModel:
        """Return the same with fresh weights: of a run its initial ones, else drawn from a seed."""


class PretrainedLanguageModel(LanguageModel):
    """A `TransformerBridge`, with the tokenizer that `transformers` loads for it.

    Texts begin as that is set. Of a bridge that was not made here it is that of the bridge, which
    TransformerLens sets to begin with BOS. `ConfigError` for one that is not "fast".
    """

    def __init__(self, model: Any) -> None:
        check(getattr(getattr(model, "tokenizer", None), "is_fast", False), "the model has no "
              "tokenizer that tells which characters a token stands for; expected a 'fast' one")
        self.model, self.tokenizer = model, tokenizer_of(model)
        name = str(getattr(model.cfg, "model_name", ""))
        original = getattr(getattr(model, "original_model", None), "config", None)
        version = {"revision": "" if Path(name).exists() else name.partition(AT)[2],
                   "commit": getattr(original, "_commit_hash", None)}
        self.settings = {
            "run": Path(name).name if Path(name).is_dir() else name, "kind": "softmax",
            "architecture": getattr(model.cfg, "architecture", None),
            **{key: str(value) for key, value in version.items() if value}}
        self.context = getattr(model.cfg, "n_ctx", None)
        self.vocabulary = getattr(model.cfg, "d_vocab", len(self.tokenizer))
        self.padding = model.tokenizer.pad_token_id or 0
        known = self.tokenizer.bos_token_id is not None and (
            self.tokenizer.convert_ids_to_tokens(self.tokenizer.bos_token_id)
            == self.tokenizer.bos_token)
        self.bos = self.tokenizer.bos_token if known else None

    def encode(self, text: str, prepend_bos: bool | None = None) -> Encoded:
        """Return the tokens of `tokenizer(text)`, without an EOS token at the end."""
        check_text("text", text)
        encoded = self.tokenizer(
            text, return_offsets_mapping=True, return_special_tokens_mask=True)
        tokens = [(token, tuple(span), bool(added)) for token, span, added in zip(
            encoded["input_ids"], encoded["offset_mapping"], encoded["special_tokens_mask"],
            strict=True)]
        while len(tokens) > 1 and tokens[-1][::2] == (self.tokenizer.eos_token_id, True):
            tokens.pop()
        bos = self.tokenizer.bos_token_id
        begins_itself = next((
            token == bos and text[first:end].strip() == self.bos
            for token, (first, end), added in tokens if not added), False)
        begun = self.bos is not None and tokens[:1] != [] and tokens[0][::2] == (bos, True)
        if begun and (begins_itself or prepend_bos is False):
            tokens = tokens[1:]
        elif self.bos is not None and prepend_bos and not begun and not begins_itself:
            tokens = [(bos, (0, 0), True), *tokens]
        return [token for token, _, _ in tokens], [span for _, span, _ in tokens]

    def begins(self, prepend_bos: bool | None = None) -> bool:
        check(self.bos is not None or not prepend_bos, "prepend_bos is True, and the tokenizer has "
              "no BOS token; expected False, or None for what the tokenizer does")
        if prepend_bos is not None:
            return prepend_bos
        return self.bos is not None and adds_bos(self.tokenizer)

    def chat(self, messages: Messages) -> str:
        check(getattr(self.tokenizer, "chat_template", None) is not None, NO_TEMPLATE)
        return str(self.tokenizer.apply_chat_template(
            check_messages(messages), tokenize=False, add_generation_prompt=True))

    def texts(self, ids: Sequence[int]) -> list[str]:
        return token_names(self.tokenizer.backend_tokenizer, map(int, ids))

    def decode(self, ids: Sequence[int]) -> str:
        return str(self.tokenizer.decode(list(map(int, ids))))

    @cached_property
    def table(self) -> TokenTable:
        ids = list(range(len(self.tokenizer)))
        texts = self.tokenizer.batch_decode([[i] for i in ids])
        # Of some tokenizers the first token loses the space before it when it is decoded.
        spaced = [str(token).startswith("\u2581")
                  for token in self.tokenizer.convert_ids_to_tokens(ids)]
        pieces = tuple(f" {text}" if space and not text.startswith(" ") else text
                       for text, space in zip(texts, spaced, strict=True))
        return TokenTable(pieces, self.tokenizer.eos_token_id)

    def padded(self, mask: Bool[Tensor, "B T"]) -> dict[str, Tensor]:
        return {} if bool(mask.all()) else {"attention_mask": mask.long()}

    def untrained(self, seed: int = 0) -> PretrainedLanguageModel:
        return PretrainedLanguageModel(with_fresh_weights(self.model, seed))


class OwnLanguageModel(LanguageModel):
    """A `HookedTransformer` on token ids, with the tokenizer that it was trained with.

    In training the token that ends a document stands before the next one begins, and so it does
    before a prompt, unless `prepend_bos` is False: then the prompt goes on in the midst of a
    document, as most sequences begin.

    context   tokens of the sequences that it was trained on
    settings  default: its kind alone
    seed      of its initial weights, where it is known

    `ConfigError` for a model that is given vectors, sees later tokens, or has too few ids.
    """

    def __init__(
        self, model: HookedTransformer, tokenizer: Tokenizer, *, context: int | None = None,
        settings: Mapping[str, Any] | None = None, seed: int | None = None,
    ) -> None:
        config = model.config
        check(config.embedding == "token" and config.causal and not config.cross_attention,
              f"the model has embedding {config.embedding!r}, causal {config.causal} and "
              f"cross_attention {config.cross_attention}; expected a language model: 'token', True "
              "and False")
        check(tokenizer.n_tokens <= config.d_input, f"the tokenizer has {tokenizer.n_tokens:,} "
              f"tokens; expected at most model.d_input = {config.d_input:,}")
        model.check_alone("prompts")
        self.model, self.tokenizer, self.context, self.seed = model, tokenizer, context, seed
        self.vocabulary, self.padding = config.d_input, tokenizer.end
        self.bos = tokenizer.decode([tokenizer.end])
        named = {"run": kind_of(config)} if settings is None else dict(settings)
        self.settings = {**named, "kind": kind_of(config), "architecture": type(model).__name__}

    @classmethod
    def of_run(
        cls, run: Run, *, step: int | None = None, device: str | torch.device = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> OwnLanguageModel:
        """Return the model of a run on the task `language`, of its newest checkpoint by default.
        """
        task = make_task(run.config.task)
        if not isinstance(task, Text):
            raise ConfigError(f"run {run.name!r} was trained on task {task.name!r}, whose models "
                              "take no text; expected 'language'")
        model = run.load_model(step, device=device).to(dtype)
        return cls(model, task.data.tokenizer, context=task.config.n_tokens, settings={
            "run": run.name if step is None else f"{run.name}@{step}", "run_id": run.id,
            "step": run.checkpoints()[-1] if step is None else step},
            seed=run.config.training.seed)

    def encode(self, text: str, prepend_bos: bool | None = None) -> Encoded:
        check_text("text", text)
        ids, spans = self.tokenizer.locate(text)
        if self.begins(prepend_bos) and ids[:1] != [self.tokenizer.end]:
            return [self.tokenizer.end, *ids], [(0, 0), *spans]
        return ids, spans

    def begins(self, prepend_bos: bool | None = None) -> bool:
        return prepend_bos is not False

    def texts(self, ids: Sequence[int]) -> list[str]:
        return [self.table.names[int(i)] for i in ids]

    def decode(self, ids: Sequence[int]) -> str:
        return self.tokenizer.decode([int(i) for i in ids if i < self.tokenizer.n_tokens])

    @cached_property
    def table(self) -> TokenTable:
        return TokenTable.of(self.tokenizer, self.vocabulary)

    def padded(self, mask: Bool[Tensor, "B T"]) -> dict[str, Tensor]:
        return {}  # a prompt sees nothing of what follows it

    def untrained(self, seed: int = 0) -> OwnLanguageModel:
        known = checked_seed(seed) if self.seed is None else self.seed
        model = with_fresh_weights(self.model, known)
        assert isinstance(model, HookedTransformer)
        return OwnLanguageModel(
            model, self.tokenizer, context=self.context, seed=self.seed, settings={
                **self.settings, **({"step": 0} if "step" in self.settings else {})})


def check_bridged(model: Any) -> None:
    """Raise `ConfigError` for a model of `transformers`, whose codes are not shown yet."""
    # Looked up where it is imported already; asking the package for the class would import it.
    known = getattr(sys.modules.get("transformers.modeling_utils"), "PreTrainedModel", ())
    check(not isinstance(model, known),
          f"the model is a {type(model).__name__} of transformers, whose codes are not shown; "
          "expected lc.load_pretrained(model, tokenizer=tokenizer), the bridge that shows them")


def as_language_model(model: Any) -> LanguageModel:
    """Return a language model that is in hand, or a bridge as one.

    `ConfigError` for a name, a run, and a model of our own without its tokenizer.
    """
    if isinstance(model, LanguageModel):
        return model
    check_bridged(model)
    check(not isinstance(model, (str, Path, Run)), f"model is {model!r:.80}, which is not loaded; "
          f"expected a bridge, such as lc.load_pretrained returns, or what {LOAD} makes of it")
    check(not isinstance(model, HookedTransformer), "the model is a HookedTransformer, of which "
          f"the tokenizer is not known; expected what {LOAD} makes of its run, or "
          "latentcode.prompts.OwnLanguageModel(model, tokenizer)")
    return PretrainedLanguageModel(model)


def load_language_model(
    model: TransformerBridge | LanguageModel | Run | str | Path,
    *,
    step: int | None = None,
    revision: str | None = None,
    device: str | torch.device | None = None,
    device_map: str | Mapping[str, Any] | None = None,
    dtype: str | torch.dtype | None = None,
    untrained: bool = False,
    seed: int = 0,
) -> LanguageModel:
    """Open a model that can be asked in text: a pretrained one, or one that was trained here.

    model  a run on the task `language`, its folder, a name of the zoo such as `text-softmax`, or an
           address `hf://user/name`; what `load_pretrained` takes; or a model in hand, which stays
           where it is
    step   the checkpoint of a run; default: the newest
    revision, device_map  of what `load_pretrained` opens
    untrained  the same with fresh weights: of a run its initial ones, else drawn from `seed`

    Raises what `load_run`, `load_pretrained` and `as_language_model` raise, and `ConfigError` for
    an option that the model does not have.
    """
    named = isinstance(model, (str, Path))
    if isinstance(model, (str, Path)) and (
            is_address(model) or str(model).startswith(ZOO_PREFIX) or is_run(model)):
        model = load_run(model)
    is_own = isinstance(model, Run)
    check((named and not is_own) or (revision is None and device_map is None), f"revision is "
          f"{revision!r} and device_map {device_map!r}, but the model is "
          f"{'a run' if is_own else 'in hand'}; expected None")
    check(is_own or step is None, f"step is {step}, but the model is no run; expected None")
    if isinstance(model, Run):
        trained = OwnLanguageModel.of_run(
            model, step=step, device="cpu" if device is None else device,
            dtype=as_dtype(dtype))
        return trained.untrained() if untrained else trained
    if isinstance(model, (str, Path)):
        return PretrainedLanguageModel(load_pretrained(
            model, revision=revision, device=device, device_map=device_map, dtype=dtype,
            untrained=untrained, seed=seed))
    given = as_language_model(model)
    return given.untrained(seed) if untrained else given
