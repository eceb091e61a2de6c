"""Every figure and table of the paper: the runs that it shows, and what they say. Those that
measure the same are one module."""
