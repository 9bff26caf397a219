"""From shapes to Kubernetes objects as plain dicts. Pulumi Outputs may stand in them as leaves; nothing here imports Pulumi."""
