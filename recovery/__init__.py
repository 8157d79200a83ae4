"""From damage to a plan, and from the plan to a clean log."""
