"""What pages show: found, loaded once, and kept."""
