"""Several processes train one model: who are they, and what do they have to agree on?

They are started by `torchrun`, each with a share of every batch. Process 0 leads: it writes the
run, evaluates and shows progress. The others compute, and follow it.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from latentcode.devices import resolve_device
from latentcode.errors import ConfigError, LatentCodeError, TrainingError, check

LAUNCH = ".launch"
"""The file in a run's folder that says which `torchrun` writes it."""
PATIENCE = timedelta(hours=2)
"""How long a process waits for the others: an evaluation, which the first one does alone, takes
its time. One that has died is noticed at once."""
NEEDED = ("RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def n_started() -> int:
    """Number of processes that a launcher such as `torchrun` has started for this training."""
    size = os.environ.get("WORLD_SIZE", "1")
    check(size.isdecimal() and int(size) >= 1, f"the environment has WORLD_SIZE={size!r}; expected "
          "a number of processes, as torchrun sets it")
    return int(size)


def check_alone(what: str) -> None:
    """Raise `ConfigError` where several processes were started for what a single one does."""
    check(n_started() == 1, f"{what} is called by {n_started()} processes (WORLD_SIZE); expected "
          "one: torchrun is for a single model that is trained by `latentcode train` or `train`")


def note_launch(folder: Path) -> None:
    """Note in a run's folder which `torchrun` writes it, if any."""
    if launch := _launch():
        (folder / LAUNCH).write_text(launch, "utf-8")


def is_restart(folder: Path) -> bool:
    """Whether `torchrun` has started the processes again after one of them died, and it was they
    who began to write a folder, which nobody else's is mistaken for."""
    noted = folder / LAUNCH
    return _n_restarts() > 0 and noted.is_file() and noted.read_text("utf-8") == _launch()


def _launch() -> str | None:
    name = os.environ.get("TORCHELASTIC_RUN_ID")
    return None if name is None else f"{name} {os.getppid()} {socket.gethostname()}"


def _n_restarts() -> int:
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))


@dataclass(frozen=True)
class Group:
    """The processes that train one model; all by itself where nothing was launched.

    Every method but `leads` has to be called by all of them, in the same order.
    """

    rank: int = 0
    """The number of this process, from 0."""
    size: int = 1
    control: dist.ProcessGroup | None = None
    """Where numbers of the processor are exchanged: a GPU is never waited for."""

    @property
    def leads(self) -> bool:
        """Whether this is the process that writes and shows."""
        return self.rank == 0

    def any(self, flag: bool) -> bool:
        """Whether the flag of any process is set."""
        if self.size == 1:
            return flag
        total = torch.tensor(int(flag))
        dist.all_reduce(total, dist.ReduceOp.MAX, self.control)
        return bool(total)

    def mean(self, values: Tensor) -> Tensor:
        """Return the mean over processes of a tensor on the device of the model."""
        if self.size == 1:
            return values
        total = values.clone()
        dist.all_reduce(total)
        return total / self.size

    def texts(self, text: str) -> list[str]:
        """Return the text of every process, in their order."""
        if self.size == 1:
            return [text]
        texts = [""] * self.size
        dist.all_gather_object(texts, text, self.control)
        return texts

    def check_same(self, what: str, value: str) -> None:
        """Raise `ConfigError` unless a value is the same in every process."""
        values = self.texts(value)
        other = next((rank for rank, text in enumerate(values) if text != values[0]), 0)
        check(not other, f"{what} is {values[0]!r} in process 0 and {values[other]!r} in process "
              f"{other}; expected the same in all of them")

    @contextmanager
    def together(self) -> Iterator[None]:
        """Let an error of any process end all of them, with one message.

        The first process raises the error, that of another one as `TrainingError`; the others end
        in silence (`SystemExit`).
        """
        error: Exception | None = None
        try:
            yield
        except (LatentCodeError, OSError) as raised:
            error = raised
            if self.size == 1:
                raise
        messages = self.texts("" if error is None else str(error).strip() or type(error).__name__)
        failed = next((rank for rank, text in enumerate(messages) if text), None)
        if failed is None:
            return
        if not self.leads:
            raise SystemExit(1)
        if error is not None:
            raise error
        raise TrainingError(f"process {failed}: {messages[failed]}")


@contextmanager
def processes(device: str) -> Iterator[Group]:
    """Yield the group of the processes that were launched together; by oneself where none were.

    device  that of the training: `cpu`, or `cuda`, of which every process of a machine takes one

    Raises `ConfigError` for an incomplete environment, more processes than GPUs, and a GPU by its
    number, which all processes would share.
    """
    size = n_started()
    if size == 1:
        yield Group()
        return
    missing = [name for name in NEEDED if name not in os.environ]
    check(not missing, f"the environment has WORLD_SIZE={size} and no {', '.join(missing)}; "
          "expected torchrun to start the processes: torchrun --nproc-per-node "
          f"{size} -m latentcode train ...", ConfigError)
    local, here = int(os.environ["LOCAL_RANK"]), int(os.environ["LOCAL_WORLD_SIZE"])
    on_gpu = resolve_device(device).type == "cuda"
    if on_gpu:
        check(device == "cuda", f"training.device is {device!r} with {size} processes; expected "
              "cuda, of which each takes its own")
        n_gpus = torch.cuda.device_count()
        check(here <= n_gpus, f"{here} processes were started on a machine with {n_gpus} GPUs; "
              f"expected at most {n_gpus}: torchrun --nproc-per-node {n_gpus}")
        torch.cuda.set_device(local)
    ours = not dist.is_initialized()
    if ours:
        store, rank, _ = next(rendezvous("env://", timeout=PATIENCE))
        # Started again, processes may find the same store, with the addresses of those that died.
        attempt = PrefixStore(f"restart {_n_restarts()} of {size}", store)
        dist.init_process_group("nccl" if on_gpu else "gloo", store=attempt, rank=rank,
                                world_size=size, timeout=PATIENCE)
    try:
        control = dist.new_group(backend="gloo", timeout=PATIENCE) if on_gpu else dist.group.WORLD
        yield Group(dist.get_rank(), size, control)
    finally:
        if ours:
            dist.destroy_process_group()


ALONE = Group()
