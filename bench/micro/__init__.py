"""What single parts cost by themselves."""
