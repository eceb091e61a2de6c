"""Components of pages with scripts of their own: tokens, places, arcs, bars."""
