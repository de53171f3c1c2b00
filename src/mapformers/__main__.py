"""`python -m mapformers` is `mapformers`."""

from mapformers.cli.main import entry

if __name__ == "__main__":
    entry()
