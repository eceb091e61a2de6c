"""The first page's component: a base, a source, and what is put from one into the other."""
