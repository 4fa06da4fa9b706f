"""`python -m gaflow`."""

from gaflow.cli import program

if __name__ == "__main__":
    program()
