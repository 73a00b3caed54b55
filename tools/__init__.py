"""How this project comes by the Pulumi CLI, and the variables under which the CLI works here."""
