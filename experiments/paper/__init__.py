"""What the paper claims, and what our runs say of it."""
