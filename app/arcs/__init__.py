"""Arcs: the scores of a query, drawn on its problem from the answer to the tokens attended to."""
