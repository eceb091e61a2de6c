"""What does a code say, and what does it cause? One folder is one question."""
