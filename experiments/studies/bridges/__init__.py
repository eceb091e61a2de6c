"""Which architectures can be trusted? `check_model` on small models of all that have a bridge."""
