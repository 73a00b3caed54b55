"""The command's verbs, by topic: what each takes and says of itself.

What it does lies in the layer below, and is loaded only once the verb is typed: `--help` answers at once.
"""
