"""How long does a training step of the official code take? The worker that answers.

    python experiments/benchmarks/official_worker.py CHECKOUT [THREADS]

runs under a Python that has jax, flax, optax and chex, and needs a checkout of
github.com/smonsays/hypernetwork-attention; it knows nothing of latentcode. It reads requests
from stdin and answers on stdout, one JSON object per line, so that the official code and ours
can take turns in one sitting:

    {"do": "build", "task": "sraven", "kind": "hyla", ...}
    {"do": "time", "what": "step", "n": 10}      -> {"seconds": 3.46}
    {"do": "memory"}                             -> {"peak_mib": 1203.5}

`step` is what one turn of the official training loop does: take the next batch of its loader
and update. `update` is the update alone, on a batch that was drawn before. Model, loss, data and
update are the checkout's own, called unchanged; the optimiser is put together here from optax,
as the official entry point does, because importing that one needs TensorFlow and more.
"""

from __future__ import annotations

import importlib
import json
import os
import runpy
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

CONFIGS = {"sraven": ("raven.py", "raven_3x3_4features"), "logic": ("logic.py", "logic_4var_2term")}
"""Task -> file below `configs/` and the name of the data setting in it."""
MIXERS = {"hyla": "linear_hypatt", "softmax": "softmax_attention", "linear": "linear_attention"}
"""Our attention kinds -> the official names."""


class Official:
    """One training of the official code, driven step by step."""

    def __init__(self, checkout: Path) -> None:
        self.checkout = checkout
        self.jax = importlib.import_module("jax")
        self.experiment: Any = None

    def build(
        self, task: str, kind: str, training: dict[str, Any], data: dict[str, Any],
        model: dict[str, Any],
    ) -> dict[str, Any]:
        """Set up a training; the last three overwrite fields of the official configuration."""
        file, name = CONFIGS[task]
        config = runpy.run_path(str(self.checkout / "configs" / file))["get_config"](
            f"{name};{MIXERS[kind]}")
        config.update(training)
        config.data.update(data)
        config.model.update(model)
        for name in ("num_train", "num_valid", "num_test", "num_ood"):
            if name in config.data:  # the loaders want whole batches
                config.data[name] -= config.data[name] % config.batch_size
        if task == "sraven":
            config.data.seq_len = config.data.grid_size**2 * config.data.num_features
            config.model.output_dim = config.data.feature_maxval
        config.model.relative_position_max_dist = config.data.seq_len

        losses = importlib.import_module("hyla.loss")
        if task == "sraven":
            create = importlib.import_module("hyla.data.raven").create_raven_datasets
            loss = partial(losses.SymbolicRavenLoss, num_features=config.data.num_features,
                           num_feature_values=config.data.feature_maxval)
        else:
            create = importlib.import_module("hyla.data.logic").create_fuzzy_logic_datasets
            loss = losses.FuzzyLogicLoss
        (train, evaluation, callbacks), _ = create(
            batch_size=config.batch_size, seed=config.seed, **config.data)
        optax, tree = importlib.import_module("optax"), self.jax.tree_util
        rate = optax.warmup_cosine_decay_schedule(
            0.0, config.lr, config.warmup_steps, len(train) - config.warmup_steps, 0.1 * config.lr)
        decayed = partial(tree.tree_map, lambda leaf: leaf.ndim != 1)
        transformer = importlib.import_module("hyla.models.transformer")
        self.experiment = importlib.import_module("hyla.experiment").Experiment(
            config=config, loss=loss, train_loader=train, eval_loaders=evaluation,
            callback_loaders=callbacks,
            model=transformer.CausalTransformer(transformer.TransformerConfig(**config.model)),
            optimizer=optax.chain(optax.adamw(
                rate, weight_decay=config.weight_decay, mask=decayed)))
        self.state = self.experiment.reset(self.jax.random.PRNGKey(config.seed))
        self.batches = iter(self.experiment.train_loader)
        self.batch = next(self.batches)
        device = self.jax.devices()[0]
        return {"n_parameters": sum(leaf.size for leaf in tree.tree_leaves(self.state.params)),
                "input_shape": list(self.batch.x.shape),
                "config": config.to_dict(), "device": str(device),
                "device_name": getattr(device, "device_kind", str(device)),
                "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity")
                else os.cpu_count(),
                "matmul_precision": str(self.jax.config.jax_default_matmul_precision),
                "versions": {name: importlib.import_module(name).__version__
                             for name in ("jax", "flax", "optax", "numpy")}}

    def time(self, what: str, n: int) -> dict[str, float]:
        """Return the seconds of n steps or updates, the last of them finished."""
        if self.experiment is None:
            raise ValueError("nothing is built yet; expected a `build` request first")
        self.jax.block_until_ready((self.state.params, self.batch.x))
        begin = time.perf_counter()
        for _ in range(n):
            if what == "step":
                self.batch = next(self.batches)
            self.state, metrics = self.experiment.train_step(self.state, self.batch)
        self.jax.block_until_ready((self.state, metrics))
        return {"seconds": time.perf_counter() - begin}

    def memory(self) -> dict[str, float]:
        """Return the most memory held so far, in MiB: of the GPU, or resident on the CPU."""
        statistics = self.jax.devices()[0].memory_stats()
        if statistics:
            return {"peak_mib": float(statistics["peak_bytes_in_use"]) / 2**20}
        import resource

        return {"peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10}


def main(checkout: str, threads: str | None = None) -> None:
    """Answer requests until stdin ends; an error is an answer too."""
    # Libraries print what they like; only answers may reach the other side.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    if threads is not None and hasattr(os, "sched_setaffinity"):
        # jax has as many threads as the process may use cores, and no other setting for it.
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:int(threads)])
    sys.path.insert(0, checkout)
    official: Official | None = None
    for line in sys.stdin:
        try:
            if official is None:
                official = Official(Path(checkout))
            request = json.loads(line)
            reply = getattr(official, request.pop("do"))(**request)
        except Exception as error:  # reported to the other side, which raises it
            reply = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(reply, default=str) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
