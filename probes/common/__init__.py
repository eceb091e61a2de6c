"""What all probes share: labels, sources with their controls, intervals, results, figures."""
