"""What a layout can hold and what it costs: memory of an engine, traffic, autoscaling, prices; pure."""
