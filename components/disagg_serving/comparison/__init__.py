"""Two plans of one stack compared: what changes, why, and what that means for what runs."""
