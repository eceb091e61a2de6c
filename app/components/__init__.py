"""Numbers that are set by hand: one bar per head, which is dragged."""
