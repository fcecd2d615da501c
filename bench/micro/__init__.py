"""The cost of single parts."""
