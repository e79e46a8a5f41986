"""`cumulus bench`: what is measured, how it is timed and what stands beside it.

Nothing else imports it but the command line.
"""
