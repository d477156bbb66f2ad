"""`python -m flywheel`, the same as the `flywheel` command."""

from flywheel.cli import main

if __name__ == "__main__":
    main()
