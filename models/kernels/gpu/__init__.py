"""The attention core in Triton: tiles of queries and keys with all heads, and its gradients."""
