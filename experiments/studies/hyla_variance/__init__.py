"""Does HYLA keep variances and gradients in check? The generated weights, and training."""
