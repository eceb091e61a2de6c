"""Files to copy: a task and a probe of one's own, and small language models."""
