"""Operation, operands or answer: what do codes carry? Sources that differ in each of them."""
