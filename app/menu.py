"""The pages of the explorer: the module with the function `page`, which is the page's name in the
address, too; its title; its icon.

Nothing is imported here: the browser is given its page before the server has loaded anything else.
"""

from __future__ import annotations

PAGES: tuple[tuple[str, str, str], ...] = (
    ("explore", "Explore", ":material/scatter_plot:"),
    ("compare", "Compare", ":material/compare:"),
    ("decode", "Decode", ":material/query_stats:"),
    ("similarity", "Similarity", ":material/grid_on:"),
    ("intervene", "Intervene", ":material/edit:"),
    ("results", "Results", ":material/table_chart:"),
)

# Shown where the explorer was started with a language model, before the others.
LANGUAGE: tuple[tuple[str, str, str], ...] = (
    ("texts", "Codes of texts", ":material/notes:"),
    ("heads", "Heads", ":material/hub:"),
    ("prompt", "Prompt", ":material/edit_note:"),
)
OTHERS = "Models of problems"
"""What the menu calls the pages of the zoo and of runs, beside those of a language model."""
