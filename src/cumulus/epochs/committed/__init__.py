"""What a run has committed: manifests, and the program that has made them."""
