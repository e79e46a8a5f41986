"""What selections of a cube cost, and what keeping its levels costs."""
