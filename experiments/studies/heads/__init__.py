"""Does `heads` find what is there? Models of 2, 12 and 144 heads, some of them set by hand."""
