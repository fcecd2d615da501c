"""Folders of models as other servers lay them out, read into ordinary entries of the settings.

Triton's repository, a folder of versions, a single file, MLServer's and OpenVINO Model Server's
files. Called by config.py and the commands, on the main thread. Nothing here runs a model.
"""
