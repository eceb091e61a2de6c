"""Train one model, read its latent codes, decode what they say: the script to copy.

    python experiments/demo/train_and_probe.py            # 3 minutes on two CPU cores
    python experiments/demo/train_and_probe.py smoke      # seconds, to see that it runs
"""

import sys
from pathlib import Path

import latentcode as lc


def main(preset: str = "small") -> None:
    out = Path("runs") / f"train_and_probe_{preset}"
    # Two layers of HYLA attention learn fuzzy-logic functions from examples in context.
    config = lc.preset(preset, task="logic", kind="hyla")
    run = lc.train(config, out, resume=(out / "config.yaml").exists())
    print(run)
    print(run.latest())

    # The code of the query attending to itself, on functions that were never trained on.
    codes = lc.extract(run, split="ood", n=1_000)
    print(codes)
    print(codes.mean_by("term_1", layer=1, pair="query->query").round(2))

    # Which terms does the function have? Beside the codes stand the controls.
    result = lc.decode(run, n_train=2_000, n_heldout=2_000)
    print(result)
    result.figure().savefig(out / "probe.png", dpi=150)
    print(f"wrote {out / 'probe.png'}")


if __name__ == "__main__":
    main(*sys.argv[1:2])
