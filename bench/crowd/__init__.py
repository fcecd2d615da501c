"""What many and slow connections cost, and whom."""
