"""Codes written between prompts: what is written is the source's, where it should be, or "
"refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from prompt_pairs import PLACES, pairs_of, with_unsaid_answers
from small_bridges import make
from small_language_models import SmallModels

from latentcode import Patch, intervene
from latentcode.devices import make_generator
from latentcode.errors import ConfigError, ProbeError, SplitError, UnknownNameError
from latentcode.models import pretrained
from latentcode.models.patched.sites import capture, run_patched
from latentcode.models.pretrained import load_pretrained
from latentcode.probes.interventions import InterventionResult
from latentcode.probes.interventions.patch import prompt_interventions
from latentcode.prompts.pairs import PromptCounterfactuals

BOTH = (0, 1)
GOOD: dict[str, Any] = {
    "prompt": "The capital of France is", "source": "The capital of Peru is", "query": -1,
    "key": "capital", "answer": 300, "source_answer": 301}


@pytest.fixture(scope="module", params=["gpt2", "llama"])
def model(request: pytest.FixtureRequest, small_models: SmallModels) -> Any:
    return load_pretrained(small_models(request.param))


@pytest.fixture(scope="module")
def gpt2(small_models: SmallModels) -> Any:
    return load_pretrained(small_models("gpt2"))


def rows_of(model: Any) -> list[dict[str, Any]]:
    """Return six pairs of each of two layouts, in turn."""
    pairs = pairs_of(model)
    short, long = ([row for row in pairs if row["prompt"].startswith(f"{word} ")][::4][:6]
                   for word in ("The", "Then"))
    assert len(short) == 6
    return [row for both in zip(short, long, strict=True) for row in both]


@pytest.fixture(scope="module")
def rows(model: Any) -> list[dict[str, Any]]:
    return rows_of(model)


def generator() -> torch.Generator:
    return make_generator(0, "prompts")


def outcomes(result: InterventionResult) -> dict[str, float]:
    """Return the outcomes of a single intervention by metric."""
    assert not result.table["metric"].duplicated().any()
    return dict(zip(result.table["metric"], result.table["value"], strict=True))


def patch(model: Any, rows: list[dict[str, Any]], *args: Any, **settings: Any) -> dict[str, float]:
    return outcomes(intervene(model, pd.DataFrame(rows), [Patch(*args)], n_bootstrap=100,
                              **settings))


def test_every_prompt_is_in_one_batch_of_its_layout(gpt2: Any) -> None:
    model, rows = gpt2, rows_of(gpt2)
    task = PromptCounterfactuals(model, pd.DataFrame(rows))
    batches = list(task.batches("prompts", len(rows), 4, generator()))
    assert sum(map(len, batches)) == len(rows)
    assert all(len(batch) <= 4 for batch in batches)
    shown = [
        {"prompt": ids, "source": source, "answer": answer, "source_answer": source_answer,
         "label": task.constituents[base_label], "source_label": task.constituents[target]}
        for batch in batches for ids, source, answer, source_answer, base_label, target in zip(
            *(values.tolist() for values in (
                batch.bases.inputs, batch.sources.inputs, batch.bases.targets[:, 0],
                batch.sources.targets[:, 0], batch.base_label, batch.source_label)), strict=True)]
    for row, batched in zip([*rows[::2], *rows[1::2]], shown, strict=True):
        texts = {name: model.to_tokens(row[name])[0].tolist() for name in ("prompt", "source")}
        assert batched == {name: row[name] for name in batched} | texts
    assert set(task.constituents) <= set(PLACES)
    assert all(bool(batch.counts.all()) for batch in batches)
    drawn = task.sample("prompts", 5, generator())
    assert len(drawn) == 5
    assert len({tuple(ids) for ids in torch.cat(
        [drawn.bases.inputs, drawn.sources.inputs], 1).tolist()}) == 5
    member = task.membership(drawn.bases)
    assert torch.equal(member[:, 0].long().argmax(1), drawn.base_label)
    assert bool((member.sum((1, 2)) == 1).all())
    with pytest.raises(ConfigError, match="n is 12; expected at most 6"):
        task.sample("prompts", 12, generator())
    with pytest.raises(ConfigError, match="n is 13; expected at most 12"):
        next(task.batches("prompts", 13, 8, generator()))


def test_scopes_are_the_named_codes(gpt2: Any) -> None:
    row = {"prompt": "The capital of France", "source": "The river of Italy", "answer": 1,
           "source_answer": 2, "pairs": {"a": [-1, "capital"], "b": [3, 1], "c": [-1, -1]}}
    task = PromptCounterfactuals(gpt2, pd.DataFrame([row, row]))
    assert task.scopes == ("pair", "pairs", "row", "everything")
    pairs = task.sample("prompts", 2, generator())
    n = pairs.bases.inputs.shape[1]
    last = n - 1

    def codes(name: str, **settings: bool) -> set[tuple[int, int]]:
        scope = task.scope(name, pairs, **settings)
        assert scope.shape == (2, n, n)
        assert torch.equal(scope[0], scope[1])
        return {(q, k) for q, k in scope[0].nonzero().tolist()}

    assert codes("pair") == {(last, 2)}
    assert codes("pairs") == {(last, 2), (3, 1), (last, last)}
    assert codes("row") == {(last, k) for k in range(n)}
    assert len(codes("everything")) == n * n
    assert codes("pair", elsewhere=True) == {(last - 1, 2)}
    # A key that the other query does not see gives way to that query.
    assert codes("pairs", elsewhere=True) == {(last - 1, 2), (2, 1), (last - 1, last - 1)}
    assert codes("row", elsewhere=True) == {(last - 1, k) for k in range(n)}
    with pytest.raises(UnknownNameError, match="unknown scope 'feature'; expected one of: pair, p"):
        task.scope("feature", pairs)
    single = PromptCounterfactuals(gpt2, pd.DataFrame([GOOD]))
    assert single.scopes == ("pair", "row", "everything")


@pytest.mark.parametrize("site", ["code", "value", "z", "residual"])
def test_identity_changes_nothing_and_noise_does(
    model: Any, rows: list[dict[str, Any]], site: str
) -> None:
    scopes = ("pair" if site == "value" else "row", "everything")
    found = intervene(model, pd.DataFrame(rows), [
        Patch(value, scope, BOTH, site) for value in ("identity", "random") for scope in scopes],
        n_bootstrap=100).table.set_index(["patch", "scope", "metric"])["value"].sort_index()
    for scope in scopes:
        same = found["identity", scope]
        assert same[["unchanged", "flip", "kl", "moved"]].tolist() == [1.0, 0.0, 0.0, 0.0]
        assert found["random", scope, "kl"] > 1e-3
    task = PromptCounterfactuals(model, pd.DataFrame(rows))
    for pairs in task.batches("prompts", len(rows), 8, generator()):
        places = [(site, layer) for layer in BOTH]
        clean, own = capture(model, pairs.bases.inputs, places)
        copies = {place: (lambda live, x=own[place]: x) for place in places}
        assert torch.equal(run_patched(model, pairs.bases.inputs, copies), clean)
        for place in places:
            patched = run_patched(model, pairs.bases.inputs, {place: torch.zeros_like})
            assert (patched[:, -1] - clean[:, -1]).abs().amax(1).min() > 1e-4  # of every prompt


def test_with_all_that_enters_the_first_layer_the_prompt_is_the_source(
    model: Any, rows: list[dict[str, Any]]
) -> None:
    task = PromptCounterfactuals(model, pd.DataFrame(rows))
    places = [("code", 0), ("code", 1), ("residual", 0)]
    for pairs in task.batches("prompts", len(rows), 8, generator()):
        source, theirs = capture(model, pairs.sources.inputs, places)
        edits = {place: (lambda live, x=x: x) for place, x in theirs.items()}
        torch.testing.assert_close(run_patched(model, pairs.bases.inputs, edits), source)
    outcome = patch(model, rows, "interchange", "everything", (0,), "residual")
    assert (outcome["flip"], outcome["unchanged"]) == (1.0, 0.0)
    assert outcome["moved"] == pytest.approx(1.0, abs=1e-4)
    assert outcome["logit_difference"] < 0 < outcome["logit_difference_clean"]


def test_rows_are_written_as_anybody_would(model: Any, rows: list[dict[str, Any]]) -> None:
    expected = []
    for row in rows:
        ids, source = (model.to_tokens(row[column]) for column in ("prompt", "source"))
        hooks = [f"blocks.{layer}.attn.hook_pattern" for layer in BOTH]
        with torch.no_grad():
            _, cache = model.run_with_cache(source, names_filter=hooks)

            def replace(pattern: torch.Tensor, hook: Any, cache: Any = cache) -> torch.Tensor:
                pattern = pattern.clone()
                pattern[:, :, -1] = cache[hook.name][:, :, -1]
                return pattern

            clean = model(ids)[0, -1].log_softmax(-1)
            logits = model.run_with_hooks(ids, fwd_hooks=[(name, replace) for name in hooks])[0, -1]
        after, (ours, theirs) = logits.softmax(-1), (row["answer"], row["source_answer"])
        said = int(after.argmax())
        expected.append({
            "flip": said == theirs, "unchanged": said == ours, "p_base_answer": float(after[ours]),
            "p_source_answer": float(after[theirs]),
            "logit_difference": float(logits[ours] - logits[theirs]),
            "logit_difference_clean": float(clean[ours] - clean[theirs]),
            "kl": float((clean.exp() * (clean - after.log())).sum())})
    outcome = patch(model, rows, "interchange", "row", BOTH, batch_size=8)
    for metric, value in pd.DataFrame(expected).mean().items():
        assert outcome[str(metric)] == pytest.approx(value, abs=1e-4), metric
    assert outcome["kl"] > 1e-3


def test_elsewhere_is_the_token_before(gpt2: Any) -> None:
    # The source differs in the last token, so that its codes before it are the prompt's own.
    outcome = patch(gpt2, pairs_of(gpt2)[:8], "elsewhere", "row", BOTH)
    assert outcome["unchanged"] == 1.0
    assert outcome["kl"] == pytest.approx(0.0, abs=1e-6)
    rows = [with_unsaid_answers(gpt2, {**GOOD, "source": f"The capital of {place} is"})
            for place in ("Peru", "Italy")]
    outcome = patch(gpt2, rows, "elsewhere", "row", BOTH, among="answers")
    assert outcome["kl"] > 1e-5


def test_what_the_answer_is(gpt2: Any) -> None:
    """Among two answers the model takes the likelier, though it would say something else."""
    rows = [with_unsaid_answers(gpt2, row)
            for row in pairs_of(gpt2, ("The capital of {}",))[:8]]
    identity = [Patch("identity", "row", (0,))]
    with pytest.raises(ProbeError, match="the model gives all of them in 0; expected at least two"):
        intervene(gpt2, pd.DataFrame(rows), identity)
    result = intervene(gpt2, pd.DataFrame(rows), identity, among="answers")
    assert outcomes(result)["unchanged"] == 1.0
    assert result.settings["chance"] == 0.5
    assert result.settings["n_known"] == 8
    assert "The likelier of the two answers counts" in repr(result)
    flipped = patch(gpt2, rows, "interchange", "everything", (0,), "residual", among="answers")
    assert flipped["flip"] == 1.0
    # The wrong way round, the model is never right.
    turned = [{**row, "answer": row["source_answer"], "source_answer": row["answer"]}
              for row in rows]
    with pytest.raises(ProbeError, match="the model gives all of them in 0"):
        intervene(gpt2, pd.DataFrame(turned), identity, among="answers")


def test_text_answers_are_the_token_that_follows(gpt2: Any) -> None:
    row = {**GOOD, "answer": " Paris", "source_answer": " Lima"}
    task = PromptCounterfactuals(gpt2, pd.DataFrame([row, row]))
    expected = [gpt2.to_tokens(f"{GOOD['prompt']}{answer}")[0, -1].item()
                for answer in (" Paris", " Lima")]
    assert task.answers.tolist() == [expected, expected]
    assert task.constituents == (" Paris", " Lima")
    assert task.labels.tolist() == [[0, 1], [0, 1]]
    longer = PromptCounterfactuals(gpt2, pd.DataFrame([{**row, "answer": " Paris and"}]))
    assert longer.answers.tolist() == [expected]
    assert "1 of 2 answers have several tokens" in " ".join(longer.notes)
    with pytest.raises(ConfigError, match="begin with the same token"):
        PromptCounterfactuals(gpt2, pd.DataFrame([{**row, "source_answer": " Paris and"}]))


def test_the_control_is_needed_to_be_written(gpt2: Any) -> None:
    model, rows = gpt2, rows_of(gpt2)
    frame = pd.DataFrame(rows)
    with pytest.raises(ConfigError, match=r"'control' cannot be written: .* no column control"):
        intervene(model, frame, [Patch("control", "row", (0,))])
    bare = PromptCounterfactuals(model, frame)
    assert not any(i.value == "control" for i in prompt_interventions(bare, range(2)))
    result = intervene(model, frame, [Patch("interchange", "row", (0,))], n_bootstrap=100)
    assert "there is no control" in repr(result)
    # A control that the model answers otherwise is none, and does not count.
    with_same = frame.assign(control=frame["source"])
    task = PromptCounterfactuals(model, with_same)
    assert {i.value for i in prompt_interventions(task, range(2))} == {
        "interchange", "control", "elsewhere", "shuffled", "random", "identity"}
    result = intervene(model, with_same, [
        Patch("interchange", "row", (0,)), Patch("control", "row", (0,))], n_bootstrap=100)
    assert "there is no control" not in repr(result)
    n = result.table.groupby("patch")["n"].unique().explode()
    assert n.to_dict() == {"interchange": len(rows), "control": 0}


def test_codes_that_do_not_sum_to_1_are_not_renormalised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make("GptOssForCausalLM", tmp_path / "sinks")  # whose heads also attend to nothing
    model = load_pretrained(tmp_path / "sinks")
    pairs = pd.DataFrame([{"prompt": f"1 {a} 3", "source": f"1 {b} 3", "query": -1, "key": 1,
                           "answer": a, "source_answer": b} for a in range(5, 9) for b in (11, 12)])
    with pytest.raises(ConfigError, match=r"do not sum to 1, .*zoo check.*; expected renormalize="
                                          "False"):
        intervene(model, pairs, [Patch("interchange", "pair", (0,), renormalize=True)])
    asked: list[Patch] = []
    monkeypatch.setattr("latentcode.probes.interventions.intervention.intervene_model",
                        lambda model, task, interventions, **_: asked.extend(interventions))
    intervene(model, pairs)
    every = prompt_interventions(PromptCounterfactuals(model, pairs), range(2))
    assert set(asked) == {i for i in every if not i.renormalize} < {*every}


def test_means_want_one_layout_and_every_label(gpt2: Any) -> None:
    model, rows, few = gpt2, rows_of(gpt2), {"n_bootstrap": 100}
    writes = [Patch("class_mean", "row", BOTH), Patch("class_mean_base", "row", BOTH),
              Patch("steer", "row", BOTH, alpha=2.0), Patch("mean_ablation", "row", BOTH),
              Patch("resample", "row", BOTH), Patch("erase", "pair", BOTH)]
    one = pairs_of(model, ("The capital of {}",))
    labels = {row["label"] for row in one}
    one = [row for row in one if row["source_label"] in labels]
    result = intervene(model, pd.DataFrame(one), writes, batch_size=100, **few)
    table = result.table[result.table["metric"] == "kl"].set_index("patch")
    assert (table.loc[["class_mean", "steer", "mean_ablation", "resample", "erase"],
                      "value"] > 1e-6).all()
    assert result.settings["n_reference"] == len(one)
    assert "measured on the prompts that they were written to" in repr(result)
    # Every prompt of a place is one text, so that its mean is its own code, and all others' too.
    assert table.loc["class_mean_base", "value"] == pytest.approx(0.0, abs=1e-5)
    source = patch(model, one, "interchange", "row", BOTH)
    assert table.loc["class_mean", "value"] == pytest.approx(source["kl"], rel=1e-2)
    assert table.loc["resample", "value"] == pytest.approx(source["kl"], rel=1e-2)
    for chosen in (*writes[:4], writes[-1]):
        with pytest.raises(ConfigError, match=f"'{chosen.value}' cannot be .*a single layout"):
            intervene(model, pd.DataFrame(rows), [chosen])
    named = [{**row, "source_label": "elsewhere"} for row in one]
    with pytest.raises(ConfigError, match="no prompt to measure on has the label 'elsewhere'"):
        intervene(model, pd.DataFrame(named), writes[:1])
    half = [{**row, **{column: row[column].replace("capital", what)
                       for column in ("prompt", "source")},
             "split": split, "combination": f"{what} {row['label']}"}
            for split, what in (("train", "capital"), ("ood", "river")) for row in one]
    result = intervene(model, pd.DataFrame(half), writes[:1], **few)
    assert result.settings["n"] == len(half) // 2
    assert result.settings["n_reference"] == len(half) - len(half) // 2
    assert "were written to" not in repr(result)
    of_train = pd.DataFrame([{**row, "split": "train"} for row in one])
    with pytest.raises(SplitError, match="no prompt is of split 'ood'; they are of train"):
        intervene(model, of_train, writes[:1])


def test_a_prompt_alone_in_its_layout_counts_but_where_another_is_needed(gpt2: Any) -> None:
    short = pairs_of(gpt2, ("The capital of {}",))[:3]
    long = pairs_of(gpt2, ("Then the river in {}",))[:1]
    names = ("interchange", "shuffled", "resample", "random")
    result = intervene(gpt2, pd.DataFrame([*short[:2], *long, *short[2:]]),
                       [Patch(name, "row", BOTH) for name in names], n_bootstrap=100)
    n = result.table[result.table["metric"] == "flip"].set_index("patch")["n"]
    assert (n["interchange"], n["shuffled"], n["random"]) == (4, 3, 4)
    assert result.settings["n_known"] == 4
    seen: list[tuple[int, int]] = []
    patch(gpt2, [*short, *long], "interchange", "row", BOTH,
          progress=lambda done, total: seen.append((done, total)))
    assert seen == sorted(seen)
    assert {total for _, total in seen} == {4 * (2 + 1)}
    assert seen[-1][0] == 12


def test_few_bits_are_enough(small_models: SmallModels) -> None:
    model = load_pretrained(small_models("llama"), dtype=torch.bfloat16)
    rows = pairs_of(model, ("The capital of {}",))
    result = intervene(model, pd.DataFrame(rows), [
        Patch("identity", "row", BOTH), Patch("interchange", "everything", (0,), "residual"),
        Patch("steer", "row", BOTH), Patch("random", "row", BOTH)], n_bootstrap=100)
    kl = result.table[result.table["metric"] == "kl"].set_index("patch")["value"]
    assert kl["identity"] == 0.0
    assert (kl[["interchange", "steer", "random"]] > 1e-3).all()
    assert result.settings["dtype"] == "torch.bfloat16"


def test_models_that_do_not_take_a_code_are_refused(
    small_models: SmallModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as without:
        without.setattr(pretrained, "add_seam", lambda *_: False)
        model = load_pretrained(small_models("gptj"))
    rows = pairs_of(model, ("The capital of {}",))[:4]
    with pytest.raises(ConfigError, match="only after it was used"):
        patch(model, rows, "interchange", "row", (0,))
    assert patch(model, rows, "random", "everything", (0,), "value")["kl"] > 0.0
    llama = load_pretrained(small_models("llama"))
    rows = pairs_of(llama, ("The capital of {}",))[:4]
    with pytest.raises(ConfigError, match=r"heads is \(1,\) at site 'value'; expected None, as the "
                                          "4 heads of this model share the values of 2"):
        patch(llama, rows, "interchange", "everything", (0,), "value", 1.0, (1,))
    one = patch(llama, rows, "interchange", "row", BOTH, "code", 1.0, (1,))
    assert 0.0 < one["kl"] != patch(llama, rows, "interchange", "row", BOTH)["kl"]


@pytest.mark.parametrize(("change", "message"), [
    ({"source": "The capital of is"}, r"source of row 1 .* has 5 tokens .*, the prompt 6 \["),
    ({"source": GOOD["prompt"]}, "source of row 1 .* is the prompt itself"),
    ({"answer": 400}, "answer of row 1 .* is token 400; expected 0 to 399"),
    ({"answer": 301}, "answer and source_answer of row 1 .* are the same"),
    ({"answer": 1.5}, "answer of row 0 .*300.0.*; expected text, the id of a token, or"),
    ({"label": "b"}, "label and source_label of row 1 .* are the same"),
    ("label", "only one of the columns label and source_label"),
    ("source", "no column source"),
])
def test_what_cannot_be_used_is_named(
    gpt2: Any, change: dict[str, Any] | str, message: str
) -> None:
    good = {**GOOD, "control": "The capital of Kenya is", "label": "a", "source_label": "b"}
    frame = pd.DataFrame([good, good]).drop(columns=change) if isinstance(
        change, str) else pd.DataFrame([good, good | change])
    with pytest.raises(ConfigError, match=message):
        PromptCounterfactuals(gpt2, frame)
