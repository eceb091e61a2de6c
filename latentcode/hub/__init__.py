"""Runs and codes on the Hugging Face hub: addresses, and what is pushed and fetched."""
