"""`python -m lanewise`."""

from lanewise.cli.main import main

main()
