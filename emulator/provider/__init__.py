"""Stand-ins for the clouds' Pulumi providers: the real engine talks to them over the provider protocol."""
