"""`cumulus cube`: what cubes there are, what they say, and which levels to keep."""
