"""The output folder: views of an epoch, committed by one manifest, and how they are read."""
