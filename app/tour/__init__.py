"""The one-minute tour: prepared views of the explorer, and a card that says what to see in each."""
