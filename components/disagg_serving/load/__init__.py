"""Load runs against a running model, and what of them the planner may calculate with. `start` and `write_back` have effects, the rest is pure."""
