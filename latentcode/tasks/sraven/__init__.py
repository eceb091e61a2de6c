"""SRAVEN: symbolic Raven matrices, their counts, their ambiguity and the best possible solver."""
