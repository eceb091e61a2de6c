"""Whatever happens to a file: does it load, or is there one clear error of ours, and no change?"""

from __future__ import annotations

import json
import math
import signal
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch
import yaml
from disk import contents
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from places import GOLDEN

from latentcode.codes import LatentCodes
from latentcode.config import (
    LanguageConfig,
    LogicConfig,
    RunConfig,
    SravenConfig,
    TrainingConfig,
    config_hash,
    from_dict,
    load_config,
    parse_yaml,
    to_yaml,
)
from latentcode.errors import ConfigError, LatentCodeError
from latentcode.experiments.convert_1_0 import convert
from latentcode.files import provenance
from latentcode.models.config import ModelConfig
from latentcode.models.transformer import HookedTransformer
from latentcode.probes.decoding import DecodingResult
from latentcode.runs import Run, checkpoints
from latentcode.training import train
from latentcode.training.state import make_optimizer

pytestmark = pytest.mark.usefixtures("unchecked_signatures")

LIMIT = 60.0
"""Seconds after which one case counts as hanging."""

# --- Damage ---------------------------------------------------------------------------------------

CHUNKS = (
    b"", b"\0", b"\0" * 40, b"\xff\xfe", b"\xc3\x28", b"\xef\xbb\xbf", b"NaN", b"-Infinity",
    b"1e999", b"9" * 400, b"9" * 5000, b"-1", b"null", b"[" * 3000, b"{" * 3000, b'{"a":' * 3000,
    b"\n", b"\r\n", b"\t", b"\n\n{}\n", b'"', b"}", b"]", b",", b":", b"\\ud800", b"\\u0000",
    "¬∨🙂".encode(), b"\x7f\x85")
BOMB = b"[&a0 [1], " + b", ".join(
    f"&a{i} [{', '.join([f'*a{i - 1}'] * 10)}]".encode() for i in range(1, 12)) + b"]"
"""A few hundred bytes that stand for a list of 10^11 numbers."""
YAML_CHUNKS = (
    b"!!int ''", b"!!float ''", b"!!bool maybe", b"!!timestamp x", b"!!binary ?", b"!!set {a, b}",
    b"!!omap [a]", b"!!pairs [a]", b"!!python/object/apply:os.system [exit]", b"!!python/tuple [1]",
    b"2001-99-99", b"2001-12-14t21:59:43.10-05:00", b"=", b"<<: 1\n", b"? [a]\n: b\n",
    b"&a [*a]", b"*missing", b"--- 1\n--- 2\n", b"%YAML 9.9\n---\n", b"1:20:30", b"0o17", b"0x",
    b"1_000", b"-.inf", b".nan", b"|\n x", b">-\n", b"~", b"@", b"`", b"- ", b": ", b"#",
    BOMB)
NASTY: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 2**31, 2**63 - 1, 2**63, -2**63, 10**30, 10**400, 0.0, -0.0,
    0.5, 1e308, 1e-320, math.inf, -math.inf, math.nan, "", "a", "\0", "\ud800", "¬", "cpu", "1",
    "x" * 10_000, [], [[]], json.loads("[" * 90 + "]" * 90), [0], [[0, 1], [0]], [None],
    {}, {"a": 1}, {"name": "logic"}, {"name": "sraven"}, {"name": "language"}, ["scores"], [0] * 10)
KEYS = ("", "a", "name", "step", "format", "scores", "__metadata__", "é", "x" * 1000)

Draw = Callable[[st.SearchStrategy[Any]], Any]


def damage_bytes(draw: Draw, content: bytes, chunks: tuple[bytes, ...]) -> bytes:
    """Replace a piece of a file, which may be empty or all of it, by another."""
    at = draw(st.integers(0, len(content)))
    end = draw(st.sampled_from([at, at, min(at + 1, len(content)), min(at + 60, len(content)),
                                len(content)]))
    piece = draw(st.one_of(st.sampled_from(chunks), st.sampled_from(chunks), st.binary(max_size=8)))
    return content[:at] + piece + content[end:]


def places(data: Any) -> list[tuple[Any, Any]]:
    """Return every (container, key) of nested lists and dictionaries."""
    found: list[tuple[Any, Any]] = []
    left = [data]
    while left:
        container = left.pop()
        if isinstance(container, (dict, list)):
            keys = list(container) if isinstance(container, dict) else range(len(container))
            found += [(container, key) for key in keys]
            left += [container[key] for key in keys]
    return found


def damage_data(draw: Draw, data: Any) -> Any:
    """Replace, remove or rename a value somewhere in plain data, once or twice."""
    data = json.loads(json.dumps(data))
    for _ in range(draw(st.integers(1, 2))):
        if not places(data):
            return deepcopy(draw(st.sampled_from(NASTY)))
        container, key = draw(st.sampled_from(places(data)))
        kind = draw(st.sampled_from(["replace", "replace", "number", "remove", "rename"]))
        if kind == "remove":
            del container[key]
        elif kind == "rename" and isinstance(container, dict):
            container[draw(st.sampled_from(KEYS))] = container.pop(key)
        elif kind == "number":
            container[key] = draw(st.one_of(st.integers(), st.floats(), st.text(max_size=5)))
        else:
            container[key] = deepcopy(draw(st.sampled_from(NASTY)))  # the next round may damage it
    return data


def damage_json(draw: Draw, content: bytes) -> bytes:
    text = json.dumps(damage_data(draw, json.loads(content)))
    if draw(st.integers(0, 5)) == 0:  # one key twice
        text = text.replace('{"', '{"format": 1, "', 1)
    return text.encode()


def damage_lines(draw: Draw, content: bytes) -> bytes:
    """Damage a line, or put another number of copies of it in the place of another."""
    lines = content.splitlines(keepends=True)
    at, other = (draw(st.integers(0, len(lines) - 1)) for _ in range(2))
    if draw(st.booleans()):
        lines[at] = damage_json(draw, lines[at])
    else:
        lines[at:at + 1] = [lines[other]] * draw(st.integers(0, 2))
    return b"".join(lines)


def damage_yaml(draw: Draw, content: bytes) -> bytes:
    if draw(st.booleans()):
        lines = content.splitlines()
        at = draw(st.sampled_from([i for i, line in enumerate(lines) if b":" in line]))
        lines[at] = lines[at].split(b":")[0] + b": " + draw(st.sampled_from(YAML_CHUNKS + CHUNKS))
        return b"\n".join(lines)
    data = damage_data(draw, yaml.safe_load(content))
    return yaml.safe_dump(data, sort_keys=False).encode(errors="surrogatepass")


def damage_tensors(draw: Draw, content: bytes) -> bytes:
    """Change the header of a safetensors file or its length; bytes change anywhere else."""
    length = struct.unpack("<Q", content[:8])[0]
    header, body = content[8:8 + length], content[8 + length:]
    if draw(st.booleans()):
        header = damage_json(draw, header)
        length = len(header)
    else:
        length = draw(st.sampled_from([0, 1, length - 1, length + 1, 2**31, 2**63, 2**64 - 1]))
    return struct.pack("<Q", length) + header + body


BY_KIND = {".json": damage_json, ".jsonl": damage_lines, ".yaml": damage_yaml,
           ".safetensors": damage_tensors}


def damaged(draw: Draw, suffix: str, content: bytes) -> bytes:
    special = BY_KIND.get(suffix)
    if special is None or draw(st.integers(0, 2)) == 0:
        return damage_bytes(draw, content, CHUNKS + (YAML_CHUNKS if suffix == ".yaml" else ()))
    return special(draw, content)


# --- What is damaged ------------------------------------------------------------------------------

CONFIG = RunConfig(
    LogicConfig(n_variables=2, n_terms=1, n_examples=4, ood_fraction=0.0, unknown_fraction=0.0),
    ModelConfig(d_input=3, n_layers=1, d_model=4, n_heads=2, d_head=2, d_head_v=2, d_mlp=4,
                n_buckets=4, max_distance=4, attention_dropout=0.2),
    TrainingConfig(steps=4, batch_size=4, warmup_steps=1, eval_every=2, eval_instances=4,
                   log_every=3, checkpoint_every=2, keep_checkpoints=1))
SRAVEN = SravenConfig()
LANGUAGE = LanguageConfig(n_vocabulary=5, n_tokens=4)
TEXTS = [to_yaml(config).encode() for config in (
    CONFIG,
    RunConfig(LogicConfig(held_out=((0, 1), (2, 3)))),
    RunConfig(SRAVEN, ModelConfig(d_input=SRAVEN.d_input, d_output=SRAVEN.d_output)),
    RunConfig(LANGUAGE, ModelConfig(d_input=5, d_output=5, embedding="token", readout="tied")),
)]


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run, codes and a decoding."""
    folder = tmp_path_factory.mktemp("fuzz")
    train(CONFIG, folder / "run", progress=False)
    convert(GOLDEN / "from_1_0" / "codes", folder / "codes")
    convert(GOLDEN / "from_1_0" / "decoding", folder / "decoding")
    return folder


def read_run(folder: Path) -> None:
    run = Run.open(folder / "run")
    repr(run)
    for read in (run.metrics, run.latest, run._repr_html_, run.load_model,
                 lambda: [run.load_checkpoint(step) for step in run.checkpoints()],
                 lambda: restore(run)):
        with expected():
            read()


def restore(run: Run) -> None:
    """Restore everything; not by way of a `TrainingState`, which lists the combinations of the
    task first: up to millions, where a digit of the configuration was damaged."""
    checkpoint, model = run.load_checkpoint(), HookedTransformer(run.config.model)
    checkpoint.restore_model(model)
    checkpoint.restore_optimizer(make_optimizer(model, run.config.training), model)
    checkpoint.restore_generators({"dropout": torch.Generator()})


def read_codes(folder: Path) -> None:
    codes = LatentCodes.load(folder / "codes")
    repr(codes)
    codes.to_pandas()


READERS: dict[str, tuple[Callable[[Path], object], ...]] = {
    "run": (read_run, lambda folder: config_hash(load_config(folder / "run" / "config.yaml"))),
    "codes": (read_codes,),
    "decoding": (lambda folder: DecodingResult.load(folder / "decoding"),)}


@contextmanager
def expected() -> Iterator[None]:
    """Let errors of ours pass, if they are one message; everything else fails the test."""
    try:
        yield
    except LatentCodeError as error:
        check_message(error)


def check_message(error: LatentCodeError) -> None:
    """A message, not a dump of what was read."""
    assert 0 < len(str(error)) < 100_000


@contextmanager
def no_hang() -> Iterator[None]:
    def hangs(number: int, frame: FrameType | None) -> None:
        raise AssertionError(f"still busy after {LIMIT:.0f} s")

    before = signal.signal(signal.SIGALRM, hangs)
    signal.setitimer(signal.ITIMER_REAL, LIMIT)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def run_cases(cases: int, body: Callable[[Draw], None]) -> None:
    tried = 0

    @settings(max_examples=cases, derandomize=True, deadline=None, database=None,
              suppress_health_check=list(HealthCheck))
    @given(st.data())
    def case(data: st.DataObject) -> None:
        nonlocal tried
        tried += 1
        with no_hang():
            body(data.draw)

    case()
    assert tried >= cases


# --- Cases ----------------------------------------------------------------------------------------

needs_alarm = pytest.mark.skipif(not hasattr(signal, "SIGALRM"), reason="needs SIGALRM")


def cases(fast: int, slow: int) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("cases", [
        fast, pytest.param(slow, marks=pytest.mark.slow)])


@needs_alarm
@cases(20, 300)
def test_any_text_is_a_configuration_or_a_config_error(cases: int) -> None:
    loaded = refused = 0

    def one(draw: Draw) -> None:
        nonlocal loaded, refused
        text = damaged(draw, ".yaml", draw(st.sampled_from(TEXTS))).decode(errors="replace")
        try:
            config = from_dict(RunConfig, parse_yaml(text))
        except ConfigError as error:
            refused += 1
            check_message(error)
        else:
            loaded += 1
            assert from_dict(RunConfig, parse_yaml(to_yaml(config))) == config

    run_cases(cases, one)
    assert refused > cases / 4
    assert loaded > 0


# A name that is damaged may hold a character that a figure cannot draw.
@pytest.mark.filterwarnings("ignore:Glyph .* missing from font:UserWarning")
@needs_alarm
@pytest.mark.parametrize("checked", [True, False])
@pytest.mark.parametrize("artifact", list(READERS))
@cases(4, 24)
def test_a_damaged_file_loads_or_is_one_error(
    artifacts: Path, artifact: str, checked: bool, cases: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where checksums are not compared, damage reaches every parser."""
    for module in () if checked else (provenance, checkpoints):
        monkeypatch.setattr(module, "check_checksum", lambda path, recorded: None)
    folder = artifacts
    files = sorted(f for f in (folder / artifact).rglob("*") if f.is_file()
                   and f.name not in (".lock", "timing.jsonl"))

    def one(draw: Draw) -> None:
        file = draw(st.sampled_from(files))
        whole = file.read_bytes()
        file.write_bytes(damaged(draw, file.suffix, whole))
        before = contents(folder)
        try:
            for read in READERS[artifact]:
                with expected():
                    read(folder)
            assert contents(folder) == before
        finally:
            file.write_bytes(whole)

    run_cases(cases, one)
    for read in READERS[artifact]:
        read(folder)  # nothing of the above is left


@pytest.mark.parametrize("value", [
    "!!int ''", "!!float ''", "!!bool maybe", "!!timestamp x", "2001-99-99", "!!python/tuple [1]",
    "=", "&a [*a]", BOMB.decode(), "[" * 3000, "9" * 5000])
def test_values_that_trip_the_yaml_reader(value: str) -> None:
    text = TEXTS[0].decode().replace("held_out: null", f"held_out: {value}")
    assert value in text
    with no_hang(), pytest.raises(ConfigError) as raised:
        from_dict(RunConfig, parse_yaml(text))
    check_message(raised.value)
