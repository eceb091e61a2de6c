"""Operation, operands or answer: what do codes carry? Donors that differ in each of them."""
