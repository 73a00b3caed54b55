"""A cluster on AWS: one file a concern, each a function that declares from the plan and returns what others need."""
