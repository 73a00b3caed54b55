"""What a node runs: its agent (`trainer.node`) and the training loop (`trainer.train`). Ships alone, as the bundle."""
