"""`cumulus.Cube`: a cube of whatever holds one, opened by what it is."""

from cumulus.cubes.cube import Cube
from cumulus.cubes.sources import source_of
from cumulus.cubes.warehouse_host import ServedCubes, ServedHost

__all__ = ["Cube", "ServedCubes", "ServedHost", "source_of"]
