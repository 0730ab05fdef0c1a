"""Run the command: ``python -m tfshards.prep.cli``."""

from tfshards.prep.cli.main import entry

if __name__ == "__main__":
    entry()
