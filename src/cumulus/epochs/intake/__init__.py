"""From files and frames to typed rows with operations and positions, packed by bucket."""
