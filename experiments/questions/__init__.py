"""Where does each number on a page come from? Pages that are written from the committed tables."""
