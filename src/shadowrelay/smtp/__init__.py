"""What is spoken: Receive and Send connectors and the peer channel."""
