"""`python -m latentcode.experiments.zoo RUN --name NAME` makes an entry."""

import tyro

from latentcode.experiments.zoo.entries import main

if __name__ == "__main__":
    tyro.cli(main)
