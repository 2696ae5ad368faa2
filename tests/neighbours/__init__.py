"""Mail servers from Debian, each an instance of our own in a directory of ours."""
