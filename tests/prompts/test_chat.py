"""Lists of messages in the place of a prompt, rendered by the tokenizer's chat template."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from tokenizer_families import WORDS, bridge_of, make_tokenizer

import latentcode as lc
from latentcode.errors import ConfigError
from latentcode.prompts import as_language_model

TEMPLATE = ("{{ bos_token }}{% for message in messages %}{{ message['content'] + ' ' }}{% endfor %}"
            "{% if add_generation_prompt %}{{ 'do' }}{% endif %}")
FAMILY = "byte-level BPE, BOS by template"


def messages(*words: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": word} for word in words]


@pytest.fixture(scope="module")
def bridge() -> Any:
    tokenizer = make_tokenizer(FAMILY)
    tokenizer.chat_template = TEMPLATE
    return bridge_of(tokenizer)


CHATS = [messages("un", "re"), messages("re", "un"), messages("Un", "re")]
TEXTS = ["<s>un re do", "<s>re un do", "<s>Un re do"]


def test_messages_are_the_text_that_the_template_makes(bridge: Any, tmp_path: Path) -> None:
    model = as_language_model(bridge)
    assert [model.chat(chat) for chat in CHATS] == TEXTS
    ids = [model.encode(text)[0] for text in TEXTS]
    assert all(row.count(bridge.tokenizer.bos_token_id) == 1 for row in ids)
    assert ids == [bridge.tokenizer.apply_chat_template(
        chat, add_generation_prompt=True, return_dict=False) for chat in CHATS]
    columns: dict[str, Any] = {"query": -1, "key": 1, "answer": " re"}
    file = tmp_path / "chats.jsonl"
    file.write_text("".join(json.dumps({"messages": chat, **columns}) + "\n" for chat in CHATS))
    text = lc.extract(bridge, pd.DataFrame({"prompt": TEXTS, **columns}))
    for given in (file, pd.DataFrame({"messages": CHATS, **columns}),
                  pd.DataFrame({"prompt": CHATS, **columns}),
                  lc.Prompts.read(file).subset([0, 1, 2])):  # type: ignore[arg-type]
        codes = lc.extract(bridge, given)
        assert (codes.scores == text.scores).all()
        assert codes.labels["prompt"].tolist() == TEXTS
    assert lc.score_prompts(bridge, file)["log_probability"].tolist() == lc.score_prompts(
        bridge, pd.DataFrame({"prompt": TEXTS, **columns}))["log_probability"].tolist()
    said, same = (lc.generate(bridge, prompt, max_new_tokens=3) for prompt in (CHATS[0], TEXTS[0]))
    assert said.prompt == TEXTS[0]
    assert said.tokens == same.tokens


def test_sources_are_messages_too(bridge: Any) -> None:
    frame = pd.DataFrame({"prompt": [CHATS[0], CHATS[2]], "source": [CHATS[2], CHATS[0]],
                          "answer": " re", "source_answer": " un", "query": -1, "key": 1})
    pairs = lc.subject(bridge, frame).counterfactuals()
    assert pairs.ids["source"] == pairs.ids["prompt"][::-1]


@pytest.mark.parametrize("form", ["list", "frame", "file"])
def test_heads_read_messages(bridge: Any, tmp_path: Path, form: str) -> None:
    file = tmp_path / "chats.jsonl"
    file.write_text("".join(json.dumps({"messages": chat}) + "\n" for chat in CHATS))
    given = {"list": CHATS, "frame": pd.DataFrame({"messages": CHATS}), "file": file}[form]
    same: Any = TEXTS if form == "list" else pd.DataFrame({"prompt": TEXTS})
    results = [lc.heads(bridge, problems, effects=[], controls=False, n_bootstrap=100).heads
               for problems in (given, same)]
    pd.testing.assert_frame_equal(*results)


def test_what_is_refused(bridge: Any) -> None:
    bare = bridge_of(make_tokenizer(FAMILY))
    frame = pd.DataFrame({"prompt": CHATS, "query": -1, "key": 1})
    for ask in (lambda: lc.subject(bare, frame), lambda: lc.generate(bare, CHATS[0]),
                lambda: lc.heads(bare, CHATS), lambda: lc.extract("text-softmax", frame)):
        with pytest.raises(ConfigError, match="the tokenizer has no chat template"):
            ask()
    for wrong in ([{"role": "user"}], [{"content": WORDS[0]}], [3]):
        with pytest.raises(ConfigError, match=r"prompt of row 0 .* expected text, or messages"):
            lc.subject(bridge, pd.DataFrame({"prompt": [wrong], "query": -1, "key": 1}))
    with pytest.raises(ConfigError, match=r"prompt of row 1 .* expected text, or messages"):
        lc.Prompts.from_frame(pd.DataFrame({"prompt": [CHATS[0], "un"], "query": -1, "key": 1}))
