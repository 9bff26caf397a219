"""How fast an engine serves: time to the first token and time per token from measured steps and queues; pure."""
