"""What layers are built from: the contract, the block, attention, movements and their integration, the SSM block."""
