"""Text, token by token: where it comes from, what is asked of it, and what its tokens are."""
