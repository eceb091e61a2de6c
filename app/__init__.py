"""What does a person see? The explorer."""
