"""The paper's own code, github.com/smonsays/hypernetwork-attention: its weights and numbers."""
