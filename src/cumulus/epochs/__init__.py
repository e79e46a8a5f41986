"""Epochs: from folders of rows to committed views. What the Spark pipeline and the embedded host share; no Spark
here.
"""
