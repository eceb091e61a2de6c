"""Which values of a label have similar codes, and how many heads does a code use?"""
