"""Training: the loop, optimiser and schedules, checkpoints, progress, run folders."""
