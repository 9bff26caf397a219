"""The real program recorded without an engine, and the plan that is made of it."""
