"""What the native collector is tried on before it is believed."""
