"""Kills sweeps; what they leave in the end must be what a sweep leaves that nobody killed.

Usage, with tests/helpers on PYTHONPATH: sweep_kill.py [--grid small_logic] [--kills 3] [--seed 0]
[--only interrupted ray] [--out FILE.json]. First the sweep runs undisturbed. Then,

interrupted SIGKILL strikes all processes of a sweep at once, `kills` times, at random points that
are spread over it; after each the same command is started again ray the sweep runs on a Ray
cluster of two workers, and SIGKILL strikes a worker in the middle of a member; nothing is started
again by hand

The tables and the files of all runs are compared byte for byte with the undisturbed ones. Prints
one JSON object; exit status 1 where anything differs.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from disk import trained

from latentcode.devices import available_cores, device_name
from latentcode.errors import RunError
from latentcode.experiments.sweep import load_grid
from latentcode.files.locks import exclusive
from latentcode.files.provenance import software
from latentcode.runs import Run
from latentcode.runs.folder import LOCK
from latentcode.runs.metric_file import recorded_step

TABLES = ("table.parquet", "table.csv", "summary.csv")
LONGEST = 1800.0
"""Seconds after which a sweep is given up."""


class Case:
    """Sweeps of one grid in folders next to each other."""

    def __init__(self, folder: Path, grid: str) -> None:
        self.folder, self.grid = folder, grid
        self.members = load_grid(grid).members()
        self.total = sum(config.training.steps for config in self.members.values())

    def start(self, name: str, *flags: str) -> subprocess.Popen[bytes]:
        """Start a sweep in a process group of its own; what it prints goes to a file."""
        command = [sys.executable, "-m", "latentcode", "sweep", "--out",
                   str(self.folder / name), "--grid", self.grid, *flags]
        with (self.folder / f"{name}.log").open("ab") as log:
            return subprocess.Popen(command, start_new_session=True, stdout=log, stderr=log)

    def finish(self, name: str, process: subprocess.Popen[bytes]) -> None:
        """Wait for a sweep to end well."""
        code = process.wait(LONGEST)
        log = (self.folder / f"{name}.log").read_text()
        assert code == 0, f"the sweep ended with status {code}:\n{log}"

    def steps(self, name: str) -> dict[str, int]:
        """Return how far the members are."""
        return {member: recorded_step(self.folder / name / member) for member in self.members}

    def compare(self, name: str, wanted: str) -> dict[str, Any]:
        """Compare two sweeps, byte for byte: the tables, and the files of every run."""
        mine, theirs = self.folder / name, self.folder / wanted
        runs = {member: trained(mine / member) == trained(theirs / member)
                for member in self.members}
        return {"tables_equal": {table: (mine / table).read_bytes() == (theirs / table).read_bytes()
                                 for table in TABLES},
                "runs_equal": sum(runs.values()), "runs": len(runs),
                "stale_files": sorted(str(p.relative_to(mine)) for p in mine.rglob(".tmp-*"))}

    def resumed(self, name: str) -> dict[str, list[int]]:
        """Return the steps from which members went on."""
        notes = {member: Run.open(self.folder / name / member).provenance["resumed"]
                 for member in self.members}
        return {member: [note["step"] for note in of_member]
                for member, of_member in notes.items() if of_member}


def wait_until(condition: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    began = time.monotonic()
    while not condition():
        assert process.poll() is None, "the sweep ended before it was to be killed: make it longer"
        assert time.monotonic() - began < LONGEST, "the sweep does not get on"
        time.sleep(0.02)


def await_death(out: Path) -> None:
    """Wait until no process holds a lock below a folder; a killed one may take a moment."""
    for lock in out.rglob(LOCK):
        for _ in range(500):
            try:
                with exclusive(lock):
                    break
            except RunError:
                time.sleep(0.02)
        else:
            raise AssertionError(f"{lock} is still held: a process has survived")


def interrupted(case: Case, kills: int, seed: int) -> dict[str, Any]:
    """Kill everything `kills` times, at steps that are uniform in equal parts of the sweep."""
    chance, log = random.Random(seed), []
    for number in range(kills):
        goal = case.total * (number + chance.uniform(0.2, 0.9)) / (kills + 0.5)
        process = case.start("interrupted")
        wait_until(lambda goal=goal: sum(case.steps("interrupted").values()) >= goal, process)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        await_death(case.folder / "interrupted")
        steps = case.steps("interrupted")
        complete = [steps[member] == config.training.steps
                    for member, config in case.members.items()]
        log.append({"kill": number + 1, "steps": sum(steps.values()), "of": case.total,
                    "members_complete": sum(complete),
                    "members_begun": sum(step > 0 for step in steps.values()) - sum(complete)})
    case.finish("interrupted", case.start("interrupted"))
    return {"kills": log, "resumed_from": case.resumed("interrupted"),
            **case.compare("interrupted", "undisturbed")}


def killed_ray_worker(case: Case, seed: int) -> dict[str, Any]:
    """Kill the Ray worker that trains a member drawn at random, when it is half way."""
    victim, config = random.Random(seed).choice(list(case.members.items()))
    process = case.start("ray", "--executor", "ray", "--processes", "2")
    wait_until(lambda: case.steps("ray")[victim] >= config.training.steps // 2, process)
    owner = (case.folder / "ray" / victim / LOCK).read_text()
    match = re.match(r"process (\d+) ", owner)
    assert match is not None, owner
    pid = int(match[1])
    title = Path(f"/proc/{pid}/cmdline").read_bytes().decode().strip("\0")
    assert "ray" in title, f"{owner} is {title!r}"
    os.kill(pid, signal.SIGKILL)
    at = case.steps("ray")[victim]
    case.finish("ray", process)
    resumed = case.resumed("ray")
    assert victim in resumed, "the killed worker's member was not begun again"
    return {"workers": 2, "killed": {"member": victim, "process": title, "step": at},
            "resumed_from": resumed, **case.compare("ray", "undisturbed")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--grid", default="small_logic")
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", choices=("interrupted", "ray"),
                        default=["interrupted", "ray"])
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as folder:
        case = Case(Path(folder), options.grid)
        began = time.monotonic()
        case.finish("undisturbed", case.start("undisturbed"))
        result: dict[str, Any] = {
            "grid": options.grid, "members": len(case.members), "steps": case.total,
            "seconds_undisturbed": round(time.monotonic() - began, 1)}
        if "interrupted" in options.only:
            result["interrupted"] = interrupted(case, options.kills, options.seed)
        if "ray" in options.only:
            result["ray"] = killed_ray_worker(case, options.seed)
    result |= {"seed": options.seed, "device": device_name("cpu"), "cores": available_cores(),
               "software": software()}
    text = json.dumps(result, indent=2)
    if options.out is not None:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(text + "\n", encoding="utf-8")
    print(text)
    parts = [result[part] for part in options.only]
    if not all(all(part["tables_equal"].values()) and part["runs_equal"] == part["runs"]
               and not part["stale_files"] for part in parts):
        sys.exit(1)


if __name__ == "__main__":
    main()
