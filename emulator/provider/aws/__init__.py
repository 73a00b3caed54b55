"""AWS resource types that the embedded cloud's API holds: one file a service, each with its KINDS."""
