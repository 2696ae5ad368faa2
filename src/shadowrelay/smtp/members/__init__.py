"""Sessions between members: our side as a client, a copy that is offered, and the verbs of a connector."""
