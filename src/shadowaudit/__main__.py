"""``python -m shadowaudit``, and what ``spark-submit`` runs."""

from shadowaudit.cli import main

if __name__ == "__main__":
    main()
