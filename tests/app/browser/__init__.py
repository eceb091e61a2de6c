"""A package, so that a fixture can last for its tests and no longer."""
