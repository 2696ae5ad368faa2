"""``python -m shadowrelay``."""

from shadowrelay.cli import main

if __name__ == "__main__":
    main(prog_name="shadowrelay")
