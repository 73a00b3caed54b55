"""The node's agent: named steps at each boot, then the workers of one generation after another."""
