"""The pages: each answers one question, and imports no other."""
