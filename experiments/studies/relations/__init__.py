"""Which relation is asked? Codes of a pretrained language model."""
