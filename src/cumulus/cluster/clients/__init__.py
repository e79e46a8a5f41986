"""What clients ask of switches and nodes, and what they are answered."""
