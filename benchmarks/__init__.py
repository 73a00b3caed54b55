"""`make bench`: what users wait for, each against a floor or a peer in the same run."""
