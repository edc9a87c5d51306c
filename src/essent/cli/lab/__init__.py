"""`essent lab`: commands for researchers, one file each."""
