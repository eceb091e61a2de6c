"""Train a small model, read its codes, decode them beside controls, and write codes of other
problems into it. Takes a few minutes on two CPU cores; everything lands in runs/quickstart.

    python experiments/examples/quickstart.py
"""

from dataclasses import replace
from pathlib import Path

import latentcode as lc

OUT = Path("runs/quickstart")
STEPS = 1_000


def quickstart(out: Path = OUT, steps: int = STEPS) -> None:
    """Train, extract, decode and intervene; print both results, and save them with a figure."""
    config = lc.preset("small", task="logic", kind="hyla")
    training = replace(config.training, steps=steps, warmup_steps=steps // 20, eval_every=steps)
    run = lc.train(replace(config, training=training), out / "run", overwrite=True)
    print(run)

    # The codes of 2,000 problems whose functions were held out: [instance, layer, pair, head].
    codes = lc.extract(run, split="ood", n=2_000)
    print(codes)

    # Can the terms of a function be read from its codes? Controls stand beside every score.
    decoding = lc.decode(run, n_train=1_500, n_heldout=1_500)
    print(decoding)
    decoding.save(out / "decoding", overwrite=True)

    # Whose answer comes when codes of another problem are written? The control's source has the
    # same answer as the base, so that what its codes change is damage.
    patches = [lc.Patch(source, scope) for source in ("interchange", "control")
               for scope in ("row", "everything")]
    interventions = lc.intervene(run, interventions=patches, n=1_000, factorial=False)
    print(interventions)
    interventions.save(out / "interventions", overwrite=True)

    print(f"figures: {out}/decoding/figure.png and {out}/interventions/figure.png")


if __name__ == "__main__":
    quickstart()
