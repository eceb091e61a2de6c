"""Kills one training run again and again at random times; it must end as if nothing had happened.

Usage, with tests/helpers on PYTHONPATH: kill_loop.py [--kills 50] [--seed 0] [--out FILE.json].
Each life of the run is a fork of this process, so that imports take none of its time, and gets
SIGKILL after a random delay. After every death the run is opened, its newest checkpoint, model
and metrics are read, and it is resumed. At the end its files are compared, byte for byte, with
those of a run that nobody killed. Prints one JSON object, with a line per kill.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from disk import trained

from latentcode.config import LogicConfig, RunConfig, TrainingConfig, config_hash
from latentcode.files.provenance import software
from latentcode.models.config import ModelConfig
from latentcode.runs import Run
from latentcode.training import train

CONFIG = RunConfig(
    LogicConfig(n_variables=3, n_terms=2, n_examples=6, ood_fraction=0.3),
    ModelConfig(d_input=4, n_layers=1, d_model=8, n_heads=2, d_head=2, d_head_v=2, d_mlp=8,
                n_buckets=6, max_distance=6, attention_dropout=0.1),
    TrainingConfig(steps=600, batch_size=8, warmup_steps=10, eval_every=25, eval_instances=16,
                   log_every=3, checkpoint_every=2, keep_checkpoints=2, learning_rate=1e-2))
SHORTEST, LONGEST = 0.005, 0.6
"""Bounds in seconds of the random life of a process; its logarithm is uniform."""
SHARE = 0.5
"""The most that all lives but the last may take, as a share of the time of a whole run: on a fast
machine they are shortened, so that the run cannot end before it was killed often enough."""


def live(out: Path) -> None:
    """What a user does after a crash: resume the run, or start it if there is none."""
    train(CONFIG, out, resume=out.exists(), progress=False)


def start(out: Path) -> int:
    """Return the process number of a child that trains."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            live(out)
            status = 0
        finally:
            sys.stderr.flush()
            os._exit(status)
    return child


def kill_after(child: int, delay: float) -> bool:
    """Return whether a child was still alive, and was killed, after `delay` seconds."""
    time.sleep(delay)
    os.kill(child, signal.SIGKILL)  # a child that has ended is ours until we wait for it
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        return True
    assert os.waitstatus_to_exitcode(status) == 0, "the run could not go on"
    return False


def look(out: Path) -> dict[str, Any]:
    """Open what a killed process left and read all of it; everything must be readable."""
    if not out.exists():
        return {"step": None, "metric_lines": 0}
    run = Run.open(out)
    steps = run.checkpoints()
    for step in steps:
        model = run.load_model(step)
        assert all(bool(tensor.isfinite().all()) for tensor in model.state_dict().values())
    lines = len(run.metrics())
    return {"step": steps[-1] if steps else None, "metric_lines": lines}


def kill_loop(folder: Path, kills: int, seed: int) -> dict[str, Any]:
    """Return the log of `kills` deaths of one run in `folder`/run, and the comparison."""
    torch.set_num_threads(1)
    began = time.perf_counter()
    whole = train(CONFIG, folder / "whole", progress=False)  # late imports are paid here, too
    allowed = SHARE * (time.perf_counter() - began)
    chance = random.Random(seed)
    delays = [math.exp(chance.uniform(math.log(SHORTEST), math.log(LONGEST)))
              for _ in range(kills)]
    shorten = min(1.0, allowed / sum(delays))
    out, resumed = folder / "run", 0
    log: list[dict[str, Any]] = []
    for delay in (shorten * d for d in delays):
        existed = out.exists()
        if not kill_after(start(out), delay):
            raise RuntimeError(f"the run ended after {len(log)} kills; expected {kills}: make it "
                               "longer")
        found = look(out)
        resumed += existed
        log.append({"kill": len(log) + 1, "delay_s": round(delay, 4), "resumed": existed, **found,
                    "stale": sorted(p.name for p in folder.rglob(".tmp-*"))})
    last = start(out)
    assert os.waitstatus_to_exitcode(os.waitpid(last, 0)[1]) == 0, "the run could not be finished"
    resumed += 1
    mine, wanted = trained(out), trained(whole.path)
    return {
        "kills": len(log), "resumes": resumed, "steps": CONFIG.training.steps,
        "equal": {name: mine.get(name) == content for name, content in wanted.items()},
        "unexpected_files": sorted(set(mine) - set(wanted)),
        "stale_files": sorted(str(p.relative_to(folder)) for p in folder.rglob(".tmp-*")),
        "resumptions_noted": len(Run.open(out).provenance["resumed"]),
        "seed": seed, "config_hash": config_hash(CONFIG), "software": software(), "log": log}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        result = kill_loop(Path(folder), options.kills, options.seed)
    # One line per kill, so that the log can be read.
    log = ",\n    ".join(json.dumps(line) for line in result.pop("log"))
    text = json.dumps(result, indent=2).removesuffix("\n}") + f',\n  "log": [\n    {log}\n  ]\n}}'
    if options.out is not None:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
