"""How figures look, and what several rooms draw."""
