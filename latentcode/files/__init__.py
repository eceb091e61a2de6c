"""What is on disk is whole or absent: atomic writes, locks, versions of formats, provenance."""
