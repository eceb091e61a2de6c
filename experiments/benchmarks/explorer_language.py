"""How long does a person wait for a language model in the explorer?

    python -m latentcode.experiments.benchmarks.explorer_language

makes a GPT-2 of random weights and texts of random words, starts `latentcode explore MODEL --texts
FILE` and a real browser, and measures the seconds (1) from the start to the first picture, (2) to
that of all texts, (3) from typing a prompt to its codes on the map, while texts are read and
afterwards, and (4) from another start to the picture, which the cache has; and how much memory the
server needs for a further visitor. Needs Debian's package chromium, or Chrome.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import tyro

from latentcode.errors import check
from latentcode.experiments.benchmarks.browser import (
    DRAWN,
    WINDOW,
    Server,
    chromium,
    serving,
    settle,
)
from latentcode.experiments.benchmarks.explorer import MOST_MIB, case, figure, table
from latentcode.experiments.benchmarks.random_gpt2 import Size
from latentcode.experiments.benchmarks.report import RESULTS, Report
from latentcode.files.storage import write_text
from latentcode.models.pretrained import fresh_network

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

QUESTION = "explorer_language"
TARGETS = {"picture": 60.0, "prompt": 1.0}
"""Seconds that may pass to the first picture, and from a prompt to its codes, on idle cores."""
VISITORS = 3
"""Further visitors whose memory is measured."""
PAIR = {"lm_pair": "3.7.2"}
"""What a further visitor looks at."""
PATIENCE = 3_600.0
"""Seconds to wait for something before giving up: cores may be busy."""
WORDS = 12
"""Words of the shortest prompt; each has one more, so that its codes can be counted."""
PINS = """n => {
    const pins = document.querySelectorAll('.st-key-map .lc-pin').length;
    return pins === n;
}"""
"""Whether the map shows so many codes of a prompt."""
READ = """() => !!document.querySelector('.st-key-map .lc-map[data-drawn]')
    && !document.querySelector('[data-testid=stProgress]')"""
"""Whether all texts are read."""


def make_model(folder: Path, size: Size) -> None:
    """Save a GPT-2 of random weights with a tokenizer of words, `w0` and so on."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import GPT2Config, PreTrainedTokenizerFast

    fresh_network(GPT2Config(
        vocab_size=size.vocabulary, n_embd=size.d_model, n_layer=size.n_layers,
        n_head=size.n_heads, bos_token_id=0, eos_token_id=0), torch.float32, 0).save_pretrained(
            folder)
    splitter: Any = Tokenizer(models.WordLevel(
        {f"w{i}": i for i in range(size.vocabulary)}, unk_token="w0"))
    splitter.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=splitter, bos_token="w0", eos_token="w0",
                            unk_token="w0").save_pretrained(folder)


def noted(cases: list[dict[str, Any]], *measured: Any, **further: Any) -> None:
    """Add a measurement, and print it: the whole takes minutes."""
    cases.append(case(*measured, **further))
    print(f"{cases[-1]['name']}: {cases[-1]['raw_seconds']}", flush=True)


def words(rng: np.random.Generator, n: int, vocabulary: int) -> str:
    """Return a text of n words, some of which come often."""
    return " ".join(f"w{i}" for i in np.minimum(rng.zipf(1.2, n), vocabulary - 1))


def wait(page: Page, condition: str, argument: object = None) -> None:
    """Wait until something holds on the page."""
    page.wait_for_function(condition, arg=argument, timeout=1e3 * PATIENCE)


def opened(
    browser: Browser, server: Server, page: str = "", query: Mapping[str, str] | None = None
) -> Page:
    """Open a page in a new window."""
    window = browser.new_page(viewport={"width": WINDOW[0], "height": WINDOW[1]})
    window.set_default_timeout(1e3 * PATIENCE)
    window.goto(server.url(page, query))
    return window


def typed(page: Page, text: str, n_tokens: int) -> float:
    """Type a prompt, and return the seconds until its codes are on the map."""
    box = page.get_by_role("textbox", name="Prompt", exact=True)
    box.fill(text)
    begin = time.perf_counter()
    box.press("Enter")
    wait(page, PINS, n_tokens)
    return time.perf_counter() - begin


def prompts(
    browser: Browser, server: Server, rng: np.random.Generator, n: int, vocabulary: int
) -> list[float]:
    """Return the seconds of some prompts, each of another length."""
    page = opened(browser, server, "prompt")
    box = page.get_by_role("textbox", name="Prompt", exact=True)
    box.wait_for()
    wait(page, "() => document.querySelectorAll('.st-key-map .lc-pin').length > 0")
    before = page.evaluate("() => document.querySelectorAll('.st-key-map .lc-pin').length")
    # How many tokens stand before a prompt, such as one for a beginning, is seen on the first.
    extra = before - len(box.input_value().split())
    seconds = [typed(page, words(rng, WORDS + i, vocabulary), WORDS + i + extra)
               for i in range(1, n + 1)]
    page.close()
    return seconds


def visitors(browser: Browser, server: Server) -> tuple[list[float], list[float]]:
    """Return the seconds to the picture and a pair of further visitors, and the MiB of each.

    They stay, each in a browser that knows nothing of the others, until all have come.
    """
    pages, seconds, memory = [], [], [server.memory()]
    for _ in range(VISITORS):
        begin = time.perf_counter()
        pages.append(opened(browser, server, "texts", PAIR))
        wait(pages[-1], DRAWN, ".st-key-map")
        pages[-1].locator("svg.arcs .arc").first.wait_for(state="attached")
        seconds.append(time.perf_counter() - begin)
        settle(pages[-1])
        memory.append(server.memory())
    for page in pages:
        page.close()
    return seconds, np.diff(memory).tolist()


def main(
    n_texts: int = 1_000,
    n_tokens: int = 64,
    rounds: int = 7,
    out: Path = RESULTS / QUESTION,
    smoke: bool = False,
) -> None:
    """Time the explorer of a language model in a real browser; write JSON, a table and a figure.

    Args:
        n_texts: Texts that are read.
        n_tokens: Tokens of each.
        rounds: Prompts that are typed.
        out: Folder of the result.
        smoke: A small model and few texts, to see that it works.
    """
    check(n_texts >= 4 and n_tokens >= 2 and rounds > 0, f"n_texts is {n_texts}, n_tokens "
          f"{n_tokens} and rounds {rounds}; expected at least 4, 2 and 1")
    size = Size(n_texts=n_texts, n_tokens=n_tokens)
    if smoke:
        size, rounds = Size(2, 2, 32, 100, n_texts=40, n_tokens=16), 2
    rng = np.random.default_rng(0)
    cases: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as temporary, chromium() as browser:
        folder = Path(temporary).resolve()
        make_model(folder / "random-gpt2", size)
        write_text(folder / "texts.txt", "\n".join(
            words(rng, size.n_tokens, size.vocabulary) for _ in range(size.n_texts)) + "\n")
        report = Report(QUESTION, torch.device("cpu"), {
            "layers": size.n_layers, "heads": size.n_heads, "d_model": size.d_model,
            "texts": size.n_texts, "tokens": size.n_tokens, "rounds": rounds, "smoke": smoke,
            "browser": f"Chromium {browser.version}", "window": list(WINDOW),
            "targets_seconds": TARGETS})
        asked = ([folder / "random-gpt2"], folder / "cache", folder / "server.log",
                 ["--texts", str(folder / "texts.txt"), "--longest", str(size.n_tokens)])
        begin = time.perf_counter()
        with serving(*asked) as server:
            page = opened(browser, server)
            wait(page, DRAWN, ".st-key-map")
            noted(cases, "start to first picture", [time.perf_counter() - begin],
                  target=TARGETS["picture"])
            noted(cases, "prompt to codes, while texts are read", prompts(
                browser, server, rng, rounds, size.vocabulary))
            wait(page, READ)
            noted(cases, "start to picture of all texts", [time.perf_counter() - begin])
            noted(cases, "prompt to codes, all warm", prompts(
                browser, server, rng, rounds, size.vocabulary), target=TARGETS["prompt"])
            before = server.memory()
            seconds, memory = visitors(browser, server)
            noted(cases, "a further visitor's first picture and pair", seconds, mib=memory,
                  mib_before=before)
            page.close()
        begin = time.perf_counter()
        with serving(*asked) as server:
            page = opened(browser, server)
            wait(page, DRAWN, ".st-key-map")
            noted(cases, "another start to first picture", [time.perf_counter() - begin])
    said = (f"Memory of the server: {before:,.0f} MiB with one visitor; further ones took "
            f"{', '.join(f'{mib:.1f}' for mib in memory)} MiB (at most {MOST_MIB} each).")
    report.finish(out, cases, f"{table(cases)}\n\n{said}", figure(cases))


if __name__ == "__main__":
    tyro.cli(main)
