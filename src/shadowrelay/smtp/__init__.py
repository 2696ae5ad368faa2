"""What is spoken: Receive and Send connectors and the sessions between members."""
