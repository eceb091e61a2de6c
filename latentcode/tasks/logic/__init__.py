"""Fuzzy logic: sums of products of variables and their negations."""
