"""Files to copy: tasks of one's own."""
