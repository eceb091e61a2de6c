"""Where does the operation travel? Patches at the places of a problem."""
