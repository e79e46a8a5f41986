"""Machines in processes of their own: frames over TCP, a log on the disk, a loop for each machine, and who starts them.

What runs here is any `cumulus.machine.Machine`. Its messages and tasks come with it (`spec.MachineSpec`), so nothing
in this room knows switches, nodes or rings. Only who makes a machine, and who asks for processes, does.
"""
