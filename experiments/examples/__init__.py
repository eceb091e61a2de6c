"""Files to copy: a task of one's own, and small language models."""
