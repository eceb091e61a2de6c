"""What can be read out of the codes? Logistic probes beside their controls."""
