"""The alicloud provider's types and functions, over the embedded cloud's AWS API."""
