"""`essent lab`: commands for research."""
