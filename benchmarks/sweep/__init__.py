"""How well the batch size at which a program's regime changes is predicted from one recording."""
