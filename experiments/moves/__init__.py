"""What the explorer's first page shows: one problem, three places of it, and whose answer comes.

    python -m latentcode.experiments.moves

writes `experiments/results/moves.json` from the stored tables and the zoo's models.
"""
