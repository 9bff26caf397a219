"""What changes mean for what runs: a sentence a resource, and how much it weighs."""
