"""`cumulus.Cube`: a cube of whatever holds one, opened by what it is."""

from cumulus.cubes.cube import Cube
from cumulus.cubes.sources import source_of

__all__ = ["Cube", "source_of"]
