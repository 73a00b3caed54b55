"""The embedded cloud: AWS as one machine can hold it, so that the real components and nodes run without an account."""

ACCOUNT_ID = "123456789012"
"""The one account there is, as moto names it."""
