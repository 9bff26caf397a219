"""From spec and catalogue to shapes, placement, cost and findings; pure."""
