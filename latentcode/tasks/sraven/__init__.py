"""SRAVEN: symbolic Raven matrices."""
