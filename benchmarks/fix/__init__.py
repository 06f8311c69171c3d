"""How much `lanewise.optimize` and `lanewise fix` give back, on whatever machine this is."""
