"""Notebooks to read and to run, with their outputs; `execute` runs them."""
