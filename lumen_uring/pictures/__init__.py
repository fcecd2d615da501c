"""Pictures outside the server's C code: settings, presets and geometry, and Pillow."""
