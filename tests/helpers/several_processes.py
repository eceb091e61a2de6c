"""Trains runs in several processes, as `torchrun` would start them, and reads what came out.

As a script, one of the processes: several_processes.py CASES.json, where each case is
{"config": YAML file, "out": run folder, "dtype": name of a type, "resume": bool}.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from places import environment
from safetensors.numpy import load_file

from latentcode.config import RunConfig, load_config, to_yaml
from latentcode.runs import Run
from latentcode.training import train

SECONDS = 240
"""After which processes are killed that still wait for each other."""


def trained_together(
    n: int, configs: Mapping[Path, RunConfig], *, float32: Collection[Path] = (),
    resume: bool = False,
) -> None:
    """Train each configuration in its folder by n processes; all of them have to end well.

    float32  folders of what is trained with such numbers, not with float64
    """
    place = next(iter(configs)).parent
    cases = []
    for out, config in configs.items():
        file = place / f"{out.name}.yaml"
        file.write_text(to_yaml(config), "utf-8")
        cases.append({"config": str(file), "out": str(out), "resume": resume,
                      "dtype": "float32" if out in float32 else "float64"})
    (place / "cases.json").write_text(json.dumps(cases), "utf-8")
    for error in run_all(n, [__file__, str(place / "cases.json")]):
        assert not error, error


ABORTED = "terminate called without an active exception\n"
"""What the C++ runtime says where gloo's threads outlive a process that ends with an error, which
now and then happens on a busy machine."""


def run_all(n: int, arguments: Sequence[str], **variables: str) -> list[str]:
    """Run a script in n processes; return what each that failed wrote to its standard error."""
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    started = [subprocess.Popen(
        [sys.executable, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        env=environment(**{
            "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(n),
            "LOCAL_WORLD_SIZE": str(n), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
            "OMP_NUM_THREADS": "1", **variables})) for rank in range(n)]
    try:
        said = [process.communicate(timeout=SECONDS)[1] for process in started]
    finally:
        for process in started:
            process.kill()
    return [error.removesuffix(ABORTED) or "failed" if process.returncode else ""
            for process, error in zip(started, said, strict=True)]


def weights(out: Path) -> np.ndarray:
    """Return the weights of a run's last checkpoint, one after the other.

    Without the key bias, whose gradient under softmax attention is rounding around 0 (a constant
    shift of a row's scores), which Adam makes large.
    """
    run = Run.open(out)
    assert run.is_complete
    found = load_file(run.checkpoint_path(run.config.training.steps) / "model.safetensors")
    return np.concatenate([found[name].flatten() for name in sorted(found)
                           if not name.endswith("b_K")])


def main(cases: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    for case in json.loads(Path(cases).read_text("utf-8")):
        torch.set_default_dtype(getattr(torch, case["dtype"]))
        train(load_config(case["config"]), case["out"], resume=case["resume"], progress=False)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
