"""What does the paper claim, and does it hold? Figures, tables, benchmarks, the demo."""
