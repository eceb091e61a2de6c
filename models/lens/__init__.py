"""What the tools of TransformerLens ask of a model, answered by ours or refused in one line."""
