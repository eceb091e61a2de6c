"""One question each, asked of many models, with results that are kept."""
