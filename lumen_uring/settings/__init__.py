"""What may be written in config.yaml: the schema of the settings, and checks of one with another.

config.py reads the file and calls them. Nothing here opens a model.
"""
