"""A view, shown to others: its link, its picture, a page of its own, a note that travels along."""
