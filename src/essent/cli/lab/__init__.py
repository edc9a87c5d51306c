"""`essent lab`: commands for research, one file per command."""
