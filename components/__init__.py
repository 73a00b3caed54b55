"""GPU training clusters as Pulumi components: specified, planned, checked, then declared."""
