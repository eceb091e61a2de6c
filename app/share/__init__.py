"""The link of a view: what its address says beside the view, and a button that copies it."""
