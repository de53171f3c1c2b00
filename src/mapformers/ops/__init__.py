"""Fast paths: one file each, with the plain reference it must equal and the measured reason it exists."""
