"""The main job in one call, and the report about it."""
