"""The parts of `lumen predict`: inputs as people give them, and pictures in a folder."""
