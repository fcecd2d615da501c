"""Settings of all tests."""

from hypothesis import settings

# No test judges a time: these machines are shared and noisy.
settings.register_profile("lumen", deadline=None)
settings.load_profile("lumen")
