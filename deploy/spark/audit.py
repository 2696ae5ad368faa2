"""What ``spark-submit`` runs: the command ``shadowaudit``, with its arguments."""

from shadowaudit.__main__ import main

if __name__ == "__main__":
    main()
