"""The same questions, asked of a language model about prompts."""
