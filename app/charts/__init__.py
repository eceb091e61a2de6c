"""What pages draw, and how it looks."""
