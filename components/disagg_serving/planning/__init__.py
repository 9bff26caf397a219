"""From spec and catalogue to a layout: what pods ask for, what pools offer, and where the pods land; pure."""
