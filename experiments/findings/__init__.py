"""What was found with the toolkit: short scripts on its public functions, and their criteria."""
