"""Run the command line: ``python -m tfshards``."""

from tfshards import _command

if __name__ == "__main__":
    _command()
