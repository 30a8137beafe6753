"""`python -m xenoovs`: the command line."""

from xenoovs.cli.main import main

if __name__ == "__main__":
    main()
