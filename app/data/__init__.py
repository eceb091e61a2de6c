"""What pages show: loaded once and kept, and what can be taken along."""
