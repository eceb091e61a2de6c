"""One instance, what is written into its codes, and its answer beside those of controls."""
