"""`python -m rtmem` is the `rtmem` command."""

from rtmem.cli.main import main

if __name__ == "__main__":
    main()
