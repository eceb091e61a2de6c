"""Does a claim hold? Evidence in one form, the test of each rule, and the verdict."""
