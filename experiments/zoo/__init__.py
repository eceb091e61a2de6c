"""The models of the zoo and their cards are made here."""
