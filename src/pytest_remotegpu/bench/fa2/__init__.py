"""FlashAttention-2 beside other ways to compute the same attention, and the thresholds of it."""
