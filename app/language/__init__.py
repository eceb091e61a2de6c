"""Language models: codes of texts, their heads, and prompts that are typed."""
