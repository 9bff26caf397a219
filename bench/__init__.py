"""The bench: the real engine and control plane on one machine, without a cloud."""
