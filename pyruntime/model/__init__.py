"""From token ids to logits: configuration, the forward pass written once, executors that run it, the KV cache."""
