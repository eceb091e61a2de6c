"""The attention core and GELU in one pass each, compiled for the processor."""
