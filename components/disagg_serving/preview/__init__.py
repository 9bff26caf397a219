"""The offline plan: the real program recorded, and what it means for a reader."""
