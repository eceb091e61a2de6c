"""Every figure and table of the paper, a module each: the runs that it shows, and what they say."""
