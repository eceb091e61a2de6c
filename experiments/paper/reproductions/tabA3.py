"""Table A3: the hyperparameters of the published models, and ours."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from latentcode.config import RunConfig, flatten, preset, to_dict
from latentcode.experiments.paper.reproduction import NO_RUNS, Findings, Reproduction, Work
from latentcode.experiments.paper.verdicts import evidence

TABLE_A3: Mapping[str, Mapping[str, tuple[float, ...]]] = {
    "logic": {
        "batch_size": (128,), "num_layers": (2,), "width_factor": (1,), "emb_dim": (128,),
        "kqv_dim": (16,), "mlp_dim": (256,), "num_heads": (8,), "learning_rate": (0.001, 0.003),
        "weight_decay": (0.03, 0.1), "warmup_steps": (100,)},
    "sraven": {
        "batch_size": (128,), "num_layers": (4, 8, 16), "width_factor": (1, 2, 4),
        "emb_dim": (128,), "kqv_dim": (64,), "mlp_dim": (256,), "num_heads": (16,),
        "learning_rate": (0.0003, 0.001), "weight_decay": (0.1, 0.3),
        "warmup_steps": (1_000, 3_000)},
    "language": {
        "batch_size": (256,), "num_layers": (6,), "width_factor": (1,), "emb_dim": (512,),
        "kqv_dim": (64,), "mlp_dim": (2_048,), "num_heads": (8,), "learning_rate": (0.001, 0.003),
        "weight_decay": (0.1, 0.03), "warmup_steps": (1_000,)},
}
"""As printed."""
OF_THE_CLAIM = ("logic", "sraven")
"""What the claim was about before language models could be trained here."""
FIELDS = {"batch_size": "training.batch_size", "num_layers": "model.n_layers",
          "emb_dim": "model.d_model", "mlp_dim": "model.d_mlp", "num_heads": "model.n_heads",
          "learning_rate": "training.learning_rate", "weight_decay": "training.weight_decay",
          "warmup_steps": "training.warmup_steps"}
"""Parameter of the table -> field of ours; the others are computed in `ours`."""
ALSO = ("task.n_examples", "task.ood_fraction", "training.steps", "training.grad_clip",
        "training.precision", "model.d_head", "model.d_head_v", "model.attention_dropout",
        "model.positions", "model.feedforward")
"""What the table leaves out, in our words."""


def measure(work: Work) -> Findings:
    """Return every parameter of the tasks: printed, and of the preset."""
    rows = [row for task in TABLE_A3 for row in compare(task, preset("paper", task))]
    table = pd.DataFrame(rows)
    n_right = int(table["holds"].sum())
    configs = {task: flatten(to_dict(preset("paper", task))) for task in TABLE_A3}
    also = pd.DataFrame([
        {"field": field, **{task: _written(config[field])
                            for task, config in configs.items() if field in config}}
        for field in ALSO])
    return Findings(
        summary=f"{n_right} of the {len(table)} values of the presets are those of Table A3, or a "
                "point of its grid; the head dimensions are read as sums over heads, that of "
                "language per head.",
        tables={"parameters": table, "not_in_the_table": also},
        evidence={claim.id: _evidence([row for row in rows if row["task"] in OF_THE_CLAIM])
                  for claim in work.claims},
        notes=("The preset is one point of the grid, labelled \"one setting\" until the grid is "
               "run.",
               "The table does not name attention dropout, which the official code has at 0.1.",
               "The claim is about fuzzy logic and SRAVEN. The values of language stand beside "
               "them; no model was trained with these."))


def compare(task: str, config: RunConfig) -> list[dict[str, object]]:
    """Return a row per parameter: printed values, ours, and whether ours is one of them."""
    return [{"task": task, "parameter": name, "published": _written(values),
             "ours": f"{ours(name, config):g}", "holds": ours(name, config) in values}
            for name, values in TABLE_A3[task].items()]


def ours(name: str, config: RunConfig) -> float:
    """Return a parameter of Table A3 of a configuration; NaN where queries and values differ.

    `kqv_dim` is the sum over heads, in language models that of one head.
    """
    model = config.model
    if name == "kqv_dim":
        n_heads = 1 if config.task.name == "language" else model.n_heads
        return float(n_heads * model.d_head) if model.d_head == model.d_head_v else float("nan")
    if name == "width_factor":
        return model.d_model / TABLE_A3[config.task.name]["emb_dim"][0]
    return float(flatten(to_dict(config))[FIELDS[name]])


def _evidence(rows: list[dict[str, object]]) -> pd.DataFrame:
    return evidence([{"member": f"{row['task']} {row['parameter']}",
                      "value": 1.0 if row["holds"] else 0.0} for row in rows])


def _written(value: object) -> str:
    """Return a value, or the points of a grid, as a table has them."""
    if isinstance(value, tuple):
        return " / ".join(f"{number:g}" for number in value)
    return "none" if value is None else str(value)


REPRODUCTIONS = (Reproduction(
    "tabA3", "The hyperparameters of Table A3 and of ours", NO_RUNS, measure),)
