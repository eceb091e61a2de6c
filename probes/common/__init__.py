"""What all probes share: labels, features with their controls, intervals, results, figures."""
