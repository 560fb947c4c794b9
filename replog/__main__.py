"""`python -m replog` is the command `replog`, where its folder is not on the path."""

from replog.cli.main import main

if __name__ == "__main__":
    main()
