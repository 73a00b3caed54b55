"""A small language host for Python, for a Pulumi CLI that was built from its module and so lacks the official one."""
