"""What `trainwright comply` found, in each of the forms in which it is asked for."""
