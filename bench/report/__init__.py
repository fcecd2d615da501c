"""Functions from figures to text and pictures. They measure nothing."""
