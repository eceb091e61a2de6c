"""Forward passes in which activations are written: where that can be, and what they share."""
