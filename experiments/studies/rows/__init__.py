"""Do rows say operation, operands or answer, in which models, and from when on?"""
