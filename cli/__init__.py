"""The `trainwright` command: thin verbs over the layers below."""
